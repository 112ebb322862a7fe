// Handles tabs, as the ARIA practices describe them: one of them is in the order of Tab, the arrow
// keys move between them.

import { byId } from './dom.js'

const NAMES = ['list', 'free', 'changes']

/** Handles the tabs below the map. */
export class Tabs {
  /** The name of the tab on the screen. */
  current = 'list'
  #listener

  /** @param {(name: string) => void} listener called when another tab is shown */
  constructor(listener) {
    this.#listener = listener
    NAMES.forEach((name, i) => {
      const tab = byId(`tab-${name}`)
      tab.addEventListener('click', () => this.show(name))
      tab.addEventListener('keydown', (event) => this.#key(event, i))
    })
  }

  /** Shows a tab. */
  show(name) {
    if (!NAMES.includes(name)) return
    this.current = name
    for (const one of NAMES) {
      byId(`tab-${one}`).setAttribute('aria-selected', String(one === name))
      byId(`tab-${one}`).tabIndex = one === name ? 0 : -1
      byId(`view-${one}`).hidden = one !== name
    }
    this.#listener(name)
  }

  #key(event, i) {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: NAMES.length - 1 }[event.key]
    if (to === undefined) return
    event.preventDefault()
    const name = NAMES[(to + NAMES.length) % NAMES.length]
    this.show(name)
    byId(`tab-${name}`).focus()
  }
}
