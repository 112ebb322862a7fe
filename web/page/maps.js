// Shows the maps: one for each chosen routing domain and family, side by side.

import { atMostEvery, button, byId, h } from './dom.js'
import { joinLegends } from './legend.js'
import { thingOnMap } from './list.js'
import { chooseSlots, sameSlots, THEMES } from '../map/index.js'
import { countsOf } from './palette.js'
import { Pane } from './pane.js'
import { Pending } from './pending.js'
import { rangeOfKey } from './places.js'
import { homeOf } from './strips.js'
import { counted, poolName, spaceName } from './words.js'

const MANY = 5000 // from this number of strips on, one change does not draw them at once
const AT_FIRST = 2 // the number of maps before the user chooses
const ROOTS = 12 // the largest number of root pools with a button

/** Handles the shown maps. */
export class Maps {
  #app
  #strips
  #panes = new Map() // by space id
  #chosen = null // the spaces that the user has chosen; null: none chosen
  #wanted = new Map() // views of a link whose space does not exist yet
  #color = 'state'
  #slots = null // by value of the facet that colors the maps
  #active = ''
  #highlighted = []
  #pending = new Pending()
  #flushSoon = atMostEvery(() => this.#flush(), 400)

  constructor(app, strips) {
    this.#app = app
    this.#strips = strips
  }

  /** Returns the pane that was used last, or the first one. */
  get active() {
    return this.#panes.get(this.#active) ?? this.#panes.values().next().value
  }

  /** @returns {Pane[]} */
  get panes() {
    return [...this.#panes.values()]
  }

  /** Returns the part of the view that a link keeps. */
  get views() {
    const views = this.panes.map((pane) => pane.linked)
    return this.#chosen || views.some((view) => view.from) ? views : []
  }

  set views(views) {
    this.#chosen = views.length > 0 ? views.map((view) => view.space) : null
    this.#wanted = new Map(views.map((view) => [view.space, view]))
    this.#arrange()
    for (const pane of this.panes) {
      const view = this.#wanted.get(pane.space.id)
      if (view?.from) pane.restore(view)
      else this.#home(pane)
    }
  }

  /** Shows the whole routing domain of the map that was used last. */
  fit() {
    const pane = this.active
    if (!pane) return
    pane.map.fit(pane.space.id, { animate: true })
    pane.moved = false
  }

  /** Zooms the map that was used last, around the selection if it is visible. */
  zoom(factor) {
    const { selected, store } = this.#app
    const thing = store.at(selected) ?? rangeOfKey(selected)
    this.active?.zoom(factor, thing?.from == null ? null : { family: thing.family, from: thing.from, to: thing.to })
  }

  /** Returns the strips above and below a strip, or null. */
  around(key) {
    const pane = this.#panes.get(this.#strips.spaceOf(key))
    return pane ? pane.map.around(key) : null
  }

  /** Reports whether a strip is on a map. */
  has(key) {
    return this.#strips.spaceOf(key) !== undefined
  }

  /** Takes a change. Many strips are drawn less often, so that movement stays smooth. */
  take({ put, remove }) {
    this.#pending.take(put, remove)
    if (this.#pending.isEmpty) return
    if (this.#panes.size === 0 || this.#strips.size < MANY) this.#flush()
    else this.#flushSoon()
  }

  #flush() {
    const { put, remove } = this.#pending.end()
    const before = this.#panes.size
    for (const pane of this.panes) pane.take({ put, remove })
    this.#arrange()
    for (const pane of this.panes) this.#drawRoots(pane)
    this.#drawColors()
    if (before === 0) this.select(this.#app.selected)
  }

  // Draws buttons that lead to the root pools. Until the user moves the map, it shows all of them,
  // or only the largest one if they are so far apart that all would be dots.
  #drawRoots(pane) {
    const roots = this.#strips.rootsOf(pane.space.id)
    const text = roots.map((root) => root.key).join('\n')
    if (!pane.moved && roots.length > 1) this.#home(pane)
    if (pane.roots.dataset.of === text) return
    pane.roots.dataset.of = text
    pane.roots.hidden = roots.length < 2
    pane.roots.replaceChildren(h('span', { class: 'quiet', text: 'Go to' }), ...roots.slice(0, ROOTS).map((root) => button(poolName(root.key.slice(2)), () => {
      pane.show(root)
      this.#app.select(root.key)
    }, { class: 'small' })), ...(roots.length > ROOTS ? [h('span', { class: 'quiet', text: `and ${counted(roots.length - ROOTS, 'more root pool')}` })] : []))
  }

  /** Shows these spaces. */
  choose(ids) {
    this.#chosen = ids
    this.#arrange()
    this.#app.keepLink()
  }

  /** Selects a strip, or clears the selection. */
  select(key) {
    for (const pane of this.panes) pane.select(this.#strips.spaceOf(key) === pane.space.id ? key : null)
  }

  /** Shows a strip or a range in a map. */
  reveal(key) {
    if (!this.#pending.isEmpty) this.#flush()
    const space = this.#strips.spaceOf(key)
    if (space !== undefined) {
      this.#show(space)
      this.#panes.get(space)?.map.fit(key, { animate: true })
      return
    }
    const range = rangeOfKey(key)
    if (!range) return
    const pane = this.#paneFor(range)
    if (!pane) return
    const around = (range.to - range.from + 1n) * 2n
    pane.map.view = { space: pane.space.id, from: range.from - around, to: range.to + around }
  }

  /** Colors all maps. */
  colorBy(name) {
    this.#color = name
    this.#slots = null
    if (name === 'state' || name === 'age') for (const pane of this.panes) pane.map.colorBy(name)
    else this.#drawColors()
  }

  /** Draws pending changes after all is read, and colors the values that are frequent now. */
  ready() {
    if (!this.#pending.isEmpty) this.#flush()
    this.colorBy(this.#color)
  }

  // Gives a value of a facet the same color on all maps.
  #drawColors() {
    if (this.#color === 'state' || this.#color === 'age') return
    const slots = chooseSlots(countsOf(this.#app.store, this.#color), this.#slots ?? undefined)
    if (this.#slots && sameSlots(slots, this.#slots)) return
    this.#slots = slots
    for (const pane of this.panes) pane.map.colorBy(this.#color, { slots })
  }

  /** @param {'light'|'dark'} theme */
  paint(theme) {
    for (const [state, color] of Object.entries(THEMES[theme].colors)) document.documentElement.style.setProperty(`--state-${state}`, color.fill)
    for (const pane of this.panes) pane.map.theme = theme
  }

  /** Marks strips, or none. */
  highlight(keys) {
    this.#highlighted = keys
    for (const pane of this.panes) pane.map.highlight(keys)
  }

  /** Returns the legend of all maps together. @param {string} [theme] for the colors */
  legend(theme) {
    return joinLegends(this.panes.map(({ map, space }) => {
      const own = map.theme
      map.theme = theme ?? own
      const entries = map.legend()
      map.theme = own
      return { name: spaceName(space), entries }
    }))
  }

  /** Returns the visible parts of the maps as rows of the list. */
  visibleThings() {
    return this.panes.flatMap((pane) => pane.map.visible(1000).map((row) => thingOnMap(this.#app.store, row, pane.space.family)))
  }

  #paneFor(range) {
    const fits = this.#strips.spaces.filter((space) => space.family === range.family)
    const shown = fits.filter((space) => this.#panes.has(space.id))
    if (shown.length === 0 && fits.length > 0) this.#show(fits[0].id)
    const id = shown.find((space) => space.id === this.#active)?.id ?? shown[0]?.id ?? fits[0]?.id
    return this.#panes.get(id)
  }

  #show(space) {
    if (this.#panes.has(space)) return
    this.#chosen = [...this.#panes.keys(), space]
    this.#arrange()
  }

  // Opens and closes panes to match the choice.
  #arrange() {
    const spaces = this.#strips.spaces
    const chosen = spaces.filter((space, i) => (this.#chosen ? this.#chosen.includes(space.id) : i < AT_FIRST))
    if (chosen.length === 0 && spaces.length > 0 && this.#chosen && this.#app.store.complete) chosen.push(spaces[0])
    const ids = chosen.map((space) => space.id)
    if (ids.join('\n') !== [...this.#panes.keys()].join('\n')) this.#rebuild(chosen)
    this.#drawChoice(spaces, ids)
    byId('maps').dataset.many = String(this.#panes.size > 1)
    byId('maps').hidden = this.#panes.size === 0
  }

  #rebuild(chosen) {
    const before = this.#panes
    this.#panes = new Map(chosen.map((space) => [space.id, before.get(space.id) ?? this.#open(space)]))
    for (const [id, pane] of before) if (!this.#panes.has(id)) pane.close()
    const sections = this.panes.map((pane) => pane.section)
    if (sections.some((section, i) => byId('maps').children[i] !== section)) byId('maps').replaceChildren(...sections)
  }

  #home(pane) {
    pane.home(homeOf(this.#strips.rootsOf(pane.space.id)))
  }

  #open(space) {
    const pane = new Pane(space, {
      theme: document.documentElement.dataset.theme, color: this.#color, slots: this.#slots,
      onSelect: (key) => this.#selected(key), onRange: (key) => this.#app.select(key), onUse: () => (this.#active = space.id),
      onView: () => this.#moved(), onOpen: () => byId('panel').focus({ preventScroll: true }),
    })
    pane.map.set(this.#strips.whole(space.id)) // includes pending changes, which are put once more later
    pane.map.highlight(this.#highlighted)
    const view = this.#wanted.get(space.id)
    if (view?.from) pane.restore(view)
    return pane
  }

  #selected(key) {
    if (key === null) {
      if (this.#strips.spaceOf(this.#app.selected)) this.#app.deselect()
    } else if (key !== this.#app.selected) this.#app.select(key)
  }

  #moved() {
    this.#app.keepLinkSoon()
    this.#app.list.refreshMap()
  }

  #drawChoice(spaces, shown) {
    const element = byId('spaces-choice')
    const text = spaces.map((space) => space.id).join('\n')
    byId('spaces-summary').textContent = spaces.length > 1 ? `Routing domains: ${shown.length} of ${spaces.length}` : 'Routing domain'
    if (element.dataset.of !== text) {
      element.dataset.of = text
      element.replaceChildren(...spaces.map((space) => h('label', { class: 'check' },
        h('input', { type: 'checkbox', value: space.id, on: { change: () => this.#chooseBoxes() } }), spaceName(space))))
    }
    for (const box of element.querySelectorAll('input')) box.checked = shown.includes(box.value)
  }

  #chooseBoxes() {
    const ids = [...byId('spaces-choice').querySelectorAll('input:checked')].map((box) => box.value)
    this.choose(ids.length > 0 ? ids : [this.#strips.spaces[0].id])
  }
}
