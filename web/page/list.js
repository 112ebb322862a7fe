// Selects and orders the rows of the list, and makes the texts of their cells.

import { filterOf, familyOf, textsOf } from './filter.js'
import { formatRange } from './ranges.js'
import { counted, date, duration, objectName } from './words.js'

/**
 * Describes a column of the list.
 * @typedef {object} Column
 * @property {string} id
 * @property {string} label
 * @property {(thing: object) => string} value for people and for CSV
 * @property {(a: object, b: object) => number} compare
 */

const text = (id, label, value) => ({ id, label, value, compare: (a, b) => compareTexts(value(a), value(b)) })
const time = (id, label, of) => ({
  id, label, value: (thing) => (of(thing) ? date(of(thing)) : ''), compare: (a, b) => of(a) - of(b),
})

/** @type {Column[]} */
export const COLUMNS = [
  { id: 'address', label: 'Addresses', value: (thing) => textsOf(thing).cidr, compare: compareAddresses },
  text('state', 'State', (thing) => textsOf(thing).state),
  text('pool', 'Pool', (thing) => textsOf(thing).pool),
  text('holder', 'Holder', holder),
  text('cluster', 'Cluster', (thing) => textsOf(thing).cluster),
  text('project', 'Project', (thing) => textsOf(thing).project),
  text('class', 'Class', (thing) => textsOf(thing).class),
  time('since', 'Since', (thing) => (typeof thing.since === 'number' ? thing.since : 0)),
]

/** The columns of a file beside those of the list. */
export const MORE_COLUMNS = [
  text('domain', 'Routing domain', (thing) => thing.domain ?? ''),
  text('requestedBy', 'Requested by', (thing) => thing.requestedBy ?? ''),
  time('releaseAfter', 'Released after', (thing) => thing.releaseAfter ?? 0),
  text('allocation', 'Allocation', (thing) => thing.allocation ?? ''),
  text('message', 'Message', (thing) => thing.message ?? ''),
]

/** The choices of rows. */
export const SHOWN = {
  all: 'Everything',
  pools: 'Pools',
  blocks: 'Blocks of claims',
  waiting: 'Claims that wait',
  map: 'What the map shows',
}

/** Returns the things of the register for a list. @param {string} show a key of SHOWN */
export function thingsOf(store, show) {
  const things = []
  if (show === 'pools' || show === 'all') {
    for (const pool of store.pools.values()) {
      pool.since = store.ownBlock(pool.id)?.since ?? 0
      things.push(pool)
    }
  }
  if (show === 'blocks' || show === 'all') {
    for (const block of store.blocks.values()) if (!block.child || (!store.pools.has(block.child) && show === 'all')) things.push(block)
  }
  if (show === 'waiting' || show === 'all') for (const claim of store.waiting.values()) things.push(claim)
  return things
}

/**
 * Returns the thing behind a row of the map: a known one, free space, or strips that are in one
 * place.
 */
export function thingOnMap(store, row, family) {
  const known = row.id && store.at(row.id)
  if (known) return known
  const several = row.id === null && row.state === 'several'
  const cidr = formatRange(row.from, row.to, family)
  return {
    level: row.level, key: row.id ?? `r:${cidr}`, cidr, from: row.from, to: row.to, family, pool: '',
    state: several ? row.sub : row.state, label: several ? counted(row.count, 'strip') : row.state === 'free' ? '' : row.label, since: 0,
  }
}

/**
 * Filters and sorts. Equal rows follow the order of their addresses, and empty cells are last.
 * @param {{filter?: string, sort?: string}} how sort: a column, with "-" before it for the
 *   other direction
 * @returns {object[]} a new list
 */
export function arrange(things, { filter = '', sort = 'address' }) {
  const test = filterOf(filter)
  const rows = test ? things.filter(test) : things.slice()
  const descending = sort.startsWith('-')
  const column = COLUMNS.find((c) => c.id === sort.replace(/^-/, '')) ?? COLUMNS[0]
  const sign = descending ? -1 : 1
  if (column.id === 'address' || column.id === 'since') {
    return rows.sort((a, b) => sign * column.compare(a, b) || compareAddresses(a, b))
  }
  const keyed = rows.map((row) => ({ row, key: column.value(row) })) // makes each text once
  keyed.sort((a, b) => compareTexts(a.key, b.key, sign) || compareAddresses(a.row, b.row))
  return keyed.map((one) => one.row)
}

/** Returns the holder of a row in words. */
export function holder(thing) {
  const texts = textsOf(thing)
  return texts.kind ? objectName({ kind: texts.kind, namespace: texts.namespace, name: texts.claim }) : texts.claim
}

/** Returns the age of a row in short form. */
export function age(thing, now) {
  return typeof thing.since === 'number' && thing.since > 0 ? duration(now - thing.since) : ''
}

/** Compares by family, by first address, and the larger one first; things without addresses are last. */
export function compareAddresses(a, b) {
  const placed = (thing) => thing.from != null && thing.from >= 0n
  if (!placed(a) || !placed(b)) return Number(placed(b)) - Number(placed(a))
  const family = familyOf(a) - familyOf(b)
  if (family !== 0) return family
  if (a.from !== b.from) return a.from < b.from ? -1 : 1
  if (a.to !== b.to) return a.to > b.to ? -1 : 1
  return 0
}

// Compares texts. Empty texts are last in either direction.
function compareTexts(a, b, sign = 1) {
  if (a === b) return 0
  if (a === '') return 1
  if (b === '') return -1
  return a < b ? -sign : sign
}
