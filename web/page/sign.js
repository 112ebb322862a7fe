// Shows whether the page is in step with the cluster: a permanent sign, and a banner in words
// while it is not.

import { byId } from './dom.js'
import { press } from './press.js'
import { clock, counted } from './words.js'

/** Shows the state of the stream. */
export class Sign {
  #state = { phase: 'connecting', text: '', retryAt: 0, heard: 0 }
  #store
  #say
  #spoken = ''

  /** @param {(sentence: string) => void} say speaks to a screen reader */
  constructor(store, say, retry) {
    this.#store = store
    this.#say = say
    byId('retry').addEventListener('click', retry)
    setInterval(() => this.#show(), 1000)
  }

  set(state) {
    this.#state = state
    this.#show()
    const spoken = { live: 'In step with the cluster.', behind: `Behind: ${state.text}.`, lost: `Connection lost: ${state.text}.` }[state.phase]
    if (spoken && spoken !== this.#spoken) this.#say(spoken)
    if (spoken) this.#spoken = spoken
  }

  /** Shows the progress of reading the first state. */
  refresh() {
    if (this.#state.phase === 'reading' || this.#state.phase === 'connecting') this.#show()
  }

  // Waits until no pointer is pressed, because a banner that appears or disappears moves the page.
  #show() {
    press.after(() => this.#draw())
  }

  #draw() {
    const { phase } = this.#state
    const [sign, banner] = wordsOf(this.#state, this.#store, Date.now())
    put(byId('sign'), phase)
    putText(byId('sign-text'), sign)
    const element = byId('banner')
    put(element, phase)
    element.hidden = banner === ''
    putText(byId('banner-text'), banner)
    byId('retry').hidden = phase !== 'lost'
  }
}

/**
 * Returns the texts of the sign and the banner.
 * @param {{blocks: Map, complete: boolean}} store
 * @returns {[string, string]} the text of the banner is empty if there is none
 */
export function wordsOf(state, store, now) {
  const asOf = state.heard ? ` The page is as of ${clock(state.heard)}.` : ''
  switch (state.phase) {
    case 'live':
      return ['Live', '']
    case 'behind':
      return ['Behind', `The page may be behind: ${state.text}.`]
    case 'lost': {
      const wait = Math.max(0, Math.ceil((state.retryAt - now) / 1000))
      return ['Not connected', `Not connected: ${state.text}.${asOf} Trying again ${wait > 0 ? `in ${wait} s` : 'now'}.`]
    }
    case 'refused':
      return ['Refused', `The command refuses to answer: ${state.text}.`]
    case 'reading':
      return [`Reading, ${counted(store.blocks.size, 'block')} so far`, store.complete ? `Connected again, reading what has changed.${asOf}` : state.text ? `Reading: ${state.text}.` : '']
    default:
      return ['Connecting', store.complete ? `Connecting again${state.text ? `: ${state.text}` : ''}.${asOf}` : state.text ? `Connecting: ${state.text}.` : '']
  }
}

function put(element, phase) {
  if (element.dataset.phase !== phase) element.dataset.phase = phase
}

function putText(element, text) {
  if (element.textContent !== text) element.textContent = text
}
