// Represents the visible part of an address space, and its width. Addresses are fixed-point
// BigInts with FRACTION bits, so that a view moves by less than an address and is exact at a /128
// in ::/0. For drawing, `locate` turns limbs into pixels without BigInt.

import { lastOf } from './address.js'
import { HIGH, MIDDLE, high, low, middle } from './limbs.js'

const FRACTION = 32n
const ONE = 1n << FRACTION
/** The distance in pixels that counts as infinite: canvases stay exact below it. */
const FAR = 1e7

export class View {
  constructor(family) {
    this.family = family
    this.whole = (lastOf(family) + 1n) << FRACTION
    this.width = 1
    this.set(0n, lastOf(family))
  }

  /** Shows the addresses from..to of the family, both included. */
  set(from, to) {
    this.start = from << FRACTION
    this.span = (to - from + 1n) << FRACTION
    this.limit()
  }

  /** @returns {bigint} the first address that is visible at least in part */
  get from() {
    return this.start >> FRACTION
  }

  /** @returns {bigint} the last such address */
  get to() {
    return (this.start + this.span - 1n) >> FRACTION
  }

  /** Sets the width of the view in pixels. */
  resize(width) {
    this.width = Math.max(1, width)
    this.measure()
  }

  /** Keeps the view in its family. */
  limit() {
    if (this.start < 0n) this.start = 0n
    if (this.start + this.span > this.whole) this.start = this.whole - this.span
    this.measure()
  }

  measure() {
    const origin = this.start >> FRACTION
    this.high = high(origin)
    this.middle = middle(origin)
    this.low = low(origin)
    this.fraction = Number(this.start & (ONE - 1n)) / Number(ONE)
    /** Pixels per address. */
    this.scale = this.width / (Number(this.span) / Number(ONE))
  }

  /** Returns the pixel at which the address of these limbs begins, cut off far outside of the view. */
  locate(a, b, c) {
    const x = ((a - this.high) * HIGH + (b - this.middle) * MIDDLE + (c - this.low) - this.fraction) * this.scale
    return x > FAR ? FAR : x < -FAR ? -FAR : x
  }

  /** Returns the pixel at which an address begins. */
  pixel(address) {
    return this.locate(high(address), middle(address), low(address))
  }

  /** Returns the fixed-point address at a pixel. */
  point(x) {
    return this.start + scaled(this.span, x / this.width)
  }

  /** Returns the address at a pixel, inside of the family. */
  address(x) {
    const at = this.point(x) >> FRACTION
    const last = lastOf(this.family)
    return at < 0n ? 0n : at > last ? last : at
  }

  /** Zooms in by a factor (out, below 1) so that the point at pixel x stays there, down to one address. */
  zoom(factor, x) {
    const anchor = this.point(x)
    this.span = scaled(this.span, 1 / factor)
    if (this.span < ONE) this.span = ONE
    if (this.span > this.whole) this.span = this.whole
    this.start = anchor - scaled(this.span, x / this.width)
    this.limit()
  }

  /** Moves by pixels: the point at x is then at x - pixels. */
  pan(pixels) {
    this.start += scaled(this.span, pixels / this.width)
    this.limit()
  }

  /** @returns {{start: bigint, span: bigint}} to return to, or to go to step by step */
  snapshot() {
    return { start: this.start, span: this.span }
  }

  /** Shows a view between two snapshots: 0 is the first and 1 is the second. */
  between(first, second, share) {
    const [outer, inner, depth] = first.span >= second.span ? [first, second, share] : [second, first, 1 - share]
    // The span changes by equal factors in equal steps, and the start with it so that one
    // address stays where it is. It is calculated from the smaller view, to be exact there.
    const ratio = Number(outer.span) / Number(inner.span)
    const factor = ratio ** (1 - depth)
    const left = ratio - 1 < 1e-9 ? 1 - depth : (factor - 1) / (ratio - 1)
    this.start = inner.start + scaled(outer.start - inner.start, left)
    this.span = inner.span + scaled(outer.span - inner.span, left)
    this.limit()
  }
}

/** Returns a BigInt times a number, as exact as the number. */
function scaled(value, factor) {
  if (!Number.isFinite(factor)) throw new RangeError(`a view cannot change by a factor of ${factor}`)
  if (factor === 0) return 0n
  const shift = Math.min(52 - Math.floor(Math.log2(Math.abs(factor))), 1000)
  const mantissa = BigInt(Math.round(factor * 2 ** shift))
  return shift >= 0 ? (value * mantissa) >> BigInt(shift) : (value * mantissa) << BigInt(-shift)
}
