// Random nested strips, and the expected content of their index, by a look at all of them.

import { lastOf } from '../../map/address.js'
import { below, strip } from './generate.js'

const STATES = ['held', 'retained', 'cooling', 'drained', 'releasing', 'unknown']

/** A random prefix in from..to of at most so many addresses. */
function prefixIn(random, from, to) {
  const size = to - from + 1n
  const bits = size.toString(2).length - 1
  const host = BigInt(Math.floor(random() * (bits + 1)))
  const count = size >> host
  const first = from + (below(random, count) << host)
  return [first, first + (1n << host) - 1n]
}

/** Makes and changes strips at random, and knows all that there are. */
export class Model {
  constructor(random, family = 4) {
    this.random = random
    this.family = family
    this.spaces = [{ id: 's', name: 's', family }]
    this.strips = new Map()
    this.made = 0
  }

  get all() {
    return [...this.strips.values()]
  }

  pick(list) {
    return list[Math.floor(this.random() * list.length)]
  }

  /** A new strip somewhere: mostly in a pool. */
  make() {
    const { random } = this
    const id = `s${this.made++}`
    const pools = this.all.filter(({ kind }) => kind === 'pool')
    const parent = random() < 0.15 ? null : random() < 0.05 ? { id: 'missing', from: 0n, to: lastOf(this.family) } : this.pick(pools) ?? null
    const [from, to] = prefixIn(random, parent?.from ?? 0n, parent?.to ?? lastOf(this.family))
    const kind = random() < 0.15 || (parent === null && random() < 0.7) ? 'pool' : random() < 0.15 ? 'span' : 'block'
    const state = kind === 'pool' ? 'carved' : kind === 'span' ? 'withheld' : random() < 0.1 ? 'waiting' : this.pick(STATES)
    return strip(id, 's', parent?.id ?? null, from, to, {
      kind, state, label: this.pick(['web', 'a name that is long', id, `${id}/32`]), sub: this.pick(['', 'team-a']),
      facets: { project: `p${Math.floor(random() * 20)}` }, since: 1 + Math.floor(random() * 1e12),
    })
  }

  /** A random change, which is applied here. @returns {{put: {strips: object[]}, remove: string[]}} */
  change(count) {
    const put = []
    const remove = []
    for (let k = 0; k < count; k++) {
      const existing = this.pick(this.all)
      const action = this.random()
      if (existing === undefined || action < 0.5) put.push(this.make())
      else if (action < 0.65) put.push({ ...existing, state: existing.state === 'held' ? 'cooling' : existing.state })
      else if (action < 0.75) {
        const other = this.make()
        put.push({ ...other, id: existing.id, parent: other.parent === existing.id ? null : other.parent })
      } else {
        remove.push(existing.id)
        this.strips.delete(existing.id)
      }
      for (const one of put) this.strips.set(one.id, one)
    }
    // What was put and removed in the same change: removes come first.
    return { put: { strips: put }, remove }
  }

  /** The level of a strip, by its parents; 'circle' where they lead in one. */
  levelOf(one) {
    let level = 0
    const seen = new Set()
    for (let at = one; ; at = this.strips.get(at.parent)) {
      if (seen.has(at.id)) return 'circle'
      seen.add(at.id)
      level++
      if (at.parent === null) return level + (at.kind === 'pool' ? 0 : 1)
      if (!this.strips.has(at.parent)) return level + 1
    }
  }
}
