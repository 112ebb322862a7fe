// The token: it comes in the link that the command has printed, and is kept for the next time
// that the page is loaded. It is taken out of the address bar.

import { parseLink } from './link.js'

const KEY = 'cadastre-token'

/**
 * Takes the token from the fragment, else from where it was kept.
 * @returns {string} empty where there is none
 */
export function takeToken() {
  const { token } = parseLink(location.hash)
  if (token) {
    localStorage.setItem(KEY, token)
    const rest = location.hash.replace(/^#/, '').split('&').filter((part) => !part.startsWith('token=')).join('&')
    history.replaceState(history.state, '', `${location.pathname}${location.search}${rest ? `#${rest}` : ''}`)
  }
  return token || localStorage.getItem(KEY) || ''
}

/** Forgets the token: it is wrong. */
export function forgetToken() {
  localStorage.removeItem(KEY)
}
