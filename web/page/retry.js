// Repeats a question until it is answered.

import { Refusal } from './api.js'
import { sentence } from './words.js'

const FIRST_WAIT = 1_000
const LONGEST_WAIT = 30_000

/**
 * Asks until there is an answer. It shows a failure that can pass, and asks the question again,
 * each time after twice as long. It throws any other failure, and throws once the signal is
 * aborted.
 * @template T
 * @param {() => Promise<T>} ask
 * @param {object} options
 * @param {AbortSignal} options.signal
 * @param {(text: string) => void} options.onFailure shows the failure, and the time until the next try
 * @param {(fn: () => void, milliseconds: number) => unknown} [options.wait] tests replace it
 * @returns {Promise<T>}
 */
export async function askUntilAnswered(ask, { signal, onFailure, wait = (fn, ms) => setTimeout(fn, ms) }) {
  for (let pause = FIRST_WAIT; ; pause = Math.min(LONGEST_WAIT, 2 * pause)) {
    try {
      const answer = await ask()
      signal.throwIfAborted()
      return answer
    } catch (error) {
      signal.throwIfAborted()
      if (!mayPass(error)) throw error
      onFailure(`${sentence(error.message)} Asking again in ${pause / 1000} s.`)
    }
    await new Promise((resolve) => {
      wait(resolve, pause)
      signal.addEventListener('abort', resolve, { once: true })
    })
    signal.throwIfAborted()
  }
}

// Reports whether the same question can be answered later: 507 means that a pool is full.
function mayPass(error) {
  return error instanceof Refusal && (error.status === 0 || error.status === 429 || (error.status >= 500 && error.status !== 507))
}
