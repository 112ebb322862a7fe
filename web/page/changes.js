// Records the changes since the page was opened: the last ones, and their total number.

import { holderName, poolName } from './words.js'

/**
 * Represents a change.
 * @typedef {object} Change
 * @property {number} number counts up
 * @property {number} time milliseconds
 * @property {string} what such as granted, released, retained
 * @property {string} text the changed block, pool or claim
 * @property {string} detail its holder, or the reason
 * @property {string} key of the object to show when the change is followed
 * @property {string} pool its id
 * @property {import('./store.js').Block|object} of the changed object, for its addresses on the map
 */

/** Keeps the last changes, at most as many as `most`; twice as many can be in memory. */
export class Changes {
  /** The total number of changes. */
  total = 0
  #most
  #now
  #kept = []

  constructor({ most = 1000, now = () => Date.now() } = {}) {
    this.#most = most
    this.#now = now
  }

  /**
   * Takes a delta of the store. The first state is no change.
   * @returns {number} the number of its changes
   */
  take(delta) {
    if (delta.first) return 0
    const before = this.total
    for (const [old, block] of delta.blocks) this.#block(old, block)
    for (const [old, pool] of delta.pools) this.#pool(old, pool)
    for (const [old, claim] of delta.waiting) this.#waiting(old, claim)
    return this.total - before
  }

  /** Returns the kept changes, the last one first. */
  last(most = this.#most) {
    return this.#kept.slice(-most).reverse()
  }

  /** Returns the number of changes in memory. */
  get kept() {
    return this.#kept.length
  }

  #add(change) {
    this.total++
    this.#kept.push({ number: this.total, time: this.#now(), ...change })
    if (this.#kept.length > 2 * this.#most) this.#kept.splice(0, this.#kept.length - this.#most)
  }

  #block(old, block) {
    const of = block ?? old
    const what = blockChange(old, block)
    if (what === '') return
    const key = of.child ? `p:${of.child}` : `b:${of.id}`
    this.#add({ what, text: of.cidr, detail: holder(of), key, pool: of.pool, of })
  }

  #pool(old, pool) {
    const of = pool ?? old
    if (!of.known) return
    const same = old && pool && old.known && old.phase === pool.phase
    if (same) return
    let what = 'pool deleted'
    if (!old?.known && pool?.known) what = 'pool added'
    else if (pool) what = pool.phase ? `pool is ${pool.phase}` : 'pool has no phase'
    this.#add({ what, text: poolName(of.id), detail: pool && old ? pool.message || '' : of.cidr, key: `p:${of.id}`, pool: of.id, of })
  }

  #waiting(old, claim) {
    if (old && claim && old.reason === claim.reason) return
    const of = claim ?? old
    const what = !claim ? 'waits no more' : old ? `waits: ${claim.reason}` : 'waits'
    const detail = claim && !old ? claim.reason : ''
    this.#add({ what, text: `${of.namespace}/${of.name}`, detail, key: `w:${of.id}`, pool: of.pools[0] ?? '', of })
  }
}

function blockChange(old, block) {
  if (!old) return block.child ? 'carved' : block.state === 'Bound' ? 'granted' : block.state.toLowerCase()
  if (!block) return 'released'
  if (old.state !== block.state) return block.state.toLowerCase()
  if (old.drained !== block.drained) return block.drained ? 'out of range' : 'in range again'
  if (!old.terminating && block.terminating) return 'terminating'
  return ''
}

function holder(block) {
  return block.holderKind ? holderName(block) : ''
}
