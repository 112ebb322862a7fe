// Assigns a category, and with it a color, to each strip: by its state, by a facet, or by its age.
// The lanes count strips by category.

/** @typedef {{label: string, color: string, pattern: string|null}} Category color key of a theme */

export const PATTERNS = {
  free: 'none',
  held: 'solid',
  carved: 'rules',
  withheld: 'cross',
  retained: 'rising',
  cooling: 'dots',
  drained: 'falling',
  releasing: 'bars',
  waiting: 'chevrons',
  unknown: 'checks',
}

const STATES = Object.keys(PATTERNS)
const LABELS = {
  carved: 'carved into a child pool',
  drained: 'out of range',
  waiting: 'waited for',
}

/** The number of values of a facet with a separate color. */
export const FACETS = 11
const NONE = 0
const OTHER = 1
const SPAN = 2
const FIRST = 3

/** Ages up to a number of milliseconds, with their text in the legend. */
export const AGES = [
  [3600e3, 'up to 1 hour'],
  [86400e3, 'up to 1 day'],
  [7 * 86400e3, 'up to 7 days'],
  [30 * 86400e3, 'up to 30 days'],
  [90 * 86400e3, 'up to 90 days'],
  [365 * 86400e3, 'up to 1 year'],
  [Infinity, 'older than 1 year'],
]

/**
 * Returns the coloring of a name: 'state', 'age' or a facet.
 * @param {() => number} now in ms
 * @param {Map<string, number>|null} [slots] the color of each value of a facet, from 0 to
 *   FACETS - 1; null: the strips decide
 */
export function coloringOf(name, now, slots = null) {
  if (name === 'state') return new ByState()
  return name === 'age' ? new ByAge(now) : new ByFacet(name, slots)
}

class Counting {
  constructor() {
    this.reset()
  }

  reset() {
    this.counts = new Array(this.categories?.length ?? 0).fill(0)
  }

  count(strip, by) {
    const k = this.of(strip)
    this.counts[k] = (this.counts[k] ?? 0) + by
  }

  /**
   * Prepares the categories before they are assigned.
   * @returns {boolean} whether they changed for all strips
   */
  prepare() {
    return false
  }

  /** Returns the entries of the legend: categories that have strips. */
  legend() {
    return this.categories.map((category, k) => ({ ...category, count: this.counts[k] ?? 0 })).filter((category) => category.count > 0)
  }
}

class ByState extends Counting {
  categories = STATES.map((state) => ({ label: LABELS[state] ?? state, color: state, pattern: PATTERNS[state] }))

  of(strip) {
    const k = STATES.indexOf(strip.state)
    return k < 0 ? STATES.length - 1 : k
  }

  /**
   * Returns the entries of the legend. Free space is not covered by strips, so it has an entry
   * without strips, too.
   */
  legend() {
    const entries = super.legend().filter((category) => category.label !== 'free')
    return [{ ...this.categories[0], count: this.counts[0] ?? 0 }, ...entries]
  }
}

class ByAge extends Counting {
  categories = [
    { label: 'no date', color: 'none', pattern: null },
    { label: 'withheld', color: 'withheld', pattern: PATTERNS.withheld },
    ...AGES.map(([, label], k) => ({ label, color: `age${k}`, pattern: null })),
  ]

  constructor(now) {
    super()
    this.now = now
    this.at = now()
  }

  reset() {
    super.reset()
    if (this.now !== undefined) this.at = this.now()
  }

  /**
   * Reports whether the ages of the strips are out of date.
   * @returns {boolean} whether all strips must be assigned again
   */
  isStale() {
    return Math.abs(this.now() - this.at) > 60e3
  }

  of(strip) {
    if (strip.kind === 'span') return 1
    if (!(strip.since > 0) || strip.kind === 'pool') return 0
    return 2 + AGES.findIndex(([most]) => this.at - strip.since <= most)
  }
}

class ByFacet extends Counting {
  constructor(name, given) {
    super()
    this.name = name
    this.given = given
    this.reset()
  }

  reset() {
    this.values = new Map()
    this.spans = 0
    this.total = 0
    this.ranked = 0
    this.slotOf = new Map(this.given)
    this.name ??= ''
    this.label()
  }

  count(strip, by) {
    if (strip.kind === 'span') {
      this.spans += by
      return
    }
    const value = strip.facets?.[this.name] ?? ''
    const count = (this.values.get(value) ?? 0) + by
    this.total += by
    if (count > 0) this.values.set(value, count)
    else this.values.delete(value)
  }

  of(strip) {
    if (strip.kind === 'span') return SPAN
    const value = strip.facets?.[this.name] ?? ''
    if (value === '') return NONE
    const slot = this.slotOf.get(value)
    return slot === undefined ? OTHER : FIRST + slot
  }

  /**
   * Gives colors to values. A value keeps its color while it has strips, except when there are
   * twice as many strips as when the most frequent values were chosen.
   */
  prepare() {
    if (this.given) return false
    const before = this.slotOf
    const isOutgrown = this.total > 2 * this.ranked
    if (isOutgrown) this.ranked = this.total
    this.slotOf = chooseSlots(this.values, isOutgrown ? undefined : before)
    this.label()
    return !sameSlots(this.slotOf, before)
  }

  label() {
    const values = new Map([...this.slotOf].map(([value, slot]) => [slot, value]))
    this.categories = [
      { label: `no ${this.name}`, color: 'none', pattern: null },
      { label: 'other', color: 'other', pattern: null },
      { label: 'withheld', color: 'withheld', pattern: PATTERNS.withheld },
      ...Array.from({ length: FACETS }, (_, slot) => ({ label: values.get(slot) ?? '', color: `facet${slot}`, pattern: null })),
    ]
  }

  legend() {
    const shown = [...this.slotOf.keys()].reduce((sum, value) => sum + (this.values.get(value) ?? 0), 0)
    const none = this.values.get('') ?? 0
    const count = (category, k) => {
      if (k === NONE) return none
      if (k === OTHER) return this.total - none - shown
      if (k === SPAN) return this.spans
      return category.label === '' ? 0 : this.values.get(category.label) ?? 0
    }
    const entries = this.categories.map((category, k) => ({ ...category, count: count(category, k) }))
    const valued = entries.slice(FIRST).sort((a, b) => b.count - a.count)
    return [...valued, entries[OTHER], entries[NONE], entries[SPAN]].filter((entry) => entry.count > 0)
  }
}

/**
 * Gives colors to the most frequent values. A value keeps its color while it exists, and the color
 * of a new value follows from its text if that color is free.
 * @param {Map<string, number>} counts the number of things with each value
 * @param {Map<string, number>} [before]
 * @returns {Map<string, number>} slots by value
 */
export function chooseSlots(counts, before = new Map()) {
  const slots = new Map([...before].filter(([value]) => counts.has(value)))
  const taken = new Set(slots.values())
  const byCount = (a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)
  const fresh = [...counts].filter(([value]) => value !== '' && !slots.has(value)).sort(byCount).slice(0, FACETS - slots.size)
  for (const value of fresh.map(([name]) => name).sort()) {
    let slot = numberOf(value) % FACETS
    while (taken.has(slot)) slot = (slot + 1) % FACETS
    taken.add(slot)
    slots.set(value, slot)
  }
  return slots
}

/**
 * Reports whether two choices are the same.
 * @param {Map<string, number>} a
 * @param {Map<string, number>} b
 */
export function sameSlots(a, b) {
  return a.size === b.size && [...a].every(([value, slot]) => b.get(value) === slot)
}

function numberOf(text) {
  let n = 7
  for (const character of text) n = (Math.imul(n, 31) + character.codePointAt(0)) >>> 0
  return n
}
