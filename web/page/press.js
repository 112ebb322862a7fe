// Follows pointers that are pressed. A click needs its press and its release on the same element:
// changes that the user does not cause wait until the pointer is released.

const TAP = 50 // a tap is clicked a little after the finger is lifted
const LONGEST = 5_000 // after a longer press, the pointer drags, or its release was not seen
const ENDS = ['pointerup', 'pointercancel', 'change', 'contextmenu'] // the menu of a select, or of the browser, takes the release

/** Follows the pointers of a page. */
export class Press {
  #ground
  #released = null
  #resolve = () => {}
  #timer = null

  /** @param {{setTimeout: Function, clearTimeout: Function}} [ground] tests replace it */
  constructor(ground = { setTimeout: (fn, ms) => setTimeout(fn, ms), clearTimeout: (timer) => clearTimeout(timer) }) {
    this.#ground = ground
  }

  /** Follows the pointers over a document. */
  follow(page) {
    page.addEventListener('pointerdown', () => this.#begin(), { capture: true })
    for (const end of ENDS) page.addEventListener(end, () => this.#endIn(TAP), { capture: true })
  }

  /** @returns {Promise<void>|null} resolved once the pointer is released; null if none is pressed */
  get released() {
    return this.#released
  }

  /** Does something now, or once the pointer is released, in the order of the calls. */
  after(work) {
    if (this.#released) this.#released.then(work)
    else work()
  }

  #begin() {
    this.#released ??= new Promise((resolve) => (this.#resolve = resolve))
    this.#endIn(LONGEST)
  }

  #endIn(milliseconds) {
    this.#ground.clearTimeout(this.#timer)
    this.#timer = this.#ground.setTimeout(() => {
      this.#released = null
      this.#resolve()
    }, milliseconds)
  }
}

/** The pointers of the page. */
export const press = new Press()
