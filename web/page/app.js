// Holds the state that the parts of the page share: the selection, the targets of links and
// suggestions, and the state that the address bar keeps.

import { claimCommand, claimFor, claimManifest } from './commands.js'
import { afterBurst, button, byId, copyButton, h } from './dom.js'
import { formatLink, parseLink } from './link.js'
import { blockState } from './places.js'
import { formatRange } from './ranges.js'
import { keyOf } from './strips.js'
import { isInCluster } from './words.js'

const SMALL = matchMedia('(max-width: 640px)') // at this width, the details are a sheet over the page

/**
 * Represents the page. A selection is the key of a strip, or "r:" and a range of addresses, or
 * "m:" and the name of a Machine; empty: nothing is selected.
 */
export class App {
  selected = ''
  /** Set by main. @type {import('./store.js').Store} */ store
  /** @type {ReturnType<import('./api.js').createApi>} */ api
  /** @type {import('./maps.js').Maps} */ maps
  /** @type {import('./panel.js').Panel} */ panel
  /** @type {import('./listview.js').ListView} */ list
  /** @type {import('./freeview.js').FreeView} */ free
  /** @type {import('./tabs.js').Tabs} */ tabs
  /** @type {import('./dialogs.js').Dialogs} */ dialogs

  #restoring = false
  /** Writes the view into the address bar soon, because a map has moved. */
  keepLinkSoon = afterBurst(() => this.keepLink({ replace: true }), 400)

  /** Speaks a sentence to a screen reader. */
  say(sentence) {
    const element = byId('say')
    element.textContent = ''
    setTimeout(() => (element.textContent = sentence), 50)
  }

  /**
   * Selects an object of the register, a row of the map, or a key.
   * @param {{reveal?: boolean, focus?: boolean}} [how] reveal: show it on the map
   */
  select(what, { reveal = false, focus = false } = {}) {
    const key = typeof what === 'string' ? what : keyOf(what)
    const same = key === this.selected
    this.selected = key
    this.maps.select(key)
    if (reveal) this.maps.reveal(key)
    if (reveal && SMALL.matches) byId('map-region').scrollIntoView({ block: 'start' })
    if (!same || !this.panel.isOpen) this.panel.show(key)
    this.list.mark()
    if (focus) byId('panel').focus()
    if (same) return
    this.keepLink()
    this.say(this.panel.summary)
  }

  /** Goes to the target of a suggestion. */
  go(target) {
    switch (target.type) {
      case 'key':
        this.select(target.key, { reveal: true })
        break
      case 'range':
        this.select(`r:${formatRange(target.from, target.to, target.family)}`, { reveal: true })
        break
      case 'filter':
        this.tabs.show('list')
        this.list.view = { filter: target.filter }
        this.keepLink()
        byId('tables').scrollIntoView({ block: 'nearest' })
        break
      default:
        this.select(`m:${target.name}`)
    }
  }

  /** Follows a part of a line if it is a link. @param {{to?: string, filter?: string}} part */
  follow(part) {
    if (part.filter) this.go({ type: 'filter', filter: part.filter })
    else if (part.to.startsWith('r:')) this.select(part.to, { reveal: true })
    else this.go({ type: 'key', key: part.to })
  }

  /** Goes to the object of a change; if it is gone, to its former addresses. */
  goToChange(change) {
    const { of, key } = change
    const isThere = key.startsWith('w:') ? this.store.waiting.has(of.id) : this.maps.has(key)
    if (isThere) this.go({ type: 'key', key })
    else if (of.from != null && of.from >= 0n) this.go({ type: 'range', family: of.family ?? 4, from: of.from, to: of.to })
    else this.say('It is gone.')
  }

  /** Lists the free space of a pool. */
  showFree(pool) {
    this.free.view = { pool }
    this.tabs.show('free')
    byId('tables').scrollIntoView({ block: 'nearest' })
    byId('tab-free').focus()
  }

  /** Returns the buttons that claim exactly a block of a pool, in the namespace of the command. */
  claimButtons(pool, cidr, length) {
    if (isInCluster(pool.kind)) return [] // no IPClaim can name it
    const asked = claimFor(pool, cidr, length, this.store.hello.namespace)
    const buttons = [
      copyButton(claimCommand(asked), `the command that claims ${cidr}`, this.say, 'Copy command'),
      copyButton(claimManifest(asked), `the manifest that claims ${cidr}`, this.say, 'Copy YAML'),
    ]
    if (!this.store.hello.readOnly) buttons.push(button('Claim…', () => this.dialogs.claim(asked), { class: 'small', 'aria-label': `Claim ${cidr}` }))
    return buttons
  }

  /** Returns a mark in the color of a state. */
  stateMark(thing) {
    const mark = h('span', { class: 'swatch', 'aria-hidden': 'true' })
    mark.style.background = `var(--state-${typeof thing === 'string' ? thing : stateOf(thing)})`
    return mark
  }

  /**
   * Writes the view into the address bar.
   * @param {{replace?: boolean}} [how] replace: replaces the present step of the history
   */
  keepLink({ replace = false } = {}) {
    if (this.#restoring) return
    const color = byId('color').value
    const view = {
      views: this.maps.views, selected: this.selected, color: color === 'state' ? '' : color,
      tab: this.tabs.current === 'list' ? '' : this.tabs.current, ...this.list.view, ...this.free.view,
    }
    const fragment = `#${formatLink(view)}`
    if (fragment === location.hash || (fragment === '#' && location.hash === '')) return
    if (replace) history.replaceState(null, '', fragment)
    else history.pushState(null, '', fragment)
  }

  /** Shows the view that the address bar holds. */
  restore() {
    const { view } = parseLink(location.hash)
    this.#restoring = true
    try {
      byId('color').value = [...byId('color').options].some((o) => o.value === view.color) ? view.color : 'state'
      this.maps.colorBy(byId('color').value)
      this.maps.views = view.views
      this.list.view = view
      if (view.pool) this.free.view = { pool: view.pool, length: view.length }
      this.tabs.show(view.tab ?? 'list')
      if (view.selected) this.select(view.selected)
      else this.deselect()
    } finally {
      this.#restoring = false
    }
  }

  /** Clears the selection. */
  deselect() {
    const had = this.selected !== ''
    this.selected = ''
    this.maps.select('')
    this.panel.show('')
    this.list.mark()
    if (had) this.keepLink()
  }
}

function stateOf(thing) {
  if ('known' in thing) return thing.known ? 'carved' : 'unknown'
  if ('reason' in thing) return 'waiting'
  if ('level' in thing) return thing.state
  return blockState(thing)
}
