// Shows the search field: a combobox with a list of suggestions, as the ARIA practices describe
// it.

import { afterBurst, byId, h } from './dom.js'
import { suggest } from './find.js'
import { counted } from './words.js'

/** Handles the field and its suggestions. */
export class FindBox {
  #store
  #go
  #say
  #input = byId('find')
  #list = byId('suggestions')
  #found = []
  #at = -1
  #typed = false // the text is newer than the last look

  constructor(store, go, say) {
    this.#store = store
    this.#go = go
    this.#say = say
    const look = afterBurst(() => this.#typed && this.#look(), 120)
    this.#input.addEventListener('input', () => {
      this.#typed = true
      look()
    })
    this.#input.addEventListener('focus', () => this.#input.value.trim() !== '' && this.#look())
    this.#input.addEventListener('blur', () => this.#close())
    this.#input.addEventListener('keydown', (event) => this.#key(event))
    byId('find-form').addEventListener('submit', (event) => {
      event.preventDefault()
      this.#submit()
    })
  }

  /** Puts the cursor into the field. */
  focus() {
    this.#input.focus()
    this.#input.select()
  }

  #look() {
    this.#found = suggest(this.#store, this.#input.value)
    this.#at = -1
    const empty = this.#input.value.trim() === ''
    this.#list.replaceChildren(...this.#found.map((one, i) => this.#option(one, i)))
    if (this.#found.length === 0 && !empty) {
      this.#list.append(h('li', { class: 'none', role: 'option', 'aria-disabled': 'true', 'aria-selected': 'false', text: 'Nothing that you may read has this name or address.' }))
    }
    this.#open(!empty)
    if (!empty) this.#say(this.#found.length === 0 ? 'Nothing found.' : `${counted(this.#found.length, 'suggestion')}.`)
  }

  #option(one, i) {
    return h('li', { id: `suggestion-${i}`, role: 'option', 'aria-selected': 'false', on: {
      pointerdown: (event) => event.preventDefault(), // the field keeps the focus
      click: () => this.#take(i),
    } }, h('span', { class: 'kind', text: one.kind }), h('span', { class: 'what', text: one.text }), h('span', { class: 'detail', text: one.detail, title: one.detail }))
  }

  #key(event) {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault()
      if (this.#list.hidden) this.#look()
      this.#move(event.key === 'ArrowDown' ? 1 : -1)
    } else if (event.key === 'Escape') {
      if (this.#list.hidden) this.#input.value = ''
      this.#close()
    }
  }

  #move(by) {
    const count = this.#found.length
    if (count === 0) return
    this.#at = (this.#at + by + count + (this.#at < 0 && by < 0 ? 1 : 0)) % count
    this.#found.forEach((_, i) => this.#list.children[i].setAttribute('aria-selected', String(i === this.#at)))
    this.#list.children[this.#at].scrollIntoView({ block: 'nearest' })
    this.#input.setAttribute('aria-activedescendant', `suggestion-${this.#at}`)
  }

  #submit() {
    this.#look() // the last text may not have been looked up yet
    if (this.#found.length > 0) this.#take(0)
  }

  #take(i) {
    const one = this.#found[i]
    this.#close()
    if (one) this.#go(one.target)
  }

  #open(open) {
    this.#list.hidden = !open
    this.#input.setAttribute('aria-expanded', String(open))
    if (!open) this.#input.removeAttribute('aria-activedescendant')
  }

  #close() {
    this.#typed = false
    this.#open(false)
  }
}
