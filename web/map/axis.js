// Draws the axis: ticks at the boundaries of prefixes, as many as have room for their labels.

import { bitsOf, format } from './address.js'
import { SUB } from './text.js'

/** Pixels between a label and the next tick. */
const ROOM = 14
/** The least distance of ticks. */
const LEAST = 48
/** Labels wider than this share of the view are shortened to the parts that differ. */
const WIDEST = 0.3

/**
 * Returns the ticks of a view, in order.
 * @returns {{length: number, ticks: {x: number, text: string}[], minor: number[]}} length is
 *   that of the prefixes between two ticks
 */
export function ticksOf(view, widthOf) {
  const bits = bitsOf(view.family)
  const text = writer(view, widthOf)
  let host = Math.min(Math.max(Math.ceil(Math.log2(LEAST / view.scale)), 0), bits)
  let ticks = ticksAt(view, host, text)
  while (host < bits && ticks.some((tick) => widthOf(tick.text) + ROOM > 2 ** host * view.scale)) {
    host++
    ticks = ticksAt(view, host, text)
  }
  return { length: bits - host, ticks, minor: minorOf(view, host) }
}

/** Returns the ticks at multiples of 2^host. */
function ticksAt(view, host, text) {
  const step = 1n << BigInt(host)
  const ticks = []
  for (let at = ((view.from + step - 1n) / step) * step; at <= view.to; at += step) {
    const x = view.pixel(at)
    if (x >= 0 && x <= view.width) ticks.push({ x, text: text(at) })
  }
  return ticks
}

/** Returns the pixels at which the prefixes two bits longer begin. */
function minorOf(view, host) {
  if (host < 2) return []
  const step = 1n << BigInt(host - 2)
  const minor = []
  for (let at = ((view.from + step - 1n) / step) * step; at <= view.to; at += step) minor.push(view.pixel(at))
  return minor
}

/** Returns a function that writes addresses of a view: only their ends, if they are long and begin alike. */
function writer(view, widthOf) {
  const full = (address) => format(address, view.family)
  const widest = Math.max(widthOf(full(view.from)), widthOf(full(view.to)))
  if (view.family === 4 || widest <= Math.max(view.width * WIDEST, 110)) return full
  const differing = (view.from ^ view.to).toString(2).length
  const groups = Math.min(Math.ceil(differing / 16), 8)
  if (groups > 4) return full
  return (address) => {
    const parts = []
    for (let k = groups - 1; k >= 0; k--) parts.push(((address >> BigInt(16 * k)) & 0xffffn).toString(16))
    return `…:${parts.join(':')}`
  }
}

/** Draws the axis of a panel, and lines through its ribbons. */
export function drawAxis(painter, panel) {
  const { ctx, theme, measure } = painter
  const { view, axis, left } = panel
  const widthOf = (text) => measure.width(ctx, SUB, text)
  const { length, ticks, minor } = ticksOf(view, widthOf)
  const bottom = panel.top + panel.height
  ctx.fillStyle = theme.grid
  for (const { x } of ticks) ctx.fillRect(left + Math.round(x), axis.y + axis.height, 1, bottom - axis.y - axis.height)
  ctx.fillStyle = theme.muted
  for (const x of minor) ctx.fillRect(left + Math.round(x), axis.y + axis.height - 3, 1, 3)
  for (const { x } of ticks) ctx.fillRect(left + Math.round(x), axis.y + 4, 1, axis.height - 4)
  ctx.font = SUB
  ctx.textBaseline = 'middle'
  ctx.textAlign = 'left'
  let end = 0
  for (const { x, text } of ticks) {
    const at = Math.round(x) + 4
    const width = widthOf(text)
    if (at < end || at + width > view.width) continue
    ctx.fillText(text, left + at, axis.y + axis.height / 2)
    end = at + width + 6
  }
  return length
}
