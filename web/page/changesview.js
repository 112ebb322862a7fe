// Shows the changes since the page was opened as a table with links.

import { atMostEvery, button, byId, h, place } from './dom.js'
import { clock, count, counted, date, poolName } from './words.js'

const SHOWN = 200

/** Shows the tab of changes. */
export class ChangesView {
  #app
  #changes
  #visible = false
  #opened = Date.now()
  #rows = new Map() // by change: its row
  #draw = atMostEvery(() => this.#drawNow(), 500)

  constructor(app, changes) {
    this.#app = app
    this.#changes = changes
    byId('changes').tHead.append(h('tr', {}, ...['Time', 'What', 'Block, pool or claim', 'Pool', 'Holder, or why'].map((text) => h('th', { scope: 'col', text }))))
  }

  /** Shows the new changes. */
  refresh() {
    byId('changes-count').textContent = this.#changes.total > 9999 ? '9999+' : String(this.#changes.total)
    if (this.#visible) this.#draw()
  }

  /** Sets whether the tab is on the screen. */
  show(visible) {
    this.#visible = visible
    if (visible) this.#drawNow()
  }

  #drawNow() {
    const last = this.#changes.last(SHOWN)
    byId('changes-note').textContent = last.length === 0
      ? `Nothing has changed since the page was opened at ${clock(this.#opened)}.`
      : `${counted(this.#changes.total, 'change')} since the page was opened at ${clock(this.#opened)}${this.#changes.total > last.length ? `, the last ${count(last.length)} of them` : ''}; the last one first.`
    byId('changes-scroll').hidden = last.length === 0
    this.#rows = new Map(last.map((change) => [change, this.#rows.get(change) ?? this.#row(change)]))
    place(byId('changes').tBodies[0], [...this.#rows.values()])
  }

  #row(change) {
    const pool = change.pool && `p:${change.pool}` !== change.key ? button(poolName(change.pool), () => this.#app.go({ type: 'key', key: `p:${change.pool}` }), { class: 'link' }) : null
    return h('tr', {}, h('td', { class: 'time', title: date(change.time), text: clock(change.time) }), h('td', { text: change.what }), h('td', { class: 'address' }, button(change.text, () => this.#app.goToChange(change), { class: 'link' })), h('td', {}, pool), h('td', { text: change.detail }))
  }
}
