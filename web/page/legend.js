// Shows the legend: the meaning of colors and patterns, and the number of blocks with each.

import { atMostEvery, byId, h } from './dom.js'
import { drawSwatch } from '../map/index.js'
import { count } from './words.js'

/** Shows the legend below the maps. */
export class Legend {
  #maps
  #said = ''
  /** Draws it again soon, or at once: refresh.now. */
  refresh = atMostEvery(() => this.#draw(), 500)

  constructor(maps) {
    this.#maps = maps
  }

  #draw() {
    const entries = this.#maps.legend()
    const text = JSON.stringify(entries)
    if (text === this.#said) return
    this.#said = text
    byId('legend').replaceChildren(...entries.map(item))
  }
}

/**
 * Joins the legends of several maps. If maps have different colors for one label, the label names
 * its map.
 * @param {{name: string, entries: {label: string, color: string, pattern: string, count: number}[]}[]} legends
 * @returns {object[]} entries
 */
export function joinLegends(legends) {
  const looks = new Map() // by label: its different looks
  const all = legends.flatMap(({ name, entries }) => entries.filter((entry) => entry.label !== '').map((entry) => ({ name, entry, look: `${entry.color} ${entry.pattern}` })))
  for (const { entry, look } of all) looks.set(entry.label, (looks.get(entry.label) ?? new Set()).add(look))
  const joined = new Map()
  for (const { name, entry, look } of all) {
    const label = looks.get(entry.label).size > 1 ? `${entry.label} (${name})` : entry.label
    const same = joined.get(`${label} ${look}`)
    if (same) same.count += entry.count
    else joined.set(`${label} ${look}`, { ...entry, label })
  }
  return [...joined.values()]
}

/**
 * Returns an entry of a legend, with a swatch in its color and pattern.
 * @param {{label: string, color: string, ink: string, pattern: string, count: number}} entry
 */
export function item({ label, color, ink, pattern, count: blocks }) {
  const swatch = h('canvas', { width: 52, height: 28, 'aria-hidden': 'true' })
  drawSwatch(swatch, { color, ink, pattern })
  return h('li', {}, swatch, h('span', { text: label }), blocks > 0 && h('span', { class: 'count', text: count(blocks) }))
}
