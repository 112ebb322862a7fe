// Finds the pools around blocks and pools, and makes links to them.

import { formatRange, parse } from './ranges.js'
import { holderName, poolName } from './words.js'

/** The states of blocks on the map, by those of their records. */
export const BLOCK_STATES = { Bound: 'held', Retained: 'retained', Cooling: 'cooling', Releasing: 'releasing', Carved: 'carved' }

/** Returns the state of a block on the map. */
export function blockState(block) {
  return block.drained ? 'drained' : BLOCK_STATES[block.state] ?? 'unknown'
}

/** Returns a link to a pool. @returns {{text: string, to: string}} */
export function poolLink(id) {
  return { text: poolName(id), to: `p:${id}` }
}

/**
 * Returns a pool and those above it: "west (10.1.0.0/16) in core (10.0.0.0/8)", with links.
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
 * @returns {string|{text: string, to?: string, filter?: string}}
 */
export function holderLink(block) {
  if (block.child) return { text: poolName(block.child), to: `p:${block.child}` }
  return block.holderKind ? holderName(block) : block.holderName
}

/** Returns the block of a record. @param {string} allocation namespace/name */
export function blockOfRecord(store, allocation, cidr) {
  for (const block of store.blocks.values()) if (block.cidr === cidr && block.allocation === allocation) return block
  return undefined
}

/** Returns the block that a claim holds. @param {{kind: string, namespace: string, name: string}} claim */
export function blockOfClaim(store, claim) {
  for (const block of store.blocks.values()) {
    if (block.holderName === claim.name && block.holderNamespace === claim.namespace && block.holderKind === claim.kind) return block
  }
  return undefined
}

/**
 * Returns the key of the pool that a report names.
 * @param {{kind: string, namespace?: string, name: string}} ref
 */
export function poolKey(ref) {
  const isNamespaced = ref.kind === 'LocalIPPool' || ref.kind === 'InClusterIPPool'
  return `p:${ref.kind}/${isNamespaced ? `${ref.namespace}/` : ''}${ref.name}`
}

/** Returns the range of a selection that is a range, else null. */
export function rangeOfKey(key) {
  return key.startsWith('r:') ? parse(key.slice(2)) : null
}

/** Returns a range of addresses in words. @param {{from: bigint, to: bigint, family: 4|6}} range */
export function rangeText(range) {
  return formatRange(range.from, range.to, range.family)
}
