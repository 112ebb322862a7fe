// Keeps lanes. A lane is a sorted list of strips of which no two overlap, as typed arrays: limbs
// of first and last addresses, the category of each, the number of strips of each category up to
// here, and the number of addresses that they cover together. So the strips in a pixel column are
// counted without being visited, and a search is binary.

import { HIGH, MIDDLE, high, low, middle } from './limbs.js'

const MASK42 = (1n << 42n) - 1n

const LIMBS = ['fromA', 'fromB', 'fromC', 'toA', 'toB', 'toC']
const EMPTY = new Uint32Array(0)

/** Holds the arrays of first and last addresses. A lane has two banks and fills them in turn. */
class Bank {
  constructor() {
    this.capacity = 0
    this.arrays = {}
    this.reserve(0)
  }

  reserve(count) {
    if (this.capacity > 0 && this.capacity >= count && this.capacity <= 4 * count + 64) return
    this.capacity = roomFor(count)
    for (const name of LIMBS) this.arrays[name] = new Float64Array(this.capacity)
  }

  put(i, strip) {
    const { fromA, fromB, fromC, toA, toB, toC } = this.arrays
    fromA[i] = high(strip.from)
    fromB[i] = middle(strip.from)
    fromC[i] = low(strip.from)
    toA[i] = high(strip.to)
    toB[i] = middle(strip.to)
    toC[i] = low(strip.to)
  }

  copy(i, old, first, run) {
    for (const name of LIMBS) this.arrays[name].set(old.arrays[name].subarray(first, first + run), i)
  }
}

function roomFor(count) {
  return Math.ceil(count * 1.25) + 8
}

export class Lane {
  constructor() {
    /** @type {import('./store.js').Entry[]} in address order */
    this.items = []
    this.count = 0
    this.categories = 1
    this.category = new Uint8Array(0)
    this.counts = EMPTY
    this.bank = new Bank()
    this.spare = new Bank()
    this.fill([])
  }

  /** Replaces all strips. They must be sorted, and no two may overlap. */
  fill(items) {
    const bank = this.spare
    this.spare = this.bank
    bank.reserve(items.length)
    this.take(items, this.bank, bank)
    this.bank = bank
    this.items = items
    this.count = items.length
    Object.assign(this, bank.arrays)
    this.reserve()
    this.cover()
  }

  /** Copies runs of strips that were here before, and converts the others. */
  take(items, old, bank) {
    for (let i = 0; i < items.length; ) {
      const first = items[i].at
      let run = 0
      while (i + run < items.length && items[i + run].lane === this && items[i + run].at === first + run) run++
      if (run > 0) bank.copy(i, old, first, run)
      else bank.put(i, items[i].strip)
      i += Math.max(run, 1)
    }
    for (let i = 0; i < items.length; i++) {
      items[i].at = i
      items[i].lane = this
    }
  }

  reserve() {
    if (this.coverA !== undefined && this.category.length >= this.count && this.category.length <= 4 * this.count + 64) return
    const capacity = roomFor(this.count)
    for (const name of ['coverA', 'coverB', 'coverC']) this[name] = new Float64Array(capacity + 1)
    this.category = new Uint8Array(capacity)
    this.counts = EMPTY
  }

  /** Sums up the addresses that are covered before each strip, exactly. */
  cover() {
    const { coverA, coverB, coverC, fromA, fromB, fromC, toA, toB, toC } = this
    let a = 0
    let b = 0
    let c = 0
    for (let i = 0; i < this.count; i++) {
      coverA[i] = a
      coverB[i] = b
      coverC[i] = c
      a += toA[i] - fromA[i]
      b += toB[i] - fromB[i]
      c += toC[i] - fromC[i] + 1
      if (c >= MIDDLE || c < 0) {
        const carry = Math.floor(c / MIDDLE)
        c -= carry * MIDDLE
        b += carry
      }
      if (b >= MIDDLE || b < 0) {
        const carry = Math.floor(b / MIDDLE)
        b -= carry * MIDDLE
        a += carry
      }
    }
    coverA[this.count] = a
    coverB[this.count] = b
    coverC[this.count] = c
  }

  /** Assigns every strip its category, and counts. @param {(entry) => number} of */
  categorize(of, categories) {
    const { category, items, count } = this
    for (let i = 0; i < count; i++) category[i] = of(items[i])
    this.categories = categories
    const needed = (count + 1) * categories
    if (this.counts.length < needed) this.counts = new Uint32Array((this.category.length + 1) * categories)
    const counts = this.counts
    for (let k = 0; k < categories; k++) counts[k] = 0
    let at = 0
    for (let i = 0; i < count; i++, at += categories) {
      for (let k = 0; k < categories; k++) counts[at + categories + k] = counts[at + k]
      counts[at + categories + category[i]]++
    }
  }

  /** Returns the number of strips i..j-1 of a category. */
  counted(i, j, category) {
    return this.counts[j * this.categories + category] - this.counts[i * this.categories + category]
  }

  /** Returns the number of addresses that strips i..j-1 cover. */
  covered(i, j) {
    return (this.coverA[j] - this.coverA[i]) * HIGH + (this.coverB[j] - this.coverB[i]) * MIDDLE + (this.coverC[j] - this.coverC[i])
  }

  /** Returns the pixel at which strip i begins; right returns the pixel at which it ends. */
  left(view, i) {
    return view.locate(this.fromA[i], this.fromB[i], this.fromC[i])
  }

  right(view, i) {
    return view.locate(this.toA[i], this.toB[i], this.toC[i] + 1)
  }

  /** Returns the first strip that ends right of pixel x. */
  firstAfter(view, x) {
    return firstIndex(0, this.count, (i) => this.right(view, i) > x)
  }

  /**
   * Returns the first strip behind i that begins at pixel x or right of it. It gallops, because
   * that strip is near.
   */
  nextFrom(view, i, x) {
    let step = 1
    let below = i
    while (below + step < this.count && this.left(view, below + step) < x) {
      below += step
      step *= 2
    }
    return firstIndex(below + 1, Math.min(below + step, this.count), (at) => this.left(view, at) >= x)
  }

  /** Returns the first strip whose last address is not before the address. */
  search(address) {
    const a = high(address)
    const b = middle(address)
    const c = Number(address & MASK42)
    return firstIndex(0, this.count, (i) => (this.toA[i] - a || this.toB[i] - b || this.toC[i] - c) >= 0)
  }

  /** Returns the strip that contains the address, or null. */
  holding(address) {
    const entry = this.items[this.search(address)]
    return entry !== undefined && entry.strip.from <= address ? entry : null
  }

  /** Reports whether a strip is drawn in pixels x0 to x1. */
  touches(view, x0, x1) {
    const i = this.firstAfter(view, x0 - 1)
    return i < this.count && this.left(view, i) < x1 + 1
  }
}

/** Returns the first index from below up to above for which a test is true; it is true for all behind that one. */
export function firstIndex(below, above, test) {
  while (below < above) {
    const mid = (below + above) >>> 1
    if (test(mid)) above = mid
    else below = mid + 1
  }
  return below
}

/** Orders entries by their first address, larger ones first. */
export function inOrder(x, y) {
  const a = x.strip
  const b = y.strip
  if (a.from !== b.from) return a.from < b.from ? -1 : 1
  if (a.to !== b.to) return a.to > b.to ? -1 : 1
  return a.id < b.id ? -1 : a.id > b.id ? 1 : 0
}
