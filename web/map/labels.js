// Places the labels of a row where they fit, and never above each other or above another strip.

import { LABEL, LINE, PAD, SUB } from './text.js'

/** Space between a label and the text behind it on the same line. */
const APART = 8

export class Labels {
  constructor(painter) {
    this.painter = painter
    this.offers = []
    this.offers.length = 0
    this.sheets = []
  }

  /** Begins a row. */
  begin(panel, row) {
    this.panel = panel
    this.row = row
    this.offers.length = 0
    this.sheets.length = 0
  }

  /** Assigns the strips that are offered from now on to a lane, above all before. */
  sheet(lane, band) {
    this.sheets.push({ lane, band })
  }

  /**
   * Offers a strip that can have a label.
   * @param {{key: string, pattern: string, level: number, x0: number, x1: number}} place color and
   *   pattern of the strip, the y from which it has a plain fill, and its pixels in the view
   */
  offer(entry, place) {
    this.offers.push({ entry, ...place, sheet: this.sheets.length - 1 })
  }

  draw() {
    for (const offer of this.offers) this.drawOffer(offer)
  }

  drawOffer(offer) {
    const { painter } = this
    const { ctx, measure } = painter
    const { band } = this.sheets[offer.sheet]
    const room = offer.x1 - offer.x0 - 2 * PAD
    const { strip } = offer.entry
    if (band.height < LINE || room <= 0) return
    const name = measure.fit(ctx, LABEL, strip.label, room)
    const label = name || measure.fit(ctx, LABEL, strip.sub ?? '', room)
    if (label === '') return
    const width = measure.width(ctx, LABEL, label)
    const twoLines = band.height >= 2 * LINE + 4
    const left = twoLines ? room : room - width - APART
    const sub = name !== '' && (name === strip.label || twoLines) ? measure.fit(ctx, SUB, strip.sub ?? '', left) : ''
    const box = this.boxOf(offer, band, width, sub, twoLines && sub !== '')
    if (this.isCovered(offer, box)) return
    this.write(offer, box, label, sub)
  }

  boxOf(offer, band, width, sub, twoLines) {
    const { ctx, measure } = this.painter
    const subWidth = sub === '' ? 0 : measure.width(ctx, SUB, sub)
    const height = twoLines ? 2 * LINE : LINE
    return {
      x: this.panel.left + offer.x0 + PAD,
      y: Math.round(band.y + (band.height - height) / 2),
      width: twoLines ? Math.max(width, subWidth) : width + (subWidth > 0 ? APART + subWidth : 0),
      height,
      labelWidth: width,
      twoLines,
    }
  }

  /** Reports whether a strip of a higher lane is drawn where a label would be. */
  isCovered(offer, box) {
    const x0 = box.x - this.panel.left - 3
    for (let k = offer.sheet + 1; k < this.sheets.length; k++) {
      const { lane, band } = this.sheets[k]
      if (band.y >= box.y + box.height || band.y + band.height <= box.y) continue
      if (lane.touches(this.panel.view, x0, x0 + box.width + 6)) return true
    }
    return false
  }

  write(offer, box, label, sub) {
    const { ctx, theme } = this.painter
    const color = theme.colors[offer.key] ?? theme.colors.unknown
    ctx.textBaseline = 'middle'
    ctx.textAlign = 'left'
    if (offer.pattern !== 'solid' && offer.pattern !== 'none') {
      ctx.fillStyle = color.fill // a plate, so that text on it is legible
      const height = Math.min(box.height, offer.level - box.y)
      if (height > 0) ctx.fillRect(box.x - 3, box.y, box.width + 6, height)
      if (height > 0 && height < box.height) {
        ctx.fillStyle = theme.colors.level.fill // without the line above it
        ctx.fillRect(box.x - 3, offer.level, box.width + 6, 1)
      }
    }
    ctx.fillStyle = color.text
    ctx.font = LABEL
    ctx.fillText(label, box.x, box.y + LINE / 2)
    if (sub === '') return
    ctx.font = SUB
    if (box.twoLines) ctx.fillText(sub, box.x, box.y + LINE * 1.5)
    else ctx.fillText(sub, box.x + box.labelWidth + APART, box.y + LINE / 2)
  }
}
