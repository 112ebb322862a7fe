// Holds the state of a map: data, views, selection, and a frame when something changed.

import { Actions } from './actions.js'
import { Animation } from './animation.js'
import { coloringOf } from './coloring.js'
import { follow } from './input.js'
import { layOut } from './layout.js'
import { locate } from './locate.js'
import { Painter } from './paint.js'
import { Patterns } from './patterns.js'
import { printOn } from './print.js'
import { rowsOf } from './rows.js'
import { Store } from './store.js'
import { Measure } from './text.js'
import { THEMES } from './theme.js'
import { View } from './view.js'

/** The default number of rows of visible(). */
const ROWS = 200
/** The interval in milliseconds at which colors by age are recomputed. */
const AGEING = 60e3

export class MapState {
  constructor(element, { theme = 'light', now = () => new Date() }) {
    this.element = element
    this.document = element.ownerDocument
    this.window = this.document.defaultView
    this.now = () => now().getTime()
    this.setTheme(theme)
    this.store = new Store(coloringOf('state', this.now))
    this.views = new Map()
    this.active = null
    this.selected = null
    this.scrolled = 0
    this.found = new Set()
    this.lit = new Map()
    this.litVersion = -1
    this.listeners = new Map()
    this.size = { width: 1, height: 1 }
    this.panels = []
    this.stats = { frames: 0, drawn: 0 }
    this.animation = new Animation(() => this.window.performance.now())
    this.patterns = new Patterns(() => this.document.createElement('canvas'))
    this.measure = new Measure()
    this.painter = new Painter(this.patterns, this.measure)
    this.open()
  }

  /** Puts the canvas into the element, and follows size and input. */
  open() {
    this.canvas = this.document.createElement('canvas')
    this.canvas.tabIndex = 0
    this.canvas.style.display = 'block'
    this.canvas.setAttribute('role', 'application')
    this.canvas.setAttribute('aria-roledescription', 'map')
    this.element.appendChild(this.canvas)
    this.context = this.canvas.getContext('2d')
    this.actions = new Actions(this)
    this.unfollow = follow(this.canvas, this.actions)
    this.observer = new this.window.ResizeObserver(() => this.resize())
    this.observer.observe(this.element)
    this.ageing = this.window.setInterval(() => this.grow(), AGEING)
    this.resize()
  }

  destroy() {
    this.observer.disconnect()
    this.unfollow()
    this.window.clearInterval(this.ageing)
    if (this.pending !== undefined) this.window.cancelAnimationFrame(this.pending)
    this.isClosed = true
    this.canvas.remove()
    this.listeners.clear()
    this.store.clear()
  }

  resize() {
    const width = Math.max(1, Math.floor(this.element.clientWidth))
    const height = Math.max(1, Math.floor(this.element.clientHeight))
    const ratio = this.window.devicePixelRatio || 1
    if (width === this.size.width && height === this.size.height && ratio === this.ratio) return
    this.size = { width, height }
    this.ratio = ratio
    this.canvas.width = Math.round(width * ratio)
    this.canvas.height = Math.round(height * ratio)
    this.canvas.style.width = `${width}px`
    this.canvas.style.height = `${height}px`
    this.layout = null
    this.invalidate()
  }

  /** Requests a frame, once, however often it is called before. */
  invalidate() {
    if (this.pending !== undefined || this.isClosed) return
    this.pending = this.window.requestAnimationFrame(() => this.frame())
  }

  frame() {
    this.pending = undefined
    if ((this.window.devicePixelRatio || 1) !== this.ratio) this.resize()
    const isMoving = this.animation.step()
    this.refresh()
    const { context, ratio, size, layout } = this
    context.setTransform(ratio, 0, 0, ratio, 0, 0)
    this.stats.drawn = this.painter.paint(context, this.scene(layout, size, this.look))
    this.stats.frames++
    if (isMoving) {
      this.invalidate()
      this.changedView()
    }
  }

  scene(layout, { width, height }, theme) {
    const { store, selected, lit } = this
    return { store, panels: layout.panels, whole: layout.height, scroll: layout.scroll, width, height, theme, selected, lit }
  }

  /** Applies the changes since the last time, so that answers include them. */
  refresh() {
    if (this.store.flush()) {
      this.layout = null
      for (const space of this.store.shown()) this.follow(space)
    }
    if (this.layout === null || this.layout === undefined) {
      const spaces = this.store.shown()
      this.layout = layOut(spaces, (space) => this.viewFor(space).view, this.size.width, this.size.height, this.scrolled)
      this.scrolled = this.layout.scroll
      this.panels = this.layout.panels
      // A finger that moves up and down scrolls the page, unless the map itself can be scrolled.
      this.canvas.style.touchAction = this.layout.height > this.size.height ? 'none' : 'pan-y'
    }
    if (this.litVersion !== this.store.version) this.light()
  }

  /** Returns the view of a space. It shows all strips until it is moved. */
  viewFor(space) {
    let kept = this.views.get(space.id)
    if (kept === undefined || kept.view.family !== space.family) {
      kept = { view: new View(space.family), isMoved: false }
      this.views.set(space.id, kept)
      this.follow(space)
    }
    return kept
  }

  follow(space) {
    const { view, isMoved } = this.viewFor(space)
    if (isMoved) return
    const { from, to } = this.store.extent(space)
    view.set(from, to)
  }

  set(data) {
    this.store.set(data)
    this.views.clear()
    this.animation.stop()
    this.invalidate()
  }

  change(delta) {
    this.store.change(delta)
    this.invalidate()
  }

  /** Colors the strips. With slots, several maps give a value the same color. */
  colorBy(name, { slots = null } = {}) {
    this.store.recolor(coloringOf(name, this.now, slots))
    this.layout = null
    this.invalidate()
  }

  /** Recomputes colors by age when they are out of date. */
  grow() {
    if (this.store.coloring.isStale?.()) this.store.recolor(this.store.coloring)
    else return
    this.invalidate()
  }

  legend() {
    this.refresh()
    return this.store.coloring.legend().map(({ label, color, pattern, count }) => ({
      label, color: this.look.colors[color].fill, ink: this.look.colors[color].ink, edge: this.look.colors[color].edge,
      pattern: pattern ?? 'solid', count,
    }))
  }

  /** Returns the name of the theme. */
  get theme() {
    return this.themeName
  }

  set theme(name) {
    this.setTheme(name)
    this.invalidate()
  }

  setTheme(name) {
    if (THEMES[name] === undefined) throw new RangeError(`${name} is not a theme: use one of ${Object.keys(THEMES).join(', ')}`)
    this.themeName = name
    this.look = THEMES[name]
  }

  /** Returns the space that keys and zoom() apply to: the one that was used last. */
  activeSpace() {
    this.refresh()
    const shown = this.store.shown()
    return shown.find(({ id }) => id === this.active) ?? shown[0]
  }

  viewOf(space) {
    if (space === undefined) return null
    const { view } = this.viewFor(space)
    return { space: space.id, from: view.from, to: view.to }
  }

  /** Returns the view of the active space in order to move it, or null. */
  moving() {
    const space = this.activeSpace()
    if (space === undefined) return null
    const kept = this.viewFor(space)
    kept.isMoved = true
    return kept.view
  }

  /** Returns the view of the active space, or null. */
  get view() {
    return this.viewOf(this.activeSpace())
  }

  set view({ space, from, to }) {
    this.refresh()
    if (!this.store.spaces.has(space)) return
    this.active = space
    this.goTo(from, to, false)
  }

  /** Shows addresses from..to of the active space. */
  goTo(from, to, animate) {
    const view = this.moving()
    if (view === null) return
    const last = (1n << (view.family === 4 ? 32n : 128n)) - 1n
    const first = from < 0n ? 0n : from > last ? last : from
    const end = to > last ? last : to < first ? first : to
    this.animation.stop()
    if (animate && !this.isStill()) this.animation.start(view, first, end)
    else view.set(first, end)
    this.changedView()
  }

  isStill() {
    return this.window.matchMedia?.('(prefers-reduced-motion: reduce)').matches ?? false
  }

  /** Shows a strip with a little around it, or all strips of a space. */
  fit(target, { animate = false } = {}) {
    this.refresh()
    const entry = this.store.byId.get(target)
    if (entry !== undefined) {
      const { space, from, to, kind } = entry.strip
      this.active = space
      const size = to - from + 1n
      const around = kind === 'pool' ? size / 50n : size * 2n
      this.goTo(from - around, to + around, animate)
      this.bringToView(entry)
      return
    }
    const space = this.store.spaces.get(target ?? this.activeSpace()?.id)
    if (space === undefined) return
    this.active = space.id
    const { from, to } = this.store.extent(space)
    this.goTo(from, to, animate)
  }

  /** Scrolls up or down so that the row of an entry is visible. */
  bringToView(entry) {
    this.refresh()
    const panel = this.panels.find(({ space }) => space.id === entry.strip.space)
    const row = panel?.rows.find(({ level }) => level === entry.level)
    if (row === undefined) return
    if (row.y + row.height > this.size.height) this.scrollBy(row.y + row.height - this.size.height + 8)
    else if (row.y < 0) this.scrollBy(Math.min(panel.top, row.y) - 8)
  }

  /** @returns {boolean} whether something moved */
  scrollBy(pixels) {
    this.refresh()
    const before = this.scrolled
    this.scrolled += pixels
    this.layout = null
    this.refresh()
    this.invalidate()
    return this.scrolled !== before
  }

  zoom(factor, at) {
    const view = this.moving()
    if (view === null) return
    this.animation.stop()
    view.zoom(factor, at === undefined ? view.width / 2 : typeof at === 'bigint' ? view.pixel(at) : at)
    this.changedView()
  }

  pan(fraction) {
    const view = this.moving()
    if (view === null) return
    this.animation.stop()
    view.pan(fraction * view.width)
    this.changedView()
  }

  changedView() {
    this.invalidate()
    this.emit('view', this.view)
  }

  select(id) {
    if (id === this.selected) return
    this.selected = id
    const strip = this.store.byId.get(id)?.strip
    if (strip !== undefined) this.active = strip.space
    this.invalidate()
    this.emit('select', id)
  }

  highlight(ids) {
    this.found = new Set(ids)
    this.litVersion = -1
    this.invalidate()
  }

  /** Collects for each lane the strips that a search found. */
  light() {
    const lists = new Map()
    for (const id of this.found) {
      const entry = this.store.byId.get(id)
      if (entry === undefined || entry.lane === null) continue
      if (!lists.has(entry.lane)) lists.set(entry.lane, [])
      lists.get(entry.lane).push(entry.at)
    }
    this.lit = new Map([...lists].map(([lane, at]) => [lane, Int32Array.from(at).sort()]))
    this.litVersion = this.store.version
  }

  /** Returns the strips around one: see Store. */
  around(id) {
    return this.store.around(id)
  }

  at(x, y) {
    this.refresh()
    return locate(this.panels, x, y)
  }

  visible(most = ROWS) {
    this.refresh()
    return rowsOf(this.panels, most, this.store.coloring.categories)
  }

  paintTo(context, width, height, scale = 1) {
    this.refresh()
    return printOn(this, context, width, height, scale)
  }

  /** Calls a function with the value of each event of a name. @param {(value: any) => void} listener */
  on(name, listener) {
    if (!this.listeners.has(name)) this.listeners.set(name, new Set())
    this.listeners.get(name).add(listener)
    return () => this.listeners.get(name)?.delete(listener)
  }

  emit(name, value) {
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(value)
  }
}
