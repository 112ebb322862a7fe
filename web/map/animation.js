// Moves one view at a time, from its present range to its target.

const DURATION = 260

export class Animation {
  /** @param {() => number} clock in ms */
  constructor(clock) {
    this.clock = clock
    this.running = null
  }

  /** Moves a view so that it shows from..to. */
  start(view, from, to) {
    const first = view.snapshot()
    view.set(from, to)
    const last = view.snapshot()
    view.between(first, last, 0)
    this.running = { view, first, last, begin: this.clock() }
  }

  stop() {
    this.running = null
  }

  /** Takes the next step. @returns {boolean} whether something moved */
  step() {
    if (this.running === null) return false
    const { view, first, last, begin } = this.running
    const share = Math.min((this.clock() - begin) / DURATION, 1)
    view.between(first, last, share * share * (3 - 2 * share))
    if (share >= 1) this.running = null
    return true
  }
}
