// Handles the keys of the whole page, and the dialog that lists them. Keys of one letter can be
// switched off, for people who speak to their computer.

import { byId, h } from './dom.js'

const KEY = 'cadastre-keys'

const LISTED = [
  [['/'], 'go to the search field'],
  [['m'], 'go to the map'],
  [['d'], 'go to the details'],
  [['l'], 'show the list'],
  [['f'], 'show free space'],
  [['c'], 'show what changed'],
  [['?'], 'this list'],
  [['Tab'], 'go to the next element; leaves the map'],
  [['←', '→'], 'on the map: the strip before, and the next one; with Shift: move the map'],
  [['↑', '↓'], 'on the map: the strip above, and the first one below'],
  [['+', '−'], 'on the map: zoom in and out'],
  [['Enter'], 'on the map: show the strip in full width, and go to its details'],
  [['Home'], 'on the map: show the whole routing domain'],
  [['Esc'], 'on the map: select nothing, then show all; elsewhere: close'],
]

/** Follows the keys. @param {Object<string, () => void>} actions by key */
export function followKeys(actions) {
  byId('help-body').append(h('dl', { class: 'keys' }, ...LISTED.flatMap(([keys, text]) => [h('dt', {}, ...keys.flatMap((key, i) => (i > 0 ? [' ', h('kbd', { text: key })] : [h('kbd', { text: key })]))), h('dd', { text })])))
  const box = byId('keys-on')
  box.checked = localStorage.getItem(KEY) !== 'off'
  box.addEventListener('change', () => localStorage.setItem(KEY, box.checked ? 'on' : 'off'))
  byId('help-button').addEventListener('click', () => byId('help').showModal())
  document.addEventListener('keydown', (event) => {
    if (!box.checked || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
    if (event.target.closest?.('input, select, textarea, dialog')) return
    const action = event.key === '?' ? () => byId('help').showModal() : actions[event.key]
    if (!action) return
    event.preventDefault()
    action()
  })
}
