// Turns input into movements and selections of a map.

import { above, below, beside, firstOn } from './navigate.js'

export class Actions {
  constructor(state) {
    this.state = state
    this.panel = null
  }

  /** Makes the panel at a height the active one. */
  panelAt(y) {
    this.state.refresh()
    const panel = this.state.panels.find(({ top, height }) => y >= top && y < top + height) ?? null
    if (panel !== null) this.state.active = panel.space.id
    return panel
  }

  begin(x, y) {
    this.panel = this.panelAt(y)
  }

  drag(x, y) {
    const { state } = this
    if (y !== 0 && state.layout?.height > state.size.height) state.scrollBy(y)
    if (this.panel === null) return
    state.active = this.panel.space.id
    const view = state.moving()
    if (view !== null) state.pan(x / view.width)
  }

  click(x, y) {
    const at = this.state.at(x, y)
    this.panelAt(y)
    this.state.select(at?.strip?.id ?? null)
  }

  openAt(x, y) {
    const id = this.state.at(x, y)?.strip?.id
    if (id === undefined) return
    this.state.select(id)
    this.open()
  }

  /** Shows the selected strip in full. */
  open() {
    const { selected } = this.state
    if (selected === null) return
    this.state.fit(selected, { animate: true })
    this.state.emit('open', selected)
  }

  isHead(y) {
    const panel = this.panelAt(y)
    return panel === null || y < panel.domain.y + panel.domain.height
  }

  zoomAt(factor, x, y) {
    const panel = y === null ? this.panel : this.panelAt(y)
    if (panel !== null) this.state.zoom(factor, x - panel.left)
  }

  panAt(pixels, y) {
    const panel = this.panelAt(y)
    if (panel !== null) this.state.pan(pixels / panel.view.width)
  }

  scroll(pixels) {
    return this.state.scrollBy(pixels)
  }

  scrollPage(direction) {
    this.state.scrollBy(direction * this.state.size.height)
  }

  zoom(factor) {
    const entry = this.selectedEntry()
    const panel = this.state.panels.find(({ space }) => space.id === entry?.strip.space)
    const isSeen = panel !== undefined && entry.strip.to >= panel.view.from && entry.strip.from <= panel.view.to
    if (!isSeen) return this.state.zoom(factor)
    const { view } = panel
    const middle = (view.pixel(entry.strip.from) + view.pixel(entry.strip.to + 1n)) / 2
    return this.state.zoom(factor, Math.min(Math.max(middle, 0), view.width))
  }

  pan(fraction) {
    this.state.pan(fraction)
  }

  home() {
    this.state.fit(null, { animate: true })
  }

  escape() {
    if (this.state.selected !== null) this.state.select(null)
    else this.home()
  }

  selectedEntry() {
    this.state.refresh()
    return this.state.selected === null ? undefined : this.state.store.byId.get(this.state.selected)
  }

  /** Selects an entry and moves the view so that it is visible. */
  goTo(entry) {
    if (entry === null || entry === undefined) return
    const { state } = this
    state.select(entry.strip.id)
    const view = state.moving()
    const { from, to } = entry.strip
    if (to < view.from || from > view.to) {
      const half = (view.to - view.from) / 2n
      const middle = from + (to - from) / 2n
      state.goTo(middle - half, middle - half + (view.to - view.from), true)
    }
    state.bringToView(entry)
  }

  /** @returns {boolean} false if no strip is selected */
  beside(direction) {
    const entry = this.selectedEntry()
    if (entry === undefined) return false
    this.goTo(beside(this.spaceOf(entry), entry, direction))
    return true
  }

  above() {
    const entry = this.selectedEntry()
    if (entry !== undefined) this.goTo(above(this.state.store, this.spaceOf(entry), entry))
  }

  below() {
    const entry = this.selectedEntry()
    if (entry !== undefined) {
      const view = this.state.viewFor(this.spaceOf(entry)).view
      this.goTo(below(this.spaceOf(entry), view, entry))
      return
    }
    const space = this.state.activeSpace()
    if (space === undefined) return
    const { view } = this.state.viewFor(space)
    this.goTo(firstOn(space, 1, view.from, view.to) ?? firstOn(space, 2, view.from, view.to))
  }

  spaceOf(entry) {
    return this.state.store.spaces.get(entry.strip.space)
  }
}
