// Lists the content of the screen as rows in the order of the addresses, for a table with the same
// content as the canvas: strips, several strips that are in one place, and free space.

import { formatCount, formatRange } from './address.js'
import { firstIndex } from './lane.js'
import { freeAt } from './locate.js'
import { LAYERS } from './store.js'
import { walk } from './walk.js'

/**
 * @typedef {{id: string|null, space: string, level: number, from: bigint, to: bigint,
 *   state: string, label: string, sub: string, count: number}} Row id is null for free space,
 *   and for several strips (count) that are too narrow to be drawn by themselves
 */

/** Free space narrower than this, in pixels, has no row. */
const LEAST_FREE = 2

/** @returns {Row[] & {more: number}} more is the number of omitted rows */
export function rowsOf(panels, most, categories) {
  const rows = []
  for (const panel of panels) rows.push(...rowsOfPanel(panel, categories))
  const shown = rows.slice(0, most)
  shown.more = rows.length - shown.length
  return shown
}

function rowsOfPanel({ space, view }, categories) {
  const rows = []
  let pools = []
  for (let level = 1; level <= space.depth; level++) {
    const found = rowsOfLevel(space, level, view, categories)
    rows.push(...found, ...freeOf(space, level, view, pools, found))
    pools = found.filter((row) => row.isPool)
  }
  return rows.sort(inOrder).map(({ isPool, ...row }) => row)
}

function inOrder(a, b) {
  if (a.from !== b.from) return a.from < b.from ? -1 : 1
  if (a.level !== b.level) return a.level - b.level
  return a.to === b.to ? 0 : a.to > b.to ? -1 : 1
}

function rowsOfLevel(space, level, view, categories) {
  const rows = []
  if (space.levels[level] === undefined) return rows
  LAYERS.forEach((name, k) => {
    const layer = space.levels[level][k]
    const add = ({ strip }) => rows.push(rowOf(strip, level, name))
    for (const lane of layer.lanes) {
      const clumps = new Clumps(space, level, name, categories, rows)
      const wide = (_, i) => {
        clumps.finish()
        add(lane.items[i])
      }
      walk(lane, view, { wide, clump: (_, i, j, column) => clumps.add(lane, i, j, column) })
      clumps.finish()
    }
    for (const entry of layer.spill) if (entry.strip.to >= view.from && entry.strip.from <= view.to) add(entry)
  })
  return rows
}

function rowOf(strip, level, layer) {
  const { id, space, from, to, state, label, sub } = strip
  return { id, space, level, from, to, state, label, sub: sub ?? '', count: 1, isPool: layer === 'pool' }
}

/** Joins clumps in neighboring columns to one row. */
class Clumps {
  constructor(space, level, layer, categories, rows) {
    Object.assign(this, { space, level, layer, categories, rows })
    this.end = -2
    this.last = null
  }

  add(lane, i, j, column) {
    if (this.last !== null && column <= this.end + 1) this.last.j = j
    else {
      this.finish()
      this.last = { lane, i, j }
    }
    this.end = column
  }

  /** Adds the row of the joined clumps. */
  finish() {
    if (this.last === null) return
    const { lane, i, j } = this.last
    this.last = null
    const { from } = lane.items[i].strip
    const { to } = lane.items[j - 1].strip
    if (j - i === 1) {
      this.rows.push(rowOf(lane.items[i].strip, this.level, this.layer))
      return
    }
    const parts = this.categories.map((category, k) => [category.label, lane.counted(i, j, k)]).filter(([, count]) => count > 0)
    this.rows.push({
      id: null, space: this.space.id, level: this.level, from, to, state: 'several', count: j - i, isPool: this.layer === 'pool',
      label: `${formatRange(from, to, this.space.family)}: ${j - i} strips`,
      sub: parts.map(([label, count]) => `${count} ${label}`).join(', '),
    })
  }
}

/**
 * Returns the rows of free space: the parts of pools of the level above that are in no row of this
 * one. Its parts outside of the screen can have strips that are not among the rows.
 */
function freeOf(space, level, view, pools, found) {
  const sorted = found.filter((row) => row.state !== 'waiting').sort(inOrder)
  const free = []
  const add = (first, last) => {
    if (last < first || last < view.from || first > view.to) return
    const inside = first >= view.from && last <= view.to
    const whole = inside ? { from: first, to: last } : freeAt(space, level, first > view.from ? first : view.from)
    if (whole === null || Number(whole.to - whole.from + 1n) * view.scale < LEAST_FREE) return
    const { from, to } = whole
    const label = `${formatCount(to - from + 1n)} free`
    free.push({ id: null, space: space.id, level, from, to, state: 'free', label, sub: formatRange(from, to, space.family), count: 1, isPool: false })
  }
  for (const pool of pools) {
    if (pool.count > 1) continue
    let next = pool.from
    const first = firstIndex(0, sorted.length, (i) => sorted[i].from >= pool.from)
    for (let k = first; k < sorted.length && sorted[k].from <= pool.to; k++) {
      if (sorted[k].to < next) continue
      add(next, sorted[k].from - 1n)
      next = sorted[k].to + 1n
    }
    add(next, pool.to)
  }
  return free
}
