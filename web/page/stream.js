// Reads the stream of messages from the command, and watches whether the page is in step with it.

import { press } from './press.js'

const SILENCE = 12_000 // a beat comes every 5 s: after this time the page may be behind
const DEAD = 30_000 // after this time the connection is given up
const FIRST_WAIT = 500
const LONGEST_WAIT = 15_000
const LONGEST_LINE = 64 * 1024 * 1024
const WORK = 12 // milliseconds of work before the browser can draw again

/**
 * Holds the state of the stream.
 * @typedef {object} State
 * @property {'connecting'|'reading'|'live'|'behind'|'lost'|'refused'} phase reading: the first
 *   state is being sent; lost: it is tried again at retryAt; refused: it is not tried again
 * @property {string} text the reason in words; empty if there is none
 * @property {number} retryAt milliseconds; 0: not known
 * @property {number} heard the time of the last message; 0: none yet
 */

/**
 * Holds the functions that the stream needs; tests replace it.
 * @typedef {object} Ground
 * @property {(url: string, options: object) => Promise<Response>} fetch
 * @property {() => number} now
 * @property {(fn: () => void, milliseconds: number) => unknown} setTimeout
 * @property {(timer: unknown) => void} clearTimeout
 * @property {() => number} random
 * @property {() => Promise<void>|null} released resolved when no pointer is pressed; null: none is pressed
 */

/** @returns {Ground} the functions of the browser */
function browser() {
  return {
    fetch: (url, options) => fetch(url, options),
    now: () => Date.now(),
    setTimeout: (fn, ms) => setTimeout(fn, ms),
    clearTimeout: (timer) => clearTimeout(timer),
    random: () => Math.random(),
    released: () => press.released,
  }
}

/** Reads the stream, and begins again when it ends. */
export class Stream {
  #token
  #take
  #tell
  #ground
  /** @type {State} */
  state = { phase: 'connecting', text: '', retryAt: 0, heard: 0 }
  #abort = null
  #watch = null
  #retry = null
  #failures = 0
  #ready = false
  #closed = false

  constructor({ token, onMessage, onState, ground = browser() }) {
    this.#token = token
    this.#take = onMessage
    this.#tell = onState
    this.#ground = ground
  }

  /** Connects; at once, even if it waits to try again. */
  connect() {
    if (this.#closed || this.#abort) return
    this.#ground.clearTimeout(this.#retry)
    this.#retry = null
    this.#run().catch((error) => this.#lost(`the page could not read a message: ${error.message}`))
  }

  /** Ends the stream for good. */
  close() {
    this.#closed = true
    this.#ground.clearTimeout(this.#retry)
    this.#hangUp()
  }

  async #run() {
    this.#ready = false
    const abort = new AbortController()
    this.#abort = abort
    this.#become('connecting', this.#failures > 0 ? this.state.text : '')
    this.#listen()
    let response
    try {
      response = await this.#ground.fetch('/api/stream', {
        headers: { Authorization: `Bearer ${this.#token}` }, signal: abort.signal, cache: 'no-store',
      })
    } catch {
      if (this.#abort === abort) this.#lost('the command does not answer: it may have ended')
      return
    }
    if (this.#abort !== abort) return
    if (response.status === 401 || response.status === 403 || response.status === 421) {
      this.#hangUp()
      this.#become('refused', await refusal(response))
      return
    }
    if (!response.ok) {
      this.#lost(`the command answered with status ${response.status}`)
      return
    }
    await this.#read(response.body.getReader(), abort)
  }

  async #read(reader, abort) {
    const decoder = new TextDecoder()
    let rest = ''
    let since = this.#ground.now()
    for (;;) {
      let part
      try {
        part = await reader.read()
      } catch {
        part = { done: true }
      }
      if (this.#abort !== abort) return
      if (part.done) {
        this.#lost('the connection ended')
        return
      }
      rest += decoder.decode(part.value, { stream: true })
      if (rest.length > LONGEST_LINE) throw new Error('it is too long')
      let end
      while ((end = rest.indexOf('\n')) >= 0) {
        const line = rest.slice(0, end)
        rest = rest.slice(end + 1)
        const released = this.#ground.released()
        if (released) {
          await released
          if (this.#abort !== abort) return
        }
        if (line !== '') this.#message(JSON.parse(line))
        if (this.#ground.now() - since > WORK) {
          await new Promise((resolve) => this.#ground.setTimeout(resolve, 0))
          since = this.#ground.now()
          if (this.#abort !== abort) return
        }
      }
    }
  }

  #message(message) {
    this.#listen()
    this.#take(message)
    if (message.type === 'ready') {
      this.#ready = true
      this.#failures = 0
      this.#become('live', '')
    } else if (message.type === 'beat' && this.#ready) {
      this.#become(message.behind ? 'behind' : 'live', message.behind ?? '')
    } else if (!this.#ready) {
      this.#become('reading', '')
    } else {
      this.state.heard = this.#ground.now()
      if (this.state.silent) this.#become('live', '')
    }
  }

  // Starts to wait for the next message.
  #listen() {
    this.#ground.clearTimeout(this.#watch)
    this.#watch = this.#ground.setTimeout(() => {
      this.#become(this.#ready ? 'behind' : this.state.phase, `nothing was heard for ${SILENCE / 1000} seconds`, { silent: true })
      this.#watch = this.#ground.setTimeout(() => this.#lost(`nothing was heard for ${DEAD / 1000} seconds`), DEAD - SILENCE)
    }, SILENCE)
  }

  #hangUp() {
    this.#ground.clearTimeout(this.#watch)
    const abort = this.#abort
    this.#abort = null
    abort?.abort()
  }

  #lost(text) {
    if (this.#closed) return
    this.#hangUp()
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.#failures)
    this.#failures++
    const spread = wait * (0.75 + this.#ground.random() / 2)
    this.#retry = this.#ground.setTimeout(() => this.connect(), spread)
    this.#become('lost', text, { retryAt: this.#ground.now() + spread })
  }

  #become(phase, text, { retryAt = 0, silent = false } = {}) {
    const before = this.state
    const heard = silent || phase === 'lost' || phase === 'connecting' || phase === 'refused' ? before.heard : this.#ground.now()
    this.state = { phase, text, retryAt, heard, silent }
    if (before.phase !== phase || before.text !== text || before.retryAt !== retryAt) this.#tell(this.state)
  }
}

// Returns the reason of a refusal.
async function refusal(response) {
  if (response.status === 401) return 'the token is missing or wrong'
  try {
    const text = await response.text()
    return text.startsWith('{') ? JSON.parse(text).message : text.trim()
  } catch {
    return `the command answered with status ${response.status}`
  }
}
