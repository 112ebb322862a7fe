// Shows the panel beside the map: the description of the selection, and the answers of `who` and
// `explain`.

import { atMostEvery, button, byId, copyButton, h, partsOf } from './dom.js'
import { blank, describe } from './facts.js'
import { rangeOfKey } from './places.js'
import { blocksSection, describeRange } from './rangefacts.js'
import { explainSections, machineSection, usedBy, whoSections } from './reports.js'
import { askUntilAnswered } from './retry.js'
import { count, counted, poolName, sentence, STATES } from './words.js'

/** Shows the panel. */
export class Panel {
  isOpen = false
  #app
  #key = ''
  #abort = null
  #extra = { lines: [], sections: [], note: '' } // the answers to questions
  /** A sentence about the selection. */
  summary = ''
  #drawn = ''
  /** Draws the panel soon, after a change of the register. */
  refresh = atMostEvery(() => this.#draw(), 1000)

  constructor(app) {
    this.#app = app
    byId('panel-close').addEventListener('click', () => {
      app.deselect()
      byId('main').querySelector('canvas')?.focus({ preventScroll: true })
    })
  }

  /** Returns the pool of the selection; empty if there is none. */
  get pool() {
    return this.#key === '' ? '' : this.#description()?.pool ?? ''
  }

  /** Shows the object with a key; nothing if the key is empty. */
  show(key) {
    this.#key = key
    this.#abort?.abort()
    this.#abort = new AbortController()
    this.#extra = { lines: [], sections: [], note: '' }
    this.#drawn = ''
    this.isOpen = key !== ''
    byId('panel').dataset.open = String(this.isOpen)
    byId('panel').scrollTop = 0
    this.#draw()
    if (key) this.#ask(key, this.#abort.signal)
  }

  #description() {
    const key = this.#key
    const range = rangeOfKey(key)
    if (range) return describeRange(this.#app.store, range)
    if (key.startsWith('m:')) return { ...blank, kind: 'Machine', title: key.slice(2) }
    return describe(this.#app.store, key, Date.now())
  }

  #draw() {
    if (this.#key === '') {
      this.#drawNothing()
      return
    }
    const said = this.#description()
    const text = JSON.stringify([said, this.#extra, this.#app.store.complete], (_, value) => (typeof value === 'bigint' ? String(value) : value))
    if (text === this.#drawn) return
    this.#drawn = text
    if (!said) {
      this.#frame('', this.#app.store.complete ? 'It is gone' : 'Being read', [h('p', { class: 'quiet', text: this.#app.store.complete ? 'What was selected is not there any more, or you may not read it.' : 'It has not been read yet.' })])
      return
    }
    this.summary = [said.kind, said.title, said.stateText].filter((one) => one).join(', ')
    this.#frame(said.kind, said.title, this.#content(said))
  }

  #frame(kind, title, content) {
    const focused = byId('panel-body').contains(document.activeElement) ? focusables().indexOf(document.activeElement) : -1
    byId('panel-kind').textContent = kind
    byId('panel-title').textContent = title
    byId('panel-close').hidden = this.#key === ''
    byId('panel-body').replaceChildren(...content.filter(Boolean))
    if (focused >= 0) focusables()[focused]?.focus({ preventScroll: true })
  }

  #drawNothing() {
    const { store } = this.#app
    const blocks = store.blocksOfClaims
    const text = `${store.pools.size} ${blocks} ${store.waiting.size} ${store.complete}`
    if (text === this.#drawn) return
    this.#drawn = text
    this.summary = ''
    this.#frame('', 'Details', [
      h('p', { class: 'quiet', text: 'Select a strip of the map or a row of the list to see who holds it, where it lies, and why a claim waits.' }),
      h('dl', { class: 'facts' }, ...[['Pools', store.pools.size], ['Blocks of claims', blocks], ['Claims that wait', store.waiting.size]].flatMap(([label, n]) => [h('dt', { text: label }), h('dd', { text: count(n) })])),
    ])
  }

  #content(said) {
    const { say } = this.#app
    const facts = [...said.facts, ...this.#extra.lines]
    return [
      h('div', { class: 'buttons' }, said.stateText && h('span', { class: 'badge' }, said.state && this.#app.stateMark(said.state), said.stateText), said.copy && copyButton(said.copy, said.copy, say)),
      ...(said.explain && this.#extra.sections.length > 0 ? [] : said.notes).map((note) => h('p', { class: 'note', text: note })),
      said.usage && this.#usage(said.usage),
      facts.length > 0 && h('dl', { class: 'facts' }, ...facts.flatMap(([label, line, form]) => [h('dt', { text: label }), h('dd', {}, ...this.#line(line, form))])),
      this.#extra.note && h('p', { class: 'quiet', text: this.#extra.note }),
      ...this.#extra.sections.map((section) => this.#section(section)),
      this.#beside(),
      ...(said.claimable ?? []).map((one) => this.#claimable(one)),
      this.#actions(said),
      said.commands.length > 0 && h('div', { class: 'section' }, h('h3', { text: 'The same in a terminal' }), ...said.commands.map((command) => h('div', { class: 'command' }, h('code', { text: command }), copyButton(command, 'the command', say)))),
    ]
  }

  #line(line, form) {
    const follow = (part) => this.#app.follow(part)
    if (form !== 'list' || line.length === 1) return partsOf(line, follow)
    return [h('ul', {}, ...line.map((part) => h('li', {}, ...partsOf([part], follow))))]
  }

  #usage({ text, parts }) {
    const bar = h('div', { class: 'usage', 'aria-hidden': 'true' }, ...parts.map(([state, addresses]) => {
      const part = h('span')
      part.style.flexGrow = String(Math.max(1, Number((addresses * 10000n) / parts.reduce((sum, [, n]) => sum + n, 0n))))
      part.style.background = `var(--state-${state})`
      return part
    }))
    const list = h('ul', { class: 'parts' }, ...parts.map(([state, addresses, share]) => h('li', { class: 'state' }, this.#app.stateMark(state), `${STATES[state]} ${share}`, h('span', { class: 'quiet', text: count(addresses) }))))
    return h('div', {}, h('p', { text }), bar, list)
  }

  #section({ title, lines = [], headers, rows = [] }) {
    const follow = (part) => this.#app.follow(part)
    const table = headers && h('table', {}, h('thead', {}, h('tr', {}, ...headers.map((text) => h('th', { scope: 'col', text })))), h('tbody', {}, ...rows.map((row) => h('tr', {}, ...row.map((line) => h('td', {}, ...partsOf(line, follow)))))))
    const list = lines.length > 1 ? h('ul', { class: 'bullets' }, ...lines.map((line) => h('li', {}, ...partsOf(line, follow)))) : lines[0] && h('p', {}, ...partsOf(lines[0], follow))
    return h('div', { class: 'section' }, title && h('h3', { text: title }), list, table)
  }

  // Returns a section of the strips below the selection on the map, or null.
  #beside() {
    const around = this.#app.maps.around(this.#key)
    if (!around || around.below.length === 0) return null
    const shown = around.below.slice(0, 8)
    const links = shown.map((key) => h('li', {}, button(this.#nameOf(key), () => this.#app.go({ type: 'key', key }), { class: 'link' })))
    const more = around.below.length - shown.length
    if (more > 0) links.push(h('li', { class: 'quiet', text: `${counted(more, 'more strip')}: choose “What the map shows” in the list` }))
    return h('div', { class: 'section' }, h('h3', { text: 'Below it, in the order of addresses' }), h('ul', { class: 'bullets' }, ...links))
  }

  #nameOf(key) {
    const said = describe(this.#app.store, key, 0)
    return said ? [said.title, said.stateText].filter((text) => text).join(', ') : key
  }

  // Returns a section with the ways to claim exactly these addresses.
  #claimable({ pool, cidr, length }) {
    const buttons = this.#app.claimButtons(pool, cidr, length)
    return h('div', { class: 'section' }, h('h3', { text: `Claim it from pool ${poolName(pool.id)}` }), h('div', { class: 'buttons' }, ...buttons))
  }

  #actions(said) {
    const { store } = this.#app
    const buttons = []
    if (said.pool && store.pools.get(said.pool)?.known) buttons.push(button(said.pool === this.#key.slice(2) ? 'List free space' : 'List free space of the pool', () => this.#app.showFree(said.pool)))
    if (store.hello && !store.hello.readOnly && said.release) buttons.push(button('Release…', () => this.#app.dialogs.release(said.release), { class: 'danger' }))
    return buttons.length > 0 && h('div', { class: 'buttons' }, ...buttons)
  }

  async #ask(key, signal) {
    const { api, store } = this.#app
    const said = this.#description()
    const onFailure = (text) => {
      this.#extra.note = text
      this.#draw()
    }
    const answer = (ask) => askUntilAnswered(ask, { signal, onFailure })
    try {
      if (key.startsWith('m:')) this.#extra.sections = [machineSection(store, await answer(() => api.machine(key.slice(2), signal)), key.slice(2))]
      else if (said?.explain) this.#extra.sections = explainSections(await answer(() => api.explain(said.explain, signal)), Date.now())
      else if (said?.range?.length < 0) this.#extra.sections = [blocksSection(store, said.range)]
      else if (said?.range) this.#extra.sections = whoSections(store, await answer(() => api.who(said.title, signal)), Date.now())
      else if (said?.who) this.#takeWho(await answer(() => api.who(said.who, signal)), key)
      else return
      this.#extra.note = ''
    } catch (error) {
      if (signal.aborted) return
      this.#extra.note = sentence(error.message)
    }
    if (!signal.aborted) this.#draw()
  }

  #takeWho(report, key) {
    const block = this.#app.store.blocks.get(key.slice(2))
    const users = block && usedBy(report, block)
    if (users) this.#extra.lines = [['Used by', users]]
    const others = (report.places ?? []).filter((place) => block && (place.routingDomain ?? '') !== block.domain)
    if (others.length > 0) this.#extra.sections = whoSections(this.#app.store, { places: others }, Date.now()).map((section) => ({ ...section, title: `The same addresses, ${section.title.replace(/^In/, 'in')}` }))
  }
}

function focusables() {
  return [...byId('panel-body').querySelectorAll('button, a, input, select')]
}
