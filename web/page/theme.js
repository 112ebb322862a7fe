// Handles light and dark: as set in the system, or as the user has chosen.

const KEY = 'cadastre-theme'

/** Keeps the choice, and notifies listeners of changes. */
export class Theme {
  /** @type {'system'|'light'|'dark'} */
  choice
  #system = matchMedia('(prefers-color-scheme: dark)')
  #listeners = []

  constructor() {
    this.choice = localStorage.getItem(KEY) ?? 'system'
    this.#system.addEventListener('change', () => this.#apply())
    this.#apply()
  }

  /** @returns {'light'|'dark'} */
  get current() {
    if (this.choice === 'light' || this.choice === 'dark') return this.choice
    return this.#system.matches ? 'dark' : 'light'
  }

  /** Chooses a theme, also for the next time. @param {'system'|'light'|'dark'} choice */
  choose(choice) {
    this.choice = choice
    localStorage.setItem(KEY, choice)
    this.#apply()
  }

  /** Calls a function when the theme changes. @param {(theme: 'light'|'dark') => void} listener */
  listen(listener) {
    this.#listeners.push(listener)
  }

  #apply() {
    document.documentElement.dataset.theme = this.current
    for (const listener of this.#listeners) listener(this.current)
  }
}
