// Shows the list: a table with a page of rows, which can be sorted, filtered and exported.

import { csv } from './csv.js'
import { afterBurst, atMostEvery, button, byId, h, place } from './dom.js'
import { textsOf } from './filter.js'
import { age, arrange, COLUMNS, MORE_COLUMNS, SHOWN, thingsOf } from './list.js'
import { keyOf } from './strips.js'
import { count, counted } from './words.js'

const PAGE = matchMedia('(max-width: 640px)').matches ? 25 : 100

/** Shows the list. */
export class ListView {
  #app
  #rows = []
  #page = 0
  #sort = 'address'
  #visible = true
  #stale = false
  #drawn = new Map() // key of a thing: its row
  #marked = '' // the filter whose rows are marked on the map
  #redo = atMostEvery(() => this.#compute(), 1000)

  constructor(app) {
    this.#app = app
    byId('show').append(...Object.entries(SHOWN).map(([value, text]) => h('option', { value, text })))
    byId('show').addEventListener('change', () => this.#changed())
    byId('filter').addEventListener('input', afterBurst(() => this.#changed(), 150))
    byId('export').addEventListener('click', () => this.#export())
    byId('list').tHead.append(h('tr', {}, ...COLUMNS.map((column) => this.#head(column))))
    this.#drawHead()
  }

  /** Returns the part of the view that a link keeps. */
  get view() {
    const show = byId('show').value
    return { show: show === 'all' ? '' : show, filter: byId('filter').value.trim(), sort: this.#sort === 'address' ? '' : this.#sort }
  }

  set view({ show = 'all', filter = '', sort = 'address' }) {
    byId('show').value = show in SHOWN ? show : 'all'
    byId('filter').value = filter
    this.#sort = COLUMNS.some((column) => column.id === sort.replace(/^-/, '')) ? sort : 'address'
    this.#page = 0
    this.#drawHead()
    this.#compute()
  }

  /** Draws the list after a change of the register, or of the view of the map. */
  refresh() {
    this.#stale = true
    if (this.#visible) this.#redo()
  }

  /** Draws pending changes at once. */
  settle() {
    this.#redo.now()
  }

  /** Draws the list after a change of the view of the map, if the list shows it. */
  refreshMap() {
    if (byId('show').value === 'map') this.refresh()
  }

  /** Sets whether the list is on the screen. */
  show(visible) {
    this.#visible = visible
    if (visible && this.#stale) this.#compute()
  }

  /** Marks the row of the selection. */
  mark() {
    for (const row of byId('list').tBodies[0].rows) {
      if (row.dataset.key === this.#app.selected) row.setAttribute('aria-current', 'true')
      else row.removeAttribute('aria-current')
    }
  }

  #changed() {
    this.#page = 0
    this.#compute()
    this.#app.say(`${counted(this.#rows.length, 'row')}.`)
    this.#app.keepLink()
  }

  #head(column) {
    return h('th', { scope: 'col', 'data-column': column.id }, button(column.label, () => {
      this.#sort = this.#sort === column.id ? `-${column.id}` : column.id
      this.#drawHead()
      this.#changed()
    }))
  }

  #drawHead() {
    for (const cell of byId('list').tHead.rows[0].cells) {
      if (this.#sort.replace(/^-/, '') === cell.dataset.column) cell.setAttribute('aria-sort', this.#sort.startsWith('-') ? 'descending' : 'ascending')
      else cell.removeAttribute('aria-sort')
    }
  }

  #compute() {
    this.#stale = false
    const show = byId('show').value
    const things = show === 'map' ? this.#app.maps.visibleThings() : thingsOf(this.#app.store, show)
    const filter = byId('filter').value.trim()
    this.#rows = arrange(things, { filter, sort: this.#sort })
    if (filter !== this.#marked || filter !== '') this.#app.maps.highlight(filter === '' ? [] : this.#rows.map(keyOf))
    this.#marked = filter
    this.#page = Math.min(this.#page, Math.max(0, Math.ceil(this.#rows.length / PAGE) - 1))
    this.#draw()
  }

  #draw() {
    const now = Date.now()
    const first = this.#page * PAGE
    const shown = this.#rows.slice(first, first + PAGE)
    const focused = byId('list').tBodies[0].contains(document.activeElement) ? document.activeElement.closest('tr')?.dataset.key : null
    const rows = new Set()
    for (const thing of shown) rows.add(this.#row(thing, now, rows))
    place(byId('list').tBodies[0], [...rows]) // keeps a pressed row while others change, so that it is still clicked
    this.#drawn = new Map([...rows].map((row) => [row.dataset.key, row]))
    if (focused && document.activeElement?.closest('tr')?.dataset.key !== focused) this.#focus(focused)
    this.mark()
    const total = this.#rows.length
    byId('list-count').textContent = total === 0 ? this.#nothing() : total <= PAGE ? `${counted(total, 'row')}.` : `Rows ${count(first + 1)} to ${count(first + shown.length)} of ${count(total)}.`
    this.#drawPages(Math.ceil(total / PAGE))
  }

  #nothing() {
    if (byId('filter').value.trim() !== '') return 'No row fits the filter.'
    return this.#app.store.complete ? 'There is nothing here that you may read.' : 'Nothing has been read yet.'
  }

  #focus(key) {
    const row = [...byId('list').tBodies[0].rows].find((one) => one.dataset.key === key)
    row?.querySelector('button')?.focus({ preventScroll: true })
  }

  // Returns the row of a thing: the existing one if it has the same texts except for its age and
  // is not taken, else a new one.
  #row(thing, now, taken) {
    const key = keyOf(thing)
    const texts = textsOf(thing)
    const says = JSON.stringify([texts.cidr, texts.claim, ...COLUMNS.map((column) => String(column.value(thing)))])
    const there = this.#drawn.get(key)
    if (there?.says === says && !taken.has(there)) {
      there.thing = thing
      there.querySelector('.time').textContent = age(thing, now)
      return there
    }
    const cells = COLUMNS.map((column) => {
      if (column.id === 'address') {
        const label = texts.cidr || texts.claim || 'no address yet'
        return h('td', { class: 'address' }, button(label, () => this.#app.select(row.thing, { reveal: true }), { class: 'link' }))
      }
      if (column.id === 'state') return h('td', {}, h('span', { class: 'state' }, this.#app.stateMark(thing), texts.state))
      if (column.id === 'since') return h('td', { class: 'time', title: column.value(thing), text: age(thing, now) })
      return h('td', { text: column.value(thing) })
    })
    const row = h('tr', { 'data-key': key }, ...cells)
    return Object.assign(row, { thing, says })
  }

  #drawPages(pages) {
    const to = (page) => () => {
      this.#page = page
      this.#draw()
      byId('list-scroll').scrollIntoView({ block: 'nearest' })
      this.#app.say(`Page ${page + 1} of ${pages}.`)
    }
    const at = this.#page
    const move = (text, label, page, off) => button(text, to(page), { 'aria-label': label, disabled: off })
    const buttons = pages <= 1 ? [] : [
      move('«', 'First page', 0, at === 0), move('‹', 'Page before', at - 1, at === 0),
      h('span', { class: 'quiet', text: `Page ${count(at + 1)} of ${count(pages)}` }),
      move('›', 'Next page', at + 1, at === pages - 1), move('»', 'Last page', pages - 1, at === pages - 1),
    ]
    const label = document.activeElement?.closest('#list-pages') ? document.activeElement.getAttribute('aria-label') : null
    byId('list-pages').replaceChildren(...buttons)
    if (label) (buttons.find((one) => one.getAttribute?.('aria-label') === label && !one.disabled) ?? buttons.find((one) => one.tagName === 'BUTTON' && !one.disabled))?.focus()
  }

  #export() {
    const parts = [...csv([...COLUMNS, ...MORE_COLUMNS], this.#rows)]
    const url = URL.createObjectURL(new Blob(parts, { type: 'text/csv' }))
    const link = h('a', { href: url, download: `addresses-${new Date().toISOString().slice(0, 10)}.csv` })
    link.click()
    setTimeout(() => URL.revokeObjectURL(url), 10_000)
    this.#app.say(`Exported ${counted(this.#rows.length, 'row')}.`)
  }
}
