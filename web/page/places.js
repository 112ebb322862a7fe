// Finds the pools around blocks and pools, and makes links to them.

import { formatRange, parse } from './ranges.js'
import { poolName } from './words.js'

const STATES = { Bound: 'held', Retained: 'retained', Cooling: 'cooling', Releasing: 'releasing', Carved: 'carved' }

/**
 * Returns the state of a block on the map.
 * @param {import('./store.js').Block} block
 * @returns {string}
 */
export function blockState(block) {
  return block.drained ? 'drained' : STATES[block.state] ?? 'unknown'
}

/**
 * Returns a link to a pool.
 * @param {string} id
 * @returns {{text: string, to: string}}
 */
export function poolLink(id) {
  return { text: poolName(id), to: `p:${id}` }
}

/**
 * Returns a pool and those above it: "west (10.1.0.0/16) in core (10.0.0.0/8)", with links.
 * @param {import('./store.js').Store} store
 * @param {string} id
 * @returns {(string|{text: string, to: string})[]}
 */
export function poolsAbove(store, id) {
  const line = []
  const seen = new Set()
  for (let at = id; at && !seen.has(at); ) {
    seen.add(at)
    const pool = store.pools.get(at)
    const own = store.ownBlock(at)
    if (line.length > 0) line.push('in')
    line.push(poolLink(at))
    const cidr = pool?.cidr || own?.cidr
    if (cidr) line.push(`(${cidr})`)
    at = own?.pool || pool?.parent
  }
  return line
}

/**
 * Returns the holder of a block: a link to the child pool, or a text.
 * @param {import('./store.js').Block} block
 * @returns {string|{text: string, to?: string, filter?: string}}
 */
export function holderLink(block) {
  if (block.child) return { text: poolName(block.child), to: `p:${block.child}` }
  if (!block.holderKind) return block.holderName
  return `${block.holderKind} ${block.holderNamespace ? `${block.holderNamespace}/` : ''}${block.holderName}`
}

/**
 * Returns the block of a record.
 * @param {import('./store.js').Store} store
 * @param {string} allocation namespace/name
 * @param {string} cidr
 * @returns {import('./store.js').Block|undefined}
 */
export function blockOfRecord(store, allocation, cidr) {
  for (const block of store.blocks.values()) if (block.cidr === cidr && block.allocation === allocation) return block
  return undefined
}

/**
 * Returns the block that a claim holds.
 * @param {import('./store.js').Store} store
 * @param {{kind: string, namespace: string, name: string}} claim
 * @returns {import('./store.js').Block|undefined}
 */
export function blockOfClaim(store, claim) {
  for (const block of store.blocks.values()) {
    if (block.holderName === claim.name && block.holderNamespace === claim.namespace && block.holderKind === claim.kind) return block
  }
  return undefined
}

/**
 * Returns the key of the pool that a report names.
 * @param {{kind: string, namespace?: string, name: string}} ref
 * @returns {string}
 */
export function poolKey(ref) {
  return ref.kind === 'LocalIPPool' ? `p:LocalIPPool/${ref.namespace}/${ref.name}` : `p:IPPool/${ref.name}`
}

/**
 * Returns the range of a selection that is a range, else null.
 * @param {string} key
 * @returns {import('./ranges.js').Range|null}
 */
export function rangeOfKey(key) {
  return key.startsWith('r:') ? parse(key.slice(2)) : null
}

/**
 * Returns a range of addresses in words.
 * @param {{from: bigint, to: bigint, family: 4|6}} range
 * @returns {string}
 */
export function rangeText(range) {
  return formatRange(range.from, range.to, range.family)
}
