// Prepares a printout: the maps painted for paper, their legend, and a table of the pools.

import { byId, h } from './dom.js'
import { usageOf } from './facts.js'
import { item } from './legend.js'
import { arrange, thingsOf } from './list.js'
import { count, date, percent, poolName, sentence, spaceName } from './words.js'

const WIDTH = 1000
const LEAST_HEIGHT = 200
const MOST_HEIGHT = 1300
const SCALE = 2
const MOST_POOLS = 500

/** Prepares the page for paper when it is printed, and tidies up afterwards. */
export function followPrinting(app) {
  addEventListener('beforeprint', () => byId('paper').replaceChildren(...pages(app)))
  addEventListener('afterprint', () => byId('paper').replaceChildren())
}

function pages(app) {
  const { store, maps } = app
  const { context, namespace } = store.hello ?? {}
  const legend = h('ul', { class: 'legend' }, ...maps.legend('print').map(item))
  return [
    h('h1', { text: 'IP address space' }),
    h('p', { text: `Context ${context || 'not named'}, namespace ${namespace || 'not named'}, ${date(Date.now())}. ${byId('sign-text').textContent === 'Live' ? '' : `Not in step: ${byId('banner-text').textContent}`}` }),
    store.unread.text && h('p', { text: sentence(store.unread.text) }),
    ...maps.panes.map((pane) => paint(pane)),
    legend, h('h2', { text: 'Pools' }), poolTable(store),
  ].filter(Boolean)
}

function paint({ map, space }) {
  const canvas = h('canvas', { class: 'map-on-paper', width: 1, height: 1, role: 'img', 'aria-label': `Map of ${spaceName(space)}` })
  const needed = map.paintTo(canvas.getContext('2d'), WIDTH, LEAST_HEIGHT, SCALE) ?? LEAST_HEIGHT
  const height = Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, Math.ceil(needed)))
  canvas.width = WIDTH * SCALE
  canvas.height = height * SCALE
  map.paintTo(canvas.getContext('2d'), WIDTH, height, SCALE)
  return canvas
}

function poolTable(store) {
  const pools = arrange(thingsOf(store, 'pools'), {})
  const rows = pools.slice(0, MOST_POOLS).map((pool) => {
    const used = usageOf(pool) ? percent(BigInt(pool.usage.used || 0), BigInt(pool.usage.total)) : ''
    const cells = [poolName(pool.id), pool.cidr, pool.domain, pool.parent ? poolName(pool.parent) : '', pool.phase, pool.usage ? count(pool.usage.blocks) : '', used, pool.usage ? count(pool.usage.free) : '']
    return h('tr', {}, ...cells.map((text) => h('td', { text: text ?? '' })))
  })
  const headers = ['Pool', 'Addresses', 'Routing domain', 'Lies in', 'Phase', 'Blocks', 'Used', 'Free']
  const table = h('table', {}, h('thead', {}, h('tr', {}, ...headers.map((text) => h('th', { scope: 'col', text })))), h('tbody', {}, ...rows))
  return pools.length <= MOST_POOLS ? table : h('div', {}, table, h('p', { text: `${count(pools.length - MOST_POOLS)} more pools are not printed.` }))
}
