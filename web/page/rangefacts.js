// Describes a range of addresses that the user has typed, or selected on the map.

import { ipam } from './commands.js'
import { blank } from './facts.js'
import { compareAddresses } from './list.js'
import { poolLink } from './places.js'
import { format, formatRange, prefixesOf } from './ranges.js'
import { NOT_OF_POOL } from './store.js'
import { keyOf } from './strips.js'
import { count, counted, holderName, isInCluster } from './words.js'

const MOST = 8
const MOST_BLOCKS = 20

/**
 * Describes a range.
 * @returns {import('./facts.js').Description & {range: object, claimable: {pool: object, cidr: string, length: number}[]}}
 */
export function describeRange(store, range) {
  const title = formatRange(range.from, range.to, range.family)
  const isBlock = range.length >= 0
  const free = freeIn(store, range)
  const facts = []
  if (range.from !== range.to) facts.push(['Addresses', [count(range.to - range.from + 1n)]])
  if (!isBlock) facts.push(['Consists of', cidrs(range), 'list'])
  if (free.length > 0) facts.push(['Free in', free.map((pool) => poolLink(pool.id)), 'list'])
  const claimable = isBlock ? free.filter((pool) => !isInCluster(pool.kind) && handsOut(pool, range.length)).map((pool) => ({ pool, cidr: `${format(range.from, range.family)}/${range.length}`, length: range.length })) : []
  return {
    ...blank, kind: range.from === range.to ? 'Address' : 'Addresses', title, copy: title, facts, state: free.length > 0 ? 'free' : '', stateText: free.length > 0 ? 'free' : '',
    commands: isBlock ? [ipam('who', title)] : [], pool: free[0]?.id ?? '', range, claimable,
  }
}

/** Returns the blocks that overlap a range that is no block. */
export function blocksSection(store, range) {
  const found = []
  for (const block of store.blocks.values()) if (overlap(block, range)) found.push(block)
  found.sort(compareAddresses)
  const lines = found.slice(0, MOST_BLOCKS).map((block) => [{ text: block.cidr, to: keyOf(block) }, `${block.state.toLowerCase()}, by ${holderName(block)}`])
  if (found.length > MOST_BLOCKS) lines.push([`${counted(found.length - MOST_BLOCKS, 'more block')}: filter the list by a CIDR`])
  return { title: 'Blocks in it and around it', lines: lines.length > 0 ? lines : [['There is none that you may read.']] }
}

// Returns the smallest pools that hold the whole range, one for each routing domain, if it is
// free there.
function freeIn(store, range) {
  const smallest = new Map()
  for (const pool of store.pools.values()) {
    if (pool.from == null || pool.family !== range.family || pool.from > range.from || pool.to < range.to) continue
    if (pool.spans.some((span) => span.reason === NOT_OF_POOL && overlap({ ...span, family: range.family }, range))) continue
    const other = smallest.get(pool.domain)
    if (!other || other.to - other.from > pool.to - pool.from) smallest.set(pool.domain, pool)
  }
  return [...smallest.values()].filter((pool) => {
    if (pool.usageFrom !== 'records' || pool.spans.some((span) => overlap({ ...span, family: range.family }, range))) return false
    for (const block of store.blocksOf(pool.id)) if (overlap(block, range)) return false
    return true
  })
}

function overlap(one, range) {
  return one.family === range.family && one.from >= 0n && one.from <= range.to && range.from <= one.to
}

function handsOut(pool, length) {
  return pool.minLength >= 0 && pool.minLength <= length && length <= pool.maxLength
}

function cidrs({ from, to, family }) {
  const all = prefixesOf(from, to, family, MOST + 1).map((prefix) => `${format(prefix.from, family)}/${prefix.length}`)
  const shown = all.slice(0, MOST).map((text) => ({ text, to: `r:${text}` }))
  return all.length > MOST ? [...shown, 'and more'] : shown
}
