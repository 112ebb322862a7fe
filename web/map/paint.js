// Draws panels on a canvas, from the ground up: the lines of the axis, free space, strips layer by
// layer, labels, and the selection.

import { formatRange } from './address.js'
import { drawAxis } from './axis.js'
import { Brush } from './brush.js'
import { PATTERNS } from './coloring.js'
import { Gaps } from './gaps.js'
import { Labels } from './labels.js'
import { LAYERS } from './store.js'
import { MARGIN, bandOf } from './layout.js'
import { LABEL, PAD, SUB } from './text.js'
import { drawMarks } from './marks.js'
import { shareOf, walk } from './walk.js'

/** The least height of a drawn strip, however little of its column it covers. */
const LEAST_HEIGHT = 3
/** Neighbors of this width or more are drawn with a pixel between them. */
const SEPARATE = 4
/** Strips of this width or more can have a label. */
const LABELLED = 24
/** Pools of this width or more show their usage. */
const GAUGED = 3

export class Painter {
  constructor(patterns, measure) {
    this.brush = new Brush(patterns)
    this.measure = measure
    this.labels = new Labels(this)
    this.gaps = new Gaps()
    this.run = { key: null, pattern: null, x: 0, width: 0 }
    this.heights = new Int32Array(32)
    this.column = new Int32Array(32)
    this.gauges = new Brush(patterns)
    this.clumps = new Brush(patterns)
    this.track = { wide: (lane, i, x0, x1) => this.addTrack(x0, x1), clump: (lane, i, j, column) => this.addTrack(column, column + 1) }
  }

  /**
   * @param {CanvasRenderingContext2D} ctx whose unit is one pixel of the panels
   * @param {{store: import('./store.js').Store, panels: import('./layout.js').Panel[], width: number,
   *   height: number, theme: object, selected: string|null, lit: Map<object, Int32Array>,
   *   scroll: number, whole: number, active: object|null}} scene
   */
  paint(ctx, scene) {
    this.ctx = ctx
    this.scene = scene
    this.theme = scene.theme
    this.brush.begin(ctx, scene.theme)
    this.categories = scene.store.coloring.categories
    ctx.fillStyle = scene.theme.background
    ctx.fillRect(0, 0, scene.width, scene.height)
    for (const panel of scene.panels) {
      if (panel.top + panel.height < 0 || panel.top > scene.height) continue
      this.paintPanel(panel)
    }
    this.paintScroll()
    return this.brush.drawn
  }

  paintPanel(panel) {
    const { ctx } = this
    this.panel = panel
    ctx.save()
    ctx.beginPath()
    ctx.rect(panel.left, panel.top - 2, panel.view.width, panel.height + 4)
    ctx.clip()
    const length = drawAxis(this, panel)
    this.paintDomain(panel, length)
    for (const row of panel.rows) this.paintRow(panel, row)
    drawMarks(this, panel)
    ctx.restore()
  }

  /** Paints the ribbon of a space: its name, and the visible part of it. */
  paintDomain({ space, view, left, domain }, length) {
    const { ctx, theme, measure } = this
    ctx.fillStyle = theme.grid
    ctx.fillRect(left, domain.y, view.width, domain.height)
    ctx.textBaseline = 'middle'
    ctx.textAlign = 'left'
    const y = domain.y + domain.height / 2
    const room = view.width - 2 * PAD
    const name = measure.fit(ctx, LABEL, `${space.name} · IPv${space.family}`, room)
    ctx.font = LABEL
    ctx.fillStyle = theme.text
    ctx.fillText(name, left + PAD, y)
    const range = formatRange(view.from, view.to, view.family)
    const remaining = room - measure.width(ctx, LABEL, name) - 3 * PAD
    const shown = [`${range} · ticks every /${length}`, range].find((text) => measure.width(ctx, SUB, text) <= remaining)
    if (shown === undefined) return
    ctx.font = SUB
    ctx.fillStyle = theme.muted
    ctx.fillText(shown, left + view.width - PAD - measure.width(ctx, SUB, shown), y)
  }

  paintRow(panel, row) {
    const { space, view } = panel
    const layers = space.levels[row.level]
    this.row = row
    this.gaps.begin(view.width)
    this.paintTracks(panel, row)
    this.labels.begin(panel, row)
    if (layers !== undefined) this.paintLayers(layers, view)
    this.gaps.draw(this, panel, row)
    this.labels.draw()
  }

  paintLayers(layers, view) {
    for (let k = 0; k < layers.length; k++) {
      this.layer = LAYERS[k]
      this.band = bandOf(this.row, this.layer)
      for (const lane of layers[k].lanes) {
        if (lane.count === 0) continue
        this.labels.sheet(lane, this.band)
        this.paintLane(lane, view)
      }
    }
  }

  /** Paints free space: all of the pools of the level above. The strips are then drawn on it. */
  paintTracks({ space, view }, row) {
    const above = row.level === 1 ? null : space.levels[row.level - 1]
    if (!above) return
    this.trackEnd = null
    for (const lane of above[LAYERS.indexOf('pool')].lanes) walk(lane, view, this.track)
    this.flushTrack()
    this.brush.flush()
  }

  addTrack(x0, x1) {
    this.gaps.track(x0, x1)
    if (this.trackEnd === x0 && x1 - x0 < SEPARATE) {
      this.trackEnd = x1
      return
    }
    this.flushTrack()
    this.trackStart = x0
    this.trackEnd = x1
  }

  flushTrack() {
    if (this.trackEnd === null) return
    const width = this.trackEnd - this.trackStart
    this.brush.push('free', 'none', this.panel.left + this.trackStart, this.row.y, width, this.row.height)
    this.trackEnd = null
  }

  /** Paints first the strips of a pixel or more, and above them the columns of the narrower ones. */
  paintLane(lane, view) {
    this.clumps.begin(this.ctx, this.theme)
    this.gauges.begin(this.ctx, this.theme)
    this.run.width = 0
    walk(lane, view, this)
    this.flushRun()
    this.brush.flush()
    this.gauges.flush()
    this.clumps.flush()
    this.brush.drawn += this.clumps.drawn
  }

  /** Paints a strip by itself. */
  wide(lane, i, x0, x1) {
    const { panel, band } = this
    const entry = lane.items[i]
    this.gaps.strip(x0, x1)
    const category = this.categories[lane.category[i]]
    const { state } = entry.strip
    const isPlain = category.color === 'none' && this.layer === 'pool'
    const key = isPlain ? state : category.color
    const pattern = PATTERNS[state] ?? PATTERNS.unknown
    const isBeside = i + 1 < lane.count && lane.left(panel.view, i + 1) < x1 + 1
    const width = isBeside && x1 - x0 >= SEPARATE ? x1 - x0 - 1 : x1 - x0
    this.brush.push(key, pattern, panel.left + x0, band.y, width, band.height)
    const level = this.layer === 'pool' && width >= GAUGED ? this.gauge(entry, panel.left + x0, width) : band.y + band.height
    if (width >= LABELLED) this.labels.offer(entry, { key, pattern, level, x0: Math.max(x0, 0), x1: Math.min(x0 + width, panel.view.width) })
  }

  /** Paints the usage of a pool, from the bottom up. @returns {number} its upper y */
  gauge(entry, x, width) {
    const share = this.scene.store.used(this.panel.space, entry)
    if (share <= 0) return this.band.y + this.band.height
    const height = Math.max(2, Math.round(share * (this.band.height - 2)))
    const y = this.band.y + this.band.height - 1 - height
    this.gauges.push('level', null, x + 1, y, width - 2, height)
    this.gauges.push('levelTop', null, x + 1, y, width - 2, 1)
    return y
  }

  /** Paints strips i to j-1, which are in one column. It joins equal neighbors to one rectangle. */
  clump(lane, i, j, x) {
    const { heights, column, run, categories } = this
    this.gaps.strip(x, x + 1)
    const share = shareOf(lane, this.panel.view, i, j, x)
    const full = Math.max(LEAST_HEIGHT, Math.round(share * this.band.height))
    this.divide(lane, i, j, full)
    let isSame = run.width > 0 && run.x + run.width === x
    for (let k = 0; isSame && k < categories.length; k++) isSame = column[k] === heights[k]
    if (isSame) {
      run.width++
      return
    }
    this.flushRun()
    heights.set(column)
    run.x = x
    run.width = 1
  }

  /** Divides a height among the categories of strips i to j-1; each of their categories is visible. */
  divide(lane, i, j, full) {
    const { column } = this
    column.fill(0)
    if (j - i === 1) {
      column[lane.category[i]] = full
      return
    }
    let most = 0
    let rest = full
    for (let k = 0; k < lane.categories; k++) {
      const count = lane.counted(i, j, k)
      if (count === 0) continue
      column[k] = Math.max(1, Math.floor((full * count) / (j - i)))
      rest -= column[k]
      if (column[k] > column[most]) most = k
    }
    column[most] = Math.max(1, column[most] + rest)
  }

  flushRun() {
    const { run, heights, categories, band } = this
    if (run.width === 0) return
    let y = band.y + band.height
    for (let k = 0; k < categories.length; k++) {
      if (heights[k] === 0) continue
      y -= heights[k]
      const { color, pattern } = categories[k]
      this.clumps.push(color, pattern, this.panel.left + run.x, y, run.width, heights[k])
    }
    run.width = 0
  }

  paintScroll() {
    const { whole, height, width, scroll } = this.scene
    if (whole <= height) return
    const size = Math.max(24, Math.round((height * height) / whole))
    const y = Math.round((scroll / (whole - height)) * (height - size))
    this.ctx.fillStyle = this.theme.muted
    this.ctx.fillRect(width - MARGIN / 2 - 1, y, 4, size)
  }
}
