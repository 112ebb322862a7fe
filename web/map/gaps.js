// Draws labels of free space: if a row of a pool is empty for long enough, the number of free
// addresses there.

import { formatCount } from './address.js'
import { freeAt } from './locate.js'
import { LINE, PAD, SUB } from './text.js'

/** Free space that is narrower has no label. */
const LEAST = 56
const NOTHING = 0
const FREE = 1
const STRIP = 2

export class Gaps {
  constructor() {
    this.pixels = new Uint8Array(0)
  }

  /** Begins a row. */
  begin(width) {
    if (this.pixels.length < width) this.pixels = new Uint8Array(width)
    this.width = width
    this.pixels.fill(NOTHING, 0, width)
  }

  /** Marks these pixels as part of a pool of the level above. */
  track(x0, x1) {
    this.pixels.fill(FREE, Math.max(x0, 0), Math.min(x1, this.width))
  }

  /** Marks these pixels as part of a strip. */
  strip(x0, x1) {
    this.pixels.fill(STRIP, Math.max(x0, 0), Math.min(x1, this.width))
  }

  /** Draws the labels of the row. */
  draw(painter, panel, row) {
    for (let x = 0; x < this.width; ) {
      const begin = x
      const kind = this.pixels[x]
      while (x < this.width && this.pixels[x] === kind) x++
      if (kind === FREE && x - begin >= LEAST) this.label(painter, panel, row, begin, x)
    }
  }

  label({ ctx, theme, measure }, { space, view, left }, row, x0, x1) {
    const free = freeAt(space, row.level, view.address((x0 + x1) / 2))
    if (free === null) return
    const text = `${formatCount(free.to - free.from + 1n)} free`
    if (measure.width(ctx, SUB, text) > x1 - x0 - 2 * PAD || row.height < LINE) return
    ctx.font = SUB
    ctx.textBaseline = 'middle'
    ctx.textAlign = 'left'
    ctx.fillStyle = theme.muted
    ctx.fillText(text, left + x0 + PAD, row.y + Math.round(row.height / 2))
  }
}
