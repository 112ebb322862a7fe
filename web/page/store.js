// Holds the register as received by the stream: pools, blocks and claims that wait. It knows
// nothing of the page. The data of a block is small, and equal strings are kept once.

import { rangeOf } from './ranges.js'

/** Represents a block, or a pool's own record. */
export class Block {
  /**
   * @param {object} said the block in the form of the stream
   * @param {(text: string) => string} same returns one string for all equal ones
   */
  constructor(said, same) {
    const range = rangeOf(said.cidr)
    this.id = said.id
    this.pool = same(said.pool ?? '')
    this.domain = same(said.domain ?? '')
    this.cidr = said.cidr
    this.family = range?.family ?? 4
    this.from = range?.from ?? -1n // a CIDR that cannot be read has no addresses
    this.to = range?.to ?? -1n
    this.state = same(said.state ?? '')
    this.child = same(said.child ?? '')
    this.drained = said.drained === true
    this.terminating = said.terminating === true
    this.holderKind = same(said.holder?.kind ?? '')
    this.holderNamespace = same(said.holder?.namespace ?? '')
    this.holderName = said.holder?.name ?? ''
    this.allocation = said.allocation ?? ''
    this.cluster = same(clusterName(this.holderNamespace, said.cluster))
    this.project = same(said.project ?? '')
    this.class = same(said.class ?? '')
    this.requestedBy = same(said.requestedBy ?? '')
    this.since = time(said.since)
    this.releaseAfter = time(said.releaseAfter)
  }
}

// The properties in which two blocks of one id can differ.
const CHANGING = ['pool', 'domain', 'cidr', 'state', 'child', 'drained', 'terminating', 'holderKind', 'holderNamespace', 'holderName', 'allocation', 'cluster', 'project', 'class', 'requestedBy', 'since', 'releaseAfter']

/**
 * Holds changes: pairs of before and after, of which one is null.
 * @typedef {object} Delta
 * @property {boolean} first before the first state was complete
 * @property {boolean} ready whether the state is complete now, and was not before
 * @property {[object|null, object|null][]} pools
 * @property {[Block|null, Block|null][]} blocks
 * @property {[object|null, object|null][]} waiting
 */

/** The reason of spans that a pool does not hold: they lie between its ranges, and others can hold them. */
export const NOT_OF_POOL = 'not of this pool'

/** Holds the register. */
export class Store {
  pools = new Map()
  /** @type {Map<string, Block>} */
  blocks = new Map()
  waiting = new Map()
  /** The first message of the stream: version, context, namespace, readOnly. */
  hello = null
  /** The resources that the caller cannot read, and a text about them. */
  unread = { text: '', resources: [] }
  /** The number of blocks that are not the space of a pool. */
  blocksOfClaims = 0
  /** Whether a whole state was received. */
  complete = false

  #strings = new Map()
  #blocksOf = new Map() // by pool: a set of blocks
  #ownBlocks = new Map() // by pool: a set of the blocks that are its space
  #children = new Map() // by pool: a set of the ids of pools that name it as their parent
  #seen = null // the ids that have been received while a state is being received
  #listeners = new Set()
  #facets = { namespace: new Map(), cluster: new Map(), project: new Map(), class: new Map(), kind: new Map() }

  /** Calls a function with every delta. @param {(delta: Delta) => void} listener */
  listen(listener) {
    this.#listeners.add(listener)
  }

  /** Takes a message of the stream. */
  apply(message) {
    const delta = { first: !this.complete, ready: false, pools: [], blocks: [], waiting: [] }
    switch (message.type) {
      case 'hello':
        this.#begin(message)
        return
      case 'unread':
        this.unread = { text: message.text ?? '', resources: message.resources ?? [] }
        break
      case 'pools':
        for (const pool of message.pools) this.#putPool(pool, delta)
        break
      case 'blocks':
        for (const block of message.blocks) this.#putBlock(block, delta)
        break
      case 'waiting':
        for (const claim of message.claims) this.#putWaiting(claim, delta)
        break
      case 'gone':
        this.#remove(message, delta)
        break
      case 'ready':
        this.#finish(delta)
        break
      default: // a beat, and messages of a newer command
        return
    }
    for (const listener of this.#listeners) listener(delta)
  }

  /** Returns the pool, the block or the waiting claim whose strip has a key, or undefined. */
  at(key) {
    return { b: this.blocks, p: this.pools, w: this.waiting }[key[0]]?.get(key.slice(2))
  }

  /** Returns the blocks of a pool, child pools among them, in no order. */
  blocksOf(pool) {
    return this.#blocksOf.get(pool) ?? []
  }

  /** Returns the ids of the child pools of a pool, as far as they are known. */
  childrenOf(pool) {
    return this.#children.get(pool) ?? []
  }

  /** Returns the block that is a pool's space, or undefined. Of several it returns the one that came first. */
  ownBlock(pool) {
    return this.#ownBlocks.get(pool)?.values().next().value
  }

  /**
   * Returns the values of a facet of blocks, with the number of blocks for each.
   * @param {'namespace'|'cluster'|'project'|'class'|'kind'} name
   * @returns {Map<string, number>}
   */
  facet(name) {
    return this.#facets[name]
  }

  // Begins a connection: the known state stays until the new state is complete.
  #begin(message) {
    this.hello = message
    this.#seen = new Set()
    this.#strings = new Map()
  }

  // Completes the state: removes everything that was not received again.
  #finish(delta) {
    const gone = (map) => [...map.keys()].filter((id) => !this.#seen.has(id))
    if (this.#seen) this.#remove({ pools: gone(this.pools), blocks: gone(this.blocks), claims: gone(this.waiting) }, delta)
    this.#seen = null
    this.complete = true
    delta.ready = true
  }

  #putPool(said, delta) {
    this.#seen?.add(said.id)
    const before = this.pools.get(said.id) ?? null
    const range = said.first ? rangeOf(said.first, said.last) : said.cidr ? rangeOf(said.cidr) : null
    const pool = { classes: [], withheld: [], labels: {}, parent: '', cidr: '', domain: '', usage: null, limits: null, ...said }
    pool.from = range?.from ?? null
    pool.to = range?.to ?? null
    pool.spans = (pool.withheld ?? []).map((span) => ({ reason: span.reason, ...rangeOf(span.from, span.to) })).filter((span) => span.from !== undefined)
    delete pool.withheld
    if (before) this.#children.get(before.parent)?.delete(said.id)
    addTo(this.#children, pool.parent, said.id)
    this.pools.set(said.id, pool)
    delta.pools.push([before, pool])
  }

  #putBlock(said, delta) {
    this.#seen?.add(said.id)
    const before = this.blocks.get(said.id) ?? null
    const block = new Block(said, (text) => this.#same(text))
    if (before && CHANGING.every((name) => before[name] === block[name])) return
    if (before) this.#dropBlock(before)
    this.blocks.set(block.id, block)
    this.#index(block)
    delta.blocks.push([before, block])
  }

  #index(block) {
    addTo(this.#blocksOf, block.pool, block)
    addTo(this.#ownBlocks, block.child, block)
    this.#countFacets(block, 1)
  }

  #dropBlock(block) {
    this.blocks.delete(block.id)
    const of = this.#blocksOf.get(block.pool)
    if (of?.delete(block) && of.size === 0) this.#blocksOf.delete(block.pool)
    const own = this.#ownBlocks.get(block.child)
    if (own?.delete(block) && own.size === 0) this.#ownBlocks.delete(block.child)
    this.#countFacets(block, -1)
  }

  #countFacets(block, by) {
    if (block.child) return
    this.blocksOfClaims += by
    add(this.#facets.namespace, block.holderNamespace, by)
    add(this.#facets.cluster, block.cluster, by)
    add(this.#facets.project, block.project, by)
    add(this.#facets.class, block.class, by)
    add(this.#facets.kind, block.holderKind, by)
  }

  #putWaiting(said, delta) {
    this.#seen?.add(said.id)
    const before = this.waiting.get(said.id) ?? null
    const range = said.cidr ? rangeOf(said.cidr) : null
    const claim = { pools: [], class: '', cidr: '', length: -1, ...said, cluster: clusterName(said.namespace, said.cluster), from: range?.from ?? null, to: range?.to ?? null }
    claim.since = time(said.since)
    this.waiting.set(said.id, claim)
    delta.waiting.push([before, claim])
  }

  #remove({ pools = [], blocks = [], claims = [] }, delta) {
    for (const id of pools ?? []) {
      const before = this.pools.get(id)
      if (!before) continue
      this.pools.delete(id)
      this.#children.get(before.parent)?.delete(id)
      delta.pools.push([before, null])
    }
    for (const id of blocks ?? []) {
      const before = this.blocks.get(id)
      if (!before) continue
      this.#dropBlock(before)
      delta.blocks.push([before, null])
    }
    for (const id of claims ?? []) {
      const before = this.waiting.get(id)
      if (before && this.waiting.delete(id)) delta.waiting.push([before, null])
    }
  }

  #same(text) {
    const known = this.#strings.get(text)
    if (known !== undefined) return known
    this.#strings.set(text, text)
    return text
  }
}

function addTo(sets, key, value) {
  if (key === '') return
  let set = sets.get(key)
  if (!set) sets.set(key, (set = new Set()))
  set.add(value)
}

function add(counts, value, by) {
  if (value === '') return
  const now = (counts.get(value) ?? 0) + by
  if (now > 0) counts.set(value, now)
  else counts.delete(value)
}

// Returns the name of a Cluster with its namespace, which tells Clusters of one name apart; empty if
// there is none.
function clusterName(namespace, name) {
  return name ? `${namespace}/${name}` : ''
}

function time(text) {
  const milliseconds = text ? Date.parse(text) : 0
  return Number.isNaN(milliseconds) ? 0 : milliseconds
}
