// Handles the token: it comes in the link that the command has printed, is removed from the
// address bar, and is kept for the next time that the page is loaded.

import { parseLink } from './link.js'

const KEY = 'cadastre-token'

/** Takes the token from the fragment, else from the storage. @returns {string} empty if there is none */
export function takeToken() {
  const { token } = parseLink(location.hash)
  if (token) {
    localStorage.setItem(KEY, token)
    const rest = location.hash.replace(/^#/, '').split('&').filter((part) => !part.startsWith('token=')).join('&')
    history.replaceState(history.state, '', `${location.pathname}${location.search}${rest ? `#${rest}` : ''}`)
  }
  return token || localStorage.getItem(KEY) || ''
}

/** Forgets the token, because it is wrong. */
export function forgetToken() {
  localStorage.removeItem(KEY)
}
