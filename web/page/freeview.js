// Shows free space as rows: the next blocks that a pool would hand out, each with the way to claim
// it.

import { button, byId, copyButton, h } from './dom.js'
import { parse } from './ranges.js'
import { askUntilAnswered } from './retry.js'
import { count, poolName, sentence } from './words.js'

const BLOCKS = 50

/** Shows the tab of free space. */
export class FreeView {
  #app
  #visible = false
  #asked = ''
  #answered = '' // the question whose answer is shown
  #abort = null
  #pools = ''
  #wanted = { pool: '', length: '' }

  constructor(app) {
    this.#app = app
    byId('free-pool').addEventListener('change', () => this.#choose({ pool: byId('free-pool').value, length: '' }))
    byId('free-length').addEventListener('change', () => this.#choose({ pool: byId('free-pool').value, length: byId('free-length').value }))
    byId('free-again').addEventListener('click', () => this.#ask())
  }

  /** Returns the part of the view that a link keeps: the pool and the length. */
  get view() {
    return this.#visible ? { ...this.#wanted } : {}
  }

  /** Shows the free space of a pool. @param {{pool: string, length?: string}} wanted */
  set view({ pool, length = '' }) {
    this.#wanted = { pool, length }
    this.#drawChoices()
    if (this.#visible) this.#askOnce()
  }

  /** Sets whether the tab is on the screen. */
  show(visible) {
    this.#visible = visible
    if (!visible) return
    const { pool } = this.#app.panel
    if (pool && pool !== this.#wanted.pool) this.#wanted = { pool, length: '' }
    this.#drawChoices()
    this.#askOnce()
  }

  /** Asks again, because a claim was created or released. */
  again() {
    this.#asked = ''
    if (this.#visible) this.#askOnce()
  }

  /** Draws the tab after a change of the pools. */
  refresh() {
    if (!this.#visible) return
    this.#drawChoices()
    this.#askOnce()
  }

  #choose(wanted) {
    this.#wanted = wanted
    this.#drawChoices()
    this.#ask()
    this.#app.keepLink()
  }

  #drawChoices() {
    const pools = [...this.#app.store.pools.values()].filter((pool) => pool.known).map((pool) => pool.id).sort()
    const mayCome = this.#wanted.pool !== '' && !this.#app.store.complete
    if (!pools.includes(this.#wanted.pool) && !mayCome) this.#wanted = { pool: pools[0] ?? '', length: '' }
    const text = pools.join('\n')
    if (text !== this.#pools) {
      this.#pools = text
      byId('free-pool').replaceChildren(...pools.map((id) => h('option', { value: id, text: poolName(id) })))
    }
    byId('free-pool').value = this.#wanted.pool
    this.#drawLengths()
  }

  #drawLengths() {
    const pool = this.#app.store.pools.get(this.#wanted.pool)
    const lengths = ['']
    if (pool && pool.minLength >= 0) for (let n = pool.minLength; n <= pool.maxLength; n++) lengths.push(String(n))
    const select = byId('free-length')
    if ([...select.options].map((o) => o.value).join() !== lengths.join()) {
      select.replaceChildren(...lengths.map((n) => h('option', { value: n, text: n === '' ? 'all, the next of each' : `/${n}` })))
    }
    select.value = lengths.includes(this.#wanted.length) ? this.#wanted.length : ''
  }

  #askOnce() {
    if (!this.#app.store.complete) this.#draw([], 'Reading the pools…')
    else if (this.#asked !== `${this.#wanted.pool} ${this.#wanted.length}`) this.#ask()
  }

  async #ask() {
    const { pool, length } = this.#wanted
    this.#asked = `${pool} ${length}`
    this.#abort?.abort()
    if (!pool) {
      this.#draw([], 'You may read no pool.')
      return
    }
    const { signal } = (this.#abort = new AbortController())
    const note = (text) => (this.#asked === this.#answered ? (byId('free-note').textContent = text) : this.#draw([], text)) // removes the rows of another question
    note('Asking…')
    try {
      const report = await askUntilAnswered(() => this.#app.api.free(pool, length, BLOCKS, signal), { signal, onFailure: note })
      this.#answered = this.#asked
      this.#draw(rowsOf(report), noteOf(report))
    } catch (error) {
      if (!signal.aborted) this.#draw([], sentence(error.message))
    }
  }

  #draw(rows, note) {
    byId('free-note').textContent = note
    byId('free-scroll').hidden = rows.length === 0
    const headers = ['Block', ...(rows[0]?.blocks ? ['Blocks of this length'] : []), 'Claim it']
    byId('free').tHead.replaceChildren(h('tr', {}, ...headers.map((text) => h('th', { scope: 'col', text }))))
    byId('free').tBodies[0].replaceChildren(...rows.map((row) => this.#row(row)))
  }

  #row({ block, blocks }) {
    const pool = this.#app.store.pools.get(this.#wanted.pool)
    const range = parse(block)
    const buttons = [copyButton(block, block, this.#app.say, 'Copy CIDR'), ...this.#app.claimButtons(pool, block, range.length)]
    return h('tr', {}, h('td', { class: 'address' }, button(block, () => this.#app.go({ type: 'range', ...range, text: block }), { class: 'link' })), blocks && h('td', { text: blocks }), h('td', {}, h('div', { class: 'buttons' }, ...buttons)))
  }
}

function rowsOf(report) {
  if (report.lengths?.length > 0) return report.lengths.map((one) => ({ block: one.next, blocks: count(one.blocks) }))
  return (report.blocks ?? []).map((block) => ({ block, blocks: '' }))
}

function noteOf(report) {
  const parts = []
  if (report.free) parts.push(`${count(report.free)} addresses are free`)
  if (report.largestFreePrefix) parts.push(`the largest free block is a ${report.largestFreePrefix}`)
  if (report.available) parts.push(`${count(report.available)} blocks of this length`)
  if (report.waiting > 0) parts.push(`${count(report.waiting)} claims wait for a block that could be of this pool`)
  return `${parts.join('; ')}. Nothing is kept for you before it is claimed.`
}
