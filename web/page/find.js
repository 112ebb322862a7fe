// Turns the text in the search field into suggestions, each with its target.

import { splitField } from './filter.js'
import { compareAddresses } from './list.js'
import { parse, formatRange } from './ranges.js'
import { keyOf } from './strips.js'
import { counted, holderName, poolName } from './words.js'

/**
 * Represents the target of a suggestion.
 * @typedef {{type: 'key', key: string}
 *   | {type: 'range', family: number, from: bigint, to: bigint, text: string}
 *   | {type: 'filter', filter: string}
 *   | {type: 'machine', name: string}} Target
 *
 * @typedef {object} Suggestion
 * @property {string} kind its kind, in a word or two
 * @property {string} text
 * @property {string} detail
 * @property {Target} target
 */

const MOST = 10

/**
 * Parses a search text.
 * @returns {{kind: 'empty'|'range'|'field'|'text', range?: object, field?: string, value?: string}}
 */
export function parseQuery(text) {
  const trimmed = text.trim()
  if (trimmed === '') return { kind: 'empty' }
  const { field, value } = splitField(trimmed)
  const range = parse(field === 'address' ? value : trimmed)
  if (range) return { kind: 'range', range }
  if (field !== '' && field !== 'address') return { kind: 'field', field, value }
  return { kind: 'text', value: field === 'address' ? value : trimmed }
}

/** Returns suggestions for a text, the best one first. */
export function suggest(store, text, most = MOST) {
  const query = parseQuery(text)
  switch (query.kind) {
    case 'empty':
      return []
    case 'range':
      return ofRange(store, query.range, most)
    case 'field':
      return query.value === '' ? [] : ofField(store, query.field, query.value, most)
    default:
      return ofText(store, query.value, most)
  }
}

function ofRange(store, range, most) {
  const text = formatRange(range.from, range.to, range.family)
  const asked = range.hostBits ? `${text} is the network of ${range.text}` : 'who holds it, and where it lies'
  const found = [{ kind: range.from === range.to ? 'Address' : 'CIDR', text, detail: asked, target: { type: 'range', family: range.family, from: range.from, to: range.to, text } }]
  const covering = []
  const within = []
  const look = (thing) => {
    if (thing.from == null || thing.from < 0n || thing.family !== range.family) return
    if (thing.from <= range.from && range.to <= thing.to) covering.push(thing)
    else if (range.from <= thing.from && thing.to <= range.to && within.length < most) within.push(thing)
  }
  for (const block of store.blocks.values()) if (!store.pools.has(block.child)) look(block)
  for (const pool of store.pools.values()) look(pool)
  covering.sort((a, b) => (a.to - a.from < b.to - b.from ? -1 : 1))
  for (const thing of [...covering, ...within].slice(0, most - 1)) found.push(suggestion(thing))
  const exact = covering.filter((thing) => thing.from === range.from && thing.to === range.to && !range.hostBits)
  if (exact.length === 1) found.unshift(...found.splice(1, 1)) // an exact match, in one routing domain
  return found
}

function suggestion(thing) {
  if ('known' in thing) {
    return { kind: thing.kind === 'LocalIPPool' ? 'Local pool' : 'Pool', text: poolName(thing.id), detail: thing.cidr || thing.phase || '', target: { type: 'key', key: keyOf(thing) } }
  }
  if ('reason' in thing) {
    return { kind: 'Waits', text: `${thing.namespace}/${thing.name}`, detail: thing.reason, target: { type: 'key', key: keyOf(thing) } }
  }
  const pool = thing.pool ? ` in pool ${poolName(thing.pool)}` : ''
  return { kind: 'Block', text: thing.cidr, detail: `${holderName(thing)}${pool}`, target: { type: 'key', key: keyOf(thing) } }
}

function claimSuggestion(block) {
  return { kind: 'Claim', text: `${block.holderNamespace}/${block.holderName}`, detail: `${block.cidr} in pool ${poolName(block.pool)}`, target: { type: 'key', key: keyOf(block) } }
}

function ofField(store, field, value, most) {
  const best = new Best(most)
  const wanted = value.toLowerCase()
  if (field === 'machine') return [machine(value)]
  if (field === 'pool') addPools(store, wanted, best)
  else if (field === 'claim') addClaims(store, wanted, best)
  else if (field === 'state' || field === 'kind') return [{ kind: 'List', text: `${field}:${value}`, detail: 'the rows of the list with it', target: { type: 'filter', filter: `${field}:${value}` } }]
  else addFacet(store, field, wanted, best)
  return best.all()
}

function ofText(store, value, most) {
  const best = new Best(most)
  const wanted = value.toLowerCase()
  addPools(store, wanted, best)
  for (const field of ['namespace', 'cluster', 'project', 'class']) addFacet(store, field, wanted, best)
  addClaims(store, wanted, best)
  const found = best.all()
  if (/^[a-z0-9.-]*[a-z][a-z0-9.-]*$/.test(wanted)) found.splice(most - 1, found.length, machine(value))
  return found
}

function machine(name) {
  return { kind: 'Machine', text: name, detail: 'look for the addresses of this Machine', target: { type: 'machine', name } }
}

function addPools(store, wanted, best) {
  for (const pool of store.pools.values()) {
    const rank = Math.min(rankOf(poolName(pool.id), wanted), rankOf(pool.name, wanted), pool.cidr?.startsWith(wanted) ? 2 : 9)
    best.add(rank, pool, suggestion)
  }
}

const FACETS = { namespace: 'Namespace', cluster: 'Cluster', project: 'Project', class: 'Class' }

function addFacet(store, field, wanted, best) {
  for (const [name, blocks] of store.facet(field)) {
    best.add(Math.min(rankOf(name, wanted), rankOf(name.slice(name.indexOf('/') + 1), wanted)), name, () => ({
      kind: FACETS[field], text: name, detail: counted(blocks, 'block'), target: { type: 'filter', filter: `${field}:${name}` },
    }))
  }
}

function addClaims(store, wanted, best) {
  for (const claim of store.waiting.values()) best.add(claimRank(claim.namespace, claim.name, wanted), claim, suggestion)
  for (const block of store.blocks.values()) {
    if (block.child) continue
    const rank = claimRank(block.holderNamespace, block.holderName, wanted)
    best.add(rank === 9 && block.cidr.startsWith(wanted) ? 3 : rank, block, rank === 9 ? suggestion : claimSuggestion)
  }
}

function claimRank(namespace, name, wanted) {
  return wanted.includes('/') ? rankOf(`${namespace}/${name}`, wanted) : rankOf(name, wanted)
}

// Returns the rank of a match: 0: the same, 1: begins with it, 3: contains it, 9: none of these.
function rankOf(name, wanted) {
  const text = name.toLowerCase()
  if (!text.includes(wanted)) return 9
  if (text === wanted) return 0
  return text.startsWith(wanted) ? 1 : 3
}

// Keeps the best ones without keeping all.
class Best {
  #most
  #ranks = new Map()

  constructor(most) {
    this.#most = most
  }

  add(rank, thing, make) {
    if (rank >= 9) return
    let kept = this.#ranks.get(rank)
    if (!kept) this.#ranks.set(rank, (kept = []))
    if (kept.length < this.#most) kept.push([thing, make])
  }

  all() {
    const ranks = [...this.#ranks.keys()].sort((a, b) => a - b)
    const sorted = (rank) => this.#ranks.get(rank).sort(([a], [b]) => compareAddresses(a, b))
    return ranks.flatMap(sorted).slice(0, this.#most).map(([thing, make]) => make(thing))
  }
}
