// Turns the register into the strips that the map draws. This is the only file that knows both.

import { blockState } from './places.js'
import { gapsIn } from './ranges.js'
import { domainName } from './words.js'

/** @typedef {{spaces: import('../map/store.js').Space[], strips: import('../map/store.js').Strip[]}} Put */

/** The largest depth of pools in each other; a limit is needed because records can form a circle. */
const DEEPEST = 128

/** Returns the key of a block, a pool or a waiting claim, which is the id of its strip, or of a row of the map. */
export function keyOf(thing) {
  if ('level' in thing) return thing.key
  if ('known' in thing) return `p:${thing.id}`
  if ('reason' in thing) return `w:${thing.id}`
  return thing.child ? `p:${thing.child}` : `b:${thing.id}`
}

/** Returns the id of the space of a routing domain and an address family. */
export function spaceId(domain, family) {
  return `${domain || '?'}/${family}`
}

/** Keeps the drawn strips, so that a delta of the register becomes a delta of the map. */
export class Strips {
  #store
  #drawn = new Map() // strip id: space id
  #spaces = new Map() // space id: {space, strips: their number}
  #poolStrips = new Map() // pool id: its strip, so that a strip is drawn again only if it differs
  #spans = new Map() // pool id: ids of the strips of its withheld and unknown spans

  constructor(store) {
    this.#store = store
  }

  /** Returns the number of drawn strips. */
  get size() {
    return this.#drawn.size
  }

  /** Returns the spaces that have strips to draw, by name and family. */
  get spaces() {
    return [...this.#spaces.values()].map((kept) => kept.space).sort((a, b) => compareSpaces(a, b))
  }

  /**
   * Returns the root pools of a space, in the order of their addresses. For a pool that the caller
   * cannot read, it returns the range from its first to its last block.
   * @returns {{key: string, from: bigint, to: bigint}[]}
   */
  rootsOf(space) {
    const roots = []
    for (const pool of this.#store.pools.values()) {
      const key = `p:${pool.id}`
      if (this.#drawn.get(key) === space) {
        if (!this.#parent(this.#store.ownBlock(pool.id)?.pool || pool.parent)) roots.push({ key, from: pool.from, to: pool.to })
        continue
      }
      const hull = pool.known ? null : this.#hullOf(pool.id, space)
      if (hull) roots.push({ key, ...hull })
    }
    return roots.sort((a, b) => (a.from < b.from ? -1 : 1))
  }

  #hullOf(pool, space) {
    let hull = null
    for (const block of this.#store.blocksOf(pool)) {
      if (block.child || this.#drawn.get(`b:${block.id}`) !== space) continue
      hull ??= { from: block.from, to: block.to }
      if (block.from < hull.from) hull.from = block.from
      if (block.to > hull.to) hull.to = block.to
    }
    return hull
  }

  /** Returns the space of a strip, or undefined. */
  spaceOf(key) {
    return this.#drawn.get(key)
  }

  /** Returns everything that is drawn of a space. @returns {Put} */
  whole(space) {
    const work = { ...newWork(), whole: true }
    for (const id of new Set([...this.#store.pools.keys(), ...this.#spans.keys()])) {
      this.#pool(id, null, work)
      this.#spansOf(id, work)
    }
    for (const block of this.#store.blocks.values()) {
      if (!block.child) this.#block(block, work)
      else if (!this.#store.pools.has(block.child)) this.#pool(block.child, null, work)
    }
    for (const claim of this.#store.waiting.values()) this.#waiting(claim, null, work)
    const kept = this.#spaces.get(space)
    return { spaces: kept ? [kept.space] : [], strips: [...work.put.values()].filter((strip) => strip.space === space) }
  }

  /**
   * Returns the changes of the map for a delta. A strip that has moved to another space is removed
   * and put: the removals must come first.
   * @returns {{put: Put, remove: string[]}}
   */
  take(delta) {
    const work = newWork()
    const pools = new Map(delta.pools.map(([old, pool]) => [(pool ?? old).id, old]))
    for (const [old, block] of delta.blocks) {
      for (const side of [old, block]) {
        if (side?.child && !pools.has(side.child)) pools.set(side.child, this.#store.pools.get(side.child) ?? null)
        if (side?.pool) work.partial.add(side.pool)
      }
      if (old && !old.child && (!block || block.child)) this.#take(`b:${old.id}`, null, work)
      if (block && !block.child) this.#block(block, work)
    }
    for (const [id, old] of pools) this.#pool(id, old, work)
    for (const [old, claim] of delta.waiting) this.#waiting(claim, old, work)
    if (delta.ready) for (const id of this.#store.pools.keys()) work.partial.add(id)
    for (const id of this.#store.complete ? work.partial : []) {
      if (this.#store.pools.get(id)?.usageFrom !== 'records') this.#spansOf(id, work)
    }
    return { put: { spaces: [...work.spaces.values()], strips: [...work.put.values()] }, remove: [...work.remove] }
  }

  // Draws a strip, or removes it if it is null. Reports whether it has appeared, gone or moved to
  // another space.
  #take(id, strip, work) {
    const before = this.#drawn.get(id)
    const space = strip?.space
    if (strip) work.put.set(id, strip)
    if (before === space) return false
    if (before !== undefined) {
      this.#count(before, -1)
      work.remove.add(id)
    }
    if (strip) {
      this.#drawn.set(id, space)
      this.#count(space, 1)
      work.spaces.set(space, this.#spaces.get(space).space)
    } else {
      this.#drawn.delete(id)
      work.put.delete(id)
    }
    return true
  }

  #count(id, by) {
    const kept = this.#spaces.get(id)
    if (kept) kept.strips += by
    else this.#spaces.set(id, { space: newSpace(id), strips: by })
    if (this.#spaces.get(id).strips === 0) this.#spaces.delete(id)
  }

  // Returns the id of the drawn strip of a pool, as a parent.
  #parent(pool) {
    return pool && this.#drawn.has(`p:${pool}`) ? `p:${pool}` : null
  }

  // Returns the routing domain of a pool. If the pool cannot be read, its domain is in the record
  // of its space, or in the record of a pool above it.
  #domainOf(id, steps = 0) {
    const own = this.#store.ownBlock(id)
    const known = this.#store.pools.get(id)?.domain || own?.domain
    if (known || !own?.pool || steps > DEEPEST) return known || ''
    return this.#domainOf(own.pool, steps + 1)
  }

  #block(block, work) {
    if (block.from < 0n) return
    const domain = this.#domainOf(block.pool) || block.domain
    this.#take(`b:${block.id}`, {
      id: `b:${block.id}`, space: spaceId(domain, block.family), parent: this.#parent(block.pool),
      from: block.from, to: block.to, kind: 'block', state: blockState(block),
      label: block.holderName || block.cidr, sub: block.cidr, since: block.since,
      facets: { cluster: block.cluster, project: block.project, holder: block.holderKind, class: block.class },
    }, work)
  }

  #pool(id, old, work) {
    const pool = this.#store.pools.get(id)
    const strip = this.#poolStrip(id, pool)
    const same = !work.whole && sameStrip(strip, this.#poolStrips.get(id))
    if (strip) this.#poolStrips.set(id, strip)
    else this.#poolStrips.delete(id)
    const moved = !same && this.#take(`p:${id}`, strip, work)
    if (moved || !sameSpans(old, pool)) this.#spansOf(id, work)
    if (!moved) return
    const children = new Set(this.#store.childrenOf(id))
    for (const block of this.#store.blocksOf(id)) {
      if (block.child) children.add(block.child)
      else this.#block(block, work)
    }
    for (const child of children) if (child !== id) this.#pool(child, this.#store.pools.get(child), work)
  }

  #poolStrip(id, pool) {
    const own = this.#store.ownBlock(id)
    const range = pool?.from != null ? pool : own
    if (!range || range.from < 0n) return null
    const domain = this.#domainOf(id)
    const family = pool?.family ?? own.family
    return {
      id: `p:${id}`, space: spaceId(domain, family), parent: this.#parent(own?.pool || pool?.parent),
      from: range.from, to: range.to, kind: 'pool', state: poolState(pool, own),
      label: id.slice(id.indexOf('/') + 1), sub: pool?.cidr || own?.cidr || '', since: own?.since ?? 0, used: usedOf(pool),
      facets: { cluster: '', project: pool?.project || own?.project || '', holder: id.slice(0, id.indexOf('/')), class: (pool?.classes ?? []).join(', ') },
    }
  }

  // Draws the withheld spans of a pool, and its unknown spans if not all of its records can be
  // read.
  #spansOf(id, work) {
    const pool = this.#store.pools.get(id)
    const space = this.#drawn.get(`p:${id}`)
    const wanted = space === undefined || !pool ? [] : [...withheldOf(pool), ...this.#unknownOf(pool)]
    const before = this.#spans.get(id) ?? []
    const ids = new Set(wanted.map((span) => span.id))
    for (const gone of before) if (!ids.has(gone)) this.#take(gone, null, work)
    if (ids.size > 0) this.#spans.set(id, ids)
    else this.#spans.delete(id)
    for (const span of wanted) {
      this.#take(span.id, { ...span, space, parent: `p:${id}`, kind: 'span', sub: '', since: 0, facets: { cluster: '', project: '', holder: '', class: '' } }, work)
    }
  }

  #unknownOf(pool) {
    if (!this.#store.complete || pool.usageFrom === 'records' || !pool.known) return []
    const taken = [...this.#store.blocksOf(pool.id), ...pool.spans].filter((one) => one.from >= 0n)
    return gapsIn(pool, taken).map(({ from, to }) => ({ id: `u:${pool.id}/${from.toString(16)}`, from, to, state: 'unknown', label: 'not known' }))
  }

  #waiting(claim, old, work) {
    const id = `w:${(claim ?? old).id}`
    const pool = claim?.from == null ? undefined : claim.pools.map((name) => this.#store.pools.get(name))
      .find((p) => p?.from != null && p.from <= claim.from && claim.to <= p.to && this.#drawn.has(`p:${p.id}`))
    this.#take(id, !pool ? null : {
      id, space: this.#drawn.get(`p:${pool.id}`), parent: `p:${pool.id}`, from: claim.from, to: claim.to,
      kind: 'block', state: 'waiting', label: claim.name, sub: claim.cidr, since: claim.since,
      facets: { cluster: claim.cluster, project: '', holder: claim.kind, class: claim.class ?? '' },
    }, work)
  }
}

/**
 * Returns the root pool to show first: the largest one if root pools are so far apart that all of
 * them would be dots; null: all of them.
 * @template {import('./ranges.js').Span} Root
 * @param {Root[]} roots
 * @returns {Root|null}
 */
export function homeOf(roots) {
  if (roots.length < 2) return null
  const span = roots.reduce((last, root) => (root.to > last ? root.to : last), 0n) - roots[0].from + 1n
  const pools = roots.reduce((sum, root) => sum + root.to - root.from + 1n, 0n)
  if (pools * 3n >= span) return null
  return roots.reduce((best, root) => (root.to - root.from > best.to - best.from ? root : best))
}

/** Returns the part of a change in one space. A strip that has come from another space is only put. */
export function partIn(space, { put, remove }) {
  const strips = put.strips.filter((strip) => strip.space === space)
  const ids = new Set(strips.map((strip) => strip.id))
  return { put: { spaces: put.spaces.filter(({ id }) => id === space), strips }, remove: remove.filter((id) => !ids.has(id)) }
}

function newWork() {
  return { put: new Map(), remove: new Set(), spaces: new Map(), partial: new Set() }
}

function poolState(pool, own) {
  if (own?.state === 'Releasing' || pool?.phase === 'Terminating') return 'releasing'
  if (own?.drained) return 'drained'
  return pool?.known ? 'carved' : 'unknown'
}

// Returns the used share of a pool, if its blocks do not show it.
function usedOf(pool) {
  const total = BigInt(pool?.usage?.total || 0)
  if (pool?.usageFrom !== 'status' || total === 0n) return undefined
  return Number((BigInt(pool.usage.used || 0) * 10000n) / total) / 10000
}

function withheldOf(pool) {
  return pool.spans.map((span, i) => ({
    id: `s:${pool.id}/${i}`, from: span.from, to: span.to, state: 'withheld', label: span.reason ?? '',
  }))
}

function sameStrip(a, b) {
  if (!a || !b) return a === b
  return Object.keys(a).every((name) => (name === 'facets' ? Object.keys(a.facets).every((facet) => a.facets[facet] === b.facets[facet]) : a[name] === b[name]))
}

function sameSpans(a, b) {
  if (a === b) return true
  if (!a || !b || a.usageFrom !== b.usageFrom || a.spans.length !== b.spans.length) return false
  return a.spans.every((span, i) => span.from === b.spans[i].from && span.to === b.spans[i].to && span.reason === b.spans[i].reason)
}

function newSpace(id) {
  const slash = id.lastIndexOf('/')
  const domain = id.slice(0, slash)
  const family = Number(id.slice(slash + 1))
  return { id, name: domainName(domain === '?' ? '' : domain), family }
}

function compareSpaces(a, b) {
  const rank = (space) => (space.id.startsWith('default/') ? 0 : space.id.startsWith('?') ? 2 : 1)
  return rank(a) - rank(b) || (a.name === b.name ? a.family - b.family : a.name < b.name ? -1 : 1)
}
