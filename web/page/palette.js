// Chooses the color of each value of a facet: the same one on all maps.

import { FACETS } from '../map/index.js'

/**
 * Gives colors to the most frequent values. A value keeps its color while it exists, and the color
 * of a new value follows from its text if that color is free.
 * @param {Map<string, number>} counts the number of things with each value
 * @param {Map<string, number>} [before]
 * @returns {Map<string, number>} slots by value
 */
export function chooseSlots(counts, before = new Map()) {
  const slots = new Map([...before].filter(([value]) => counts.has(value)))
  const taken = new Set(slots.values())
  const byCount = (a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)
  const fresh = [...counts].filter(([value]) => value !== '' && !slots.has(value)).sort(byCount).slice(0, FACETS - slots.size)
  for (const value of fresh.map(([name]) => name).sort()) {
    let slot = numberOf(value) % FACETS
    while (taken.has(slot)) slot = (slot + 1) % FACETS
    taken.add(slot)
    slots.set(value, slot)
  }
  return slots
}

/**
 * Reports whether two choices are the same.
 * @param {Map<string, number>} a
 * @param {Map<string, number>} b
 * @returns {boolean}
 */
export function sameSlots(a, b) {
  return a.size === b.size && [...a].every(([value, slot]) => b.get(value) === slot)
}

/**
 * Counts the blocks and pools with each value of a facet.
 * @param {import('./store.js').Store} store
 * @param {string} name project, class or holder
 * @returns {Map<string, number>}
 */
export function countsOf(store, name) {
  const counts = new Map(store.facet(name === 'holder' ? 'kind' : name))
  const valueOf = { project: (pool) => pool.project ?? '', class: (pool) => (pool.classes ?? []).join(', '), holder: (pool) => pool.kind }[name]
  for (const pool of store.pools.values()) {
    const value = valueOf(pool)
    if (value !== '') counts.set(value, (counts.get(value) ?? 0) + 1)
  }
  return counts
}

function numberOf(text) {
  let n = 7
  for (const character of text) n = (Math.imul(n, 31) + character.codePointAt(0)) >>> 0
  return n
}
