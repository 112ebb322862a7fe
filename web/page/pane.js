// Shows one map on the page, with the buttons above it.

import { h } from './dom.js'
import { createMap } from '../map/index.js'
import { format, formatRange, rangeOf } from './ranges.js'
import { partIn } from './strips.js'
import { spaceName } from './words.js'

const STILL = 5 // a pointer that moves more, in pixels, drags

/**
 * Holds the functions that a pane calls.
 * @typedef {object} Listeners
 * @property {(key: string|null) => void} onSelect a strip was selected on the map
 * @property {(key: string) => void} onRange free space was selected
 * @property {() => void} onUse the pane is used
 * @property {() => void} onView the view has moved
 * @property {() => void} onOpen a strip was opened
 */

/** Shows the map of a routing domain and an address family. */
export class Pane {
  /**
   * @param {{id: string, name: string, family: 4|6}} space
   * @param {{theme: string, color: string, slots: Map<string, number>|null} & Listeners} options
   */
  constructor(space, { theme, color, slots, onSelect, onRange, onUse, onView, onOpen }) {
    this.space = space
    this.roots = h('div', { class: 'roots', role: 'group', 'aria-label': `Root pools of ${spaceName(space)}`, hidden: true })
    this.place = h('div', { class: 'map' })
    this.section = h('div', { class: 'pane', 'data-space': space.id }, this.roots, this.place)
    this.map = createMap(this.place, { theme })
    this.map.colorBy(color, { slots })
    this.quiet = false
    this.moved = false
    const { canvas } = this.map
    canvas.setAttribute('aria-label', `Map of ${spaceName(space)}`)
    canvas.setAttribute('aria-describedby', 'map-help')
    this.map.on('select', (key) => this.quiet || onSelect(key))
    this.map.on('open', () => onOpen())
    this.map.on('view', () => {
      if (!this.quiet) this.moved = true
      onView()
    })
    this.section.addEventListener('focusin', onUse)
    this.section.addEventListener('pointerdown', onUse)
    followFree(this, onRange)
  }

  /** Returns the view that a link keeps: the whole space has no addresses. */
  get linked() {
    const { family } = this.space
    const view = this.moved ? this.map.view : null
    return view ? { space: this.space.id, from: format(view.from, family), to: format(view.to, family) } : { space: this.space.id, from: '', to: '' }
  }

  /** Takes a change, which can be of all spaces. */
  take(change) {
    this.map.change(partIn(this.space.id, change))
  }

  /** Shows the view of a link. @param {{from: string, to: string}} view */
  restore({ from, to }) {
    const range = rangeOf(from, to)
    if (!range || range.family !== this.space.family) return
    this.moved = true
    this.map.view = { space: this.space.id, from: range.from, to: range.to }
  }

  /** Shows a range with a little around it. @param {{from: bigint, to: bigint}} range */
  show({ from, to }) {
    const around = (to - from) / 50n
    this.map.view = { space: this.space.id, from: from - around, to: to + around }
  }

  /** Shows a range, or everything, as before any movement by the user. */
  home(range) {
    this.quiet = true
    if (range) this.show(range)
    else this.map.fit(this.space.id)
    this.quiet = false
    this.moved = false
  }

  /** Selects a strip, or none. */
  select(key) {
    this.quiet = true
    this.map.select(key)
    this.quiet = false
  }

  /** Zooms around a range if it is visible, else around the middle. */
  zoom(factor, range) {
    const { from, to } = this.map.view ?? {}
    const isSeen = range && range.family === this.space.family && range.to >= from && range.from <= to
    this.map.zoom(factor, isSeen ? (range.from + range.to + 1n) / 2n : undefined)
  }

  /** Removes the pane. */
  close() {
    this.map.destroy()
    this.section.remove()
  }
}

// Selects free space when it is clicked.
function followFree(pane, onRange) {
  let down = null
  pane.place.addEventListener('pointerdown', (event) => (down = event), { capture: true })
  pane.map.canvas.addEventListener('click', (event) => {
    const moved = down && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) > STILL
    const at = moved ? null : pane.map.at(event.offsetX, event.offsetY)
    if (at?.free) onRange(`r:${formatRange(at.free.from, at.free.to, pane.space.family)}`)
  })
}
