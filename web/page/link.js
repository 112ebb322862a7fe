// Reads and writes the fragment of the address bar: the part of the view that a link keeps.

const TEXTS = { selected: 'select', color: 'color', tab: 'tab', show: 'show', filter: 'filter', sort: 'sort', pool: 'pool', length: 'length' }
const LONGEST = 4000

/**
 * Holds the view that a link keeps. Every property can be missing.
 * @typedef {object} View
 * @property {{space: string, from: string, to: string}[]} [views] the maps that are shown, and
 *   the first and the last address of each; empty addresses: all
 * @property {string} [selected] the key of the selection
 * @property {string} [color] the property that colors the map
 * @property {string} [tab]
 * @property {string} [show] the kind of rows in the list
 * @property {string} [filter]
 * @property {string} [sort] a column, with "-" before it for the other direction
 * @property {string} [pool] whose free space is listed
 * @property {string} [length] of the free blocks that are listed
 */

/**
 * Reads a fragment. It ignores parts that it cannot read.
 * @param {string} fragment with or without "#"
 * @returns {{token: string, view: View}}
 */
export function parseLink(fragment) {
  const text = fragment.replace(/^#/, '').slice(0, LONGEST)
  const params = new URLSearchParams(text)
  const view = { views: params.getAll('map').map(parseMap).filter((map) => map !== null) }
  for (const [property, name] of Object.entries(TEXTS)) {
    const value = params.get(name)
    if (value) view[property] = value
  }
  return { token: params.get('token') ?? '', view }
}

function parseMap(text) {
  const [space, from = '', to = ''] = text.split('~')
  return space ? { space, from, to } : null
}

/** Writes a view as a fragment, without "#". The fragment never has the token. */
export function formatLink(view) {
  const parts = []
  for (const map of view.views ?? []) {
    parts.push(`map=${encode(map.from ? `${map.space}~${map.from}~${map.to}` : map.space)}`)
  }
  for (const [property, name] of Object.entries(TEXTS)) {
    if (view[property]) parts.push(`${name}=${encode(view[property])}`)
  }
  return parts.join('&')
}

// Encodes a text, but keeps the characters readable that a fragment allows.
function encode(text) {
  return encodeURIComponent(text).replace(/%(2F|3A|40|2C)/g, (code) => decodeURIComponent(code))
}
