// The fragment of the address bar: what a link keeps of the view.

const TEXTS = { selected: 'select', colour: 'colour', tab: 'tab', show: 'show', filter: 'filter', sort: 'sort', pool: 'pool', length: 'length' }
const LONGEST = 4000

/**
 * What a link keeps. Everything may be missing.
 * @typedef {object} View
 * @property {{space: string, from: string, to: string}[]} [views] the maps that are shown, and
 *   the first and the last address of each; empty addresses: all
 * @property {string} [selected] the key of what is selected
 * @property {string} [colour] what the map is coloured by
 * @property {string} [tab]
 * @property {string} [show] which rows the list has
 * @property {string} [filter]
 * @property {string} [sort] a column, with "-" before it for the other direction
 * @property {string} [pool] whose free space is listed
 * @property {string} [length] of the free blocks that are listed
 */

/**
 * Reads a fragment. What cannot be read is left out.
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

/**
 * Writes a view as a fragment, without "#". Never has the token.
 * @param {View} view
 * @returns {string}
 */
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

// What may stand in a fragment as it is stays readable.
function encode(text) {
  return encodeURIComponent(text).replace(/%(2F|3A|40|2C)/g, (code) => decodeURIComponent(code))
}
