// Sends questions and orders to the command.

import { press } from './press.js'

/** Represents a refused or failed request. The message is in words. */
export class Refusal extends Error {
  /**
   * @param {number} status of HTTP; 0: there was no answer
   * @param {number} [exitCode] of the command for the same failure
   */
  constructor(message, status, exitCode = 0) {
    super(message)
    this.status = status
    this.exitCode = exitCode
  }
}

/**
 * Makes the client. No answer comes while a pointer is pressed.
 * @param {object} [ground] tests replace it
 * @param {(url: string, options: object) => Promise<Response>} [ground.send]
 * @param {() => Promise<void>|null} [ground.released]
 */
export function createApi(token, { send = (url, options) => fetch(url, options), released = () => press.released } = {}) {
  const headers = { Authorization: `Bearer ${token}` }

  async function ask(method, path, params, { body, signal } = {}) {
    const query = new URLSearchParams(params).toString()
    const options = { method, headers: { ...headers }, signal, cache: 'no-store' }
    if (body !== undefined) {
      options.headers['Content-Type'] = 'application/json'
      options.body = JSON.stringify(body)
    }
    let response
    let text
    try {
      response = await send(query ? `${path}?${query}` : path, options)
      text = await response.text()
    } catch (error) {
      if (error.name === 'AbortError') throw error
      throw new Refusal('the command does not answer: it may have ended', 0)
    } finally {
      await released()
    }
    return read(response, text)
  }

  return {
    /** Asks what `kubectl ipam who` reports about an address or a CIDR. */
    who: (address, signal) => ask('GET', '/api/who', { address }, { signal }),
    /** Asks what `kubectl ipam explain` reports about a claim. */
    explain: (claim, signal) =>
      ask('GET', '/api/explain', { kind: claim.kind.toLowerCase(), namespace: claim.namespace, name: claim.name }, { signal }),
    /** Asks what `kubectl ipam free` reports about a pool; length "": all lengths. */
    free: (pool, length, count, signal) =>
      ask('GET', '/api/free', length === '' ? { pool, count } : { pool, length, count }, { signal }),
    /** Returns the IPAddressClaims that a Machine owns. */
    machine: (name, signal) => ask('GET', '/api/machine', { name }, { signal }),
    /** Creates an IPClaim. */
    claim: (asked) => ask('POST', '/api/claims', {}, { body: asked }),
    /** Releases the IPClaim with this UID. */
    release: ({ namespace, name, uid }) => ask('DELETE', '/api/claims', { namespace, name, uid }),
  }
}

function read(response, text) {
  let answer
  try {
    answer = text === '' ? {} : JSON.parse(text)
  } catch {
    answer = { message: text.trim() }
  }
  if (response.ok) return answer
  throw new Refusal(answer.message || `the command answered with status ${response.status}`, response.status, answer.exitCode)
}
