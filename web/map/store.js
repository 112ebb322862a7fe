// Keeps all strips: by id, and by space, level and layer in lanes. Changes are collected, and
// applied together before the next question; a changed layer is merged, not sorted again.

import { bitsOf, lastOf } from './address.js'
import { Lane, inOrder } from './lane.js'

/**
 * @typedef {'pool'|'block'|'span'} Kind
 * @typedef {'free'|'held'|'carved'|'withheld'|'retained'|'cooling'|'drained'|'releasing'|'waiting'|'unknown'} State
 * @typedef {{id: string, space: string, parent: string|null, from: bigint, to: bigint, kind: Kind,
 *   state: State, label: string, sub: string, facets: Object<string, string>, since: number,
 *   used?: number}} Strip used is the share of a pool that is really used, from 0 to 1, if
 *   the strips do not show it
 * @typedef {{id: string, name: string, family: 4|6}} Space
 * @typedef {{strip: Strip, level: number, layer: Layer|null, lane: Lane|null, at: number,
 *   dead: boolean}} Entry
 */

/** The layers of a level, from the lowest one: later layers hide those below. */
export const LAYERS = ['span', 'pool', 'block', 'waiting']
/** The number of overlapping strips that are drawn above each other. The others are listed only. */
const MOST_LANES = 8
/** The deepest level: parents in a circle end here. */
const MOST_LEVELS = 32

/** Holds the strips of one sort and level in lanes. The first lane has all strips that overlap nothing. */
class Layer {
  constructor() {
    this.lanes = [new Lane()]
    /** @type {Entry[]} strips for which there was no lane */
    this.spill = []
    /** @type {Entry[]} */
    this.added = []
    this.dirty = false
  }

  /** Applies added and dead entries. */
  merge() {
    this.dirty = false
    let rest = [...this.added, ...this.lanes.slice(1).flatMap((lane) => lane.items), ...this.spill].filter((entry) => !entry.dead)
    rest.sort(inOrder)
    this.added = []
    this.spill = []
    let base = this.lanes[0].items
    for (let k = 0; k === 0 || rest.length > 0; k++) {
      if (k === MOST_LANES) {
        this.spill = rest
        for (const entry of rest) entry.lane = null
        break
      }
      this.lanes.length = k + 1
      this.lanes[k] ??= new Lane()
      rest = deal(this.lanes[k], base, rest)
      base = []
    }
  }

  *entries() {
    for (const lane of this.lanes) yield* lane.items
    yield* this.spill
  }
}

/** Fills a lane from two sorted lists, and returns the entries that overlap. */
function deal(lane, base, rest) {
  const kept = []
  const over = []
  let end = -1n
  let j = 0
  const take = (entry) => {
    if (entry.strip.from <= end) return over.push(entry)
    end = entry.strip.to
    return kept.push(entry)
  }
  for (const entry of base) {
    if (entry.dead) continue
    while (j < rest.length && inOrder(rest[j], entry) < 0) take(rest[j++])
    take(entry)
  }
  while (j < rest.length) take(rest[j++])
  lane.fill(kept)
  return over
}

/** Holds the strips of a space: levels[n] are the layers of level n, in the order of LAYERS. */
class SpaceStrips {
  constructor(id) {
    this.id = id
    this.name = id
    this.family = 4
    /** Whether the space is in the data; strips can come before it. */
    this.known = false
    /** @type {Layer[][]} */
    this.levels = []
  }

  layer(level, name) {
    while (this.levels.length <= level) this.levels.push(LAYERS.map(() => new Layer()))
    return this.levels[level][LAYERS.indexOf(name)]
  }

  /** Returns the deepest level that is shown: below the deepest pool comes its free space. */
  get depth() {
    let depth = this.levels.length - 1
    while (depth > 0 && this.levels[depth].every((layer) => layer.lanes[0].count === 0)) depth--
    const hasPools = depth > 0 && this.levels[depth][LAYERS.indexOf('pool')].lanes[0].count > 0
    return Math.max(depth, 0) + (hasPools ? 1 : 0)
  }

  /** Returns the lanes of a level, from the lowest one to the one on top. */
  lanes(level) {
    return (this.levels[level] ?? []).flatMap((layer) => layer.lanes)
  }
}

export class Store {
  /** @param {{reset(): void, count(strip: Strip, by: 1|-1): void, prepare(): boolean, of(strip: Strip): number, categories: unknown[]}} coloring */
  constructor(coloring) {
    this.coloring = coloring
    this.clear()
  }

  clear() {
    /** @type {Map<string, Entry>} */
    this.byId = new Map()
    /** @type {Map<string, Set<Entry>>} the strips that name a parent, whether it exists or not */
    this.children = new Map()
    /** @type {Map<string, SpaceStrips>} */
    this.spaces = new Map()
    this.queued = []
    /** Grows with every visible change. */
    this.version = (this.version ?? 0) + 1
    this.coloring.reset()
  }

  /** Replaces everything. @param {{spaces: Space[], strips: Strip[]}} data */
  set(data) {
    const strips = data.strips.map(checked)
    this.clear()
    this.queued.push({ put: { spaces: data.spaces, strips } })
  }

  /** Takes a change. The cost is in proportion to the change; it is applied before the next question. */
  change({ put = {}, remove = [] }) {
    this.queued.push({ put: { spaces: put.spaces ?? [], strips: (put.strips ?? []).map(checked) }, remove })
  }

  /** Applies all queued changes. @returns {boolean} whether something changed */
  flush() {
    if (this.queued.length === 0) return false
    const queued = this.queued
    this.queued = []
    for (const { put, remove = [] } of queued) {
      for (const id of remove) this.remove(id)
      for (const space of put.spaces) Object.assign(this.space(space.id), space, { known: true })
      for (const strip of put.strips) this.put(strip)
    }
    const recolor = this.coloring.prepare()
    for (const layer of this.layers()) this.refresh(layer, recolor)
    this.version++
    return true
  }

  /** Assigns all categories again, after the coloring changed. */
  recolor(coloring) {
    this.flush()
    this.coloring = coloring
    coloring.reset()
    for (const entry of this.byId.values()) coloring.count(entry.strip, 1)
    coloring.prepare()
    for (const layer of this.layers()) this.refresh(layer, true)
    this.version++
  }

  refresh(layer, recolor) {
    if (!layer.dirty && !recolor) return
    if (layer.dirty) layer.merge()
    for (const lane of layer.lanes) lane.categorize((entry) => this.coloring.of(entry.strip), this.coloring.categories.length)
  }

  *layers() {
    for (const space of this.spaces.values()) for (const level of space.levels) yield* level
  }

  space(id) {
    if (!this.spaces.has(id)) this.spaces.set(id, new SpaceStrips(id))
    return this.spaces.get(id)
  }

  /** @returns {SpaceStrips[]} the spaces in the data, in its order */
  shown() {
    return [...this.spaces.values()].filter((space) => space.known)
  }

  put(strip) {
    const old = this.byId.get(strip.id)
    if (old !== undefined && isSamePlace(old.strip, strip)) {
      this.coloring.count(old.strip, -1)
      this.coloring.count(strip, 1)
      old.strip = strip
      old.layer.dirty = true
      return
    }
    if (old !== undefined) this.drop(old)
    const entry = { strip, level: 0, layer: null, lane: null, at: -1, dead: false }
    this.byId.set(strip.id, entry)
    if (strip.parent !== null) {
      if (!this.children.has(strip.parent)) this.children.set(strip.parent, new Set())
      this.children.get(strip.parent).add(entry)
    }
    this.coloring.count(strip, 1)
    this.place(entry)
    this.placeChildren(strip.id, old)
  }

  remove(id) {
    const entry = this.byId.get(id)
    if (entry === undefined) {
      const space = this.spaces.get(id)
      if (space !== undefined) space.known = false
      return
    }
    this.drop(entry)
    this.placeChildren(id, entry)
  }

  drop(entry) {
    const { id, parent } = entry.strip
    entry.dead = true
    entry.layer.dirty = true
    this.byId.delete(id)
    const siblings = this.children.get(parent)
    siblings?.delete(entry)
    if (siblings?.size === 0) this.children.delete(parent)
    this.coloring.count(entry.strip, -1)
  }

  /** Puts an entry into the layer that it belongs to. */
  place(entry) {
    entry.level = this.levelOf(entry.strip)
    entry.layer = this.space(entry.strip.space).layer(entry.level, layerOf(entry.strip))
    entry.layer.added.push(entry)
    entry.layer.dirty = true
  }

  /** Moves the strips that name a parent, after the parent came or went or moved. */
  placeChildren(id, before) {
    const children = this.children.get(id)
    if (children === undefined || this.byId.get(id)?.level === before?.level) return
    for (const child of [...children]) {
      const level = this.levelOf(child.strip)
      if (child.dead || level === child.level) continue
      const moved = { ...child, lane: null, at: -1 }
      child.dead = true
      child.layer.dirty = true
      children.delete(child)
      children.add(moved)
      this.byId.set(moved.strip.id, moved)
      this.place(moved)
      this.placeChildren(moved.strip.id, child)
    }
  }

  /**
   * Returns the level of a strip. Root pools are on level 1, below their space. A strip without a
   * parent, or with one that does not exist, is on level 2: its pool is not known.
   */
  levelOf(strip) {
    if (strip.parent === null) return strip.kind === 'pool' ? 1 : 2
    const parent = this.byId.get(strip.parent)
    return parent === undefined ? 2 : Math.min(parent.level + 1, MOST_LEVELS)
  }

  /** Returns the strips that contain one, from the outermost, and the strips directly below it, in order. */
  around(id) {
    this.flush()
    const above = []
    for (let at = this.parentOf(id); at !== undefined && !above.includes(at.strip.id); at = this.parentOf(at.strip.id)) above.unshift(at.strip.id)
    const below = [...(this.children.get(id) ?? [])].sort(inOrder).map((entry) => entry.strip.id)
    return { above, below }
  }

  parentOf(id) {
    const strip = this.byId.get(id)?.strip
    return strip === undefined || strip.parent === null ? undefined : this.byId.get(strip.parent)
  }

  /**
   * Returns the addresses from the first to the last strip of a space; all of the family, if it
   * has none.
   */
  extent(space) {
    let from = null
    let to = null
    for (const lane of space.levels.flatMap((_, level) => space.lanes(level))) {
      if (lane.count === 0) continue
      const first = lane.items[0].strip.from
      const last = lane.items[lane.count - 1].strip.to
      if (from === null || first < from) from = first
      if (to === null || last > to) to = last
    }
    return from === null ? { from: 0n, to: lastOf(space.family) } : { from, to }
  }

  /** Returns the share of a pool that blocks cover on the levels below it, from 0 to 1. */
  used(space, entry) {
    if (entry.strip.used !== undefined) return Math.min(Math.max(entry.strip.used, 0), 1)
    const { from, to } = entry.strip
    let covered = 0
    for (let level = entry.level + 1; level < space.levels.length; level++) {
      for (const lane of space.levels[level][LAYERS.indexOf('block')].lanes) {
        if (lane.count > 0) covered += lane.covered(lane.search(from), lane.search(to + 1n))
      }
    }
    return Math.min(covered / (Number(to - from) + 1), 1)
  }
}

export function layerOf(strip) {
  if (strip.state === 'waiting') return 'waiting'
  if (strip.kind === 'span') return 'span'
  return strip.kind === 'pool' || strip.state === 'carved' ? 'pool' : 'block'
}

function isSamePlace(a, b) {
  return a.from === b.from && a.to === b.to && a.space === b.space && a.parent === b.parent && a.kind === b.kind && layerOf(a) === layerOf(b)
}

/** Refuses a strip that cannot be drawn. */
function checked(strip) {
  const { id, from, to } = strip
  if (typeof id !== 'string' || typeof from !== 'bigint' || typeof to !== 'bigint') {
    throw new TypeError(`strip ${id}: id must be a string, from and to must be BigInts`)
  }
  if (from < 0n || to < from || to >> BigInt(bitsOf(6)) !== 0n) {
    throw new RangeError(`strip ${id}: ${from} to ${to} is not a range of addresses`)
  }
  return strip
}
