// Parses the text that narrows a list: words, and fields such as project:shop.

import { BLOCK_STATES } from './places.js'
import { parse } from './ranges.js'
import { poolName, STATES } from './words.js'

/** The names of fields that a user can type, and their names here. */
export const FIELDS = {
  pool: 'pool', namespace: 'namespace', ns: 'namespace', cluster: 'cluster', project: 'project', class: 'class',
  claim: 'claim', name: 'claim', state: 'state', kind: 'kind', machine: 'machine', address: 'address', cidr: 'address',
}

/**
 * Splits "project:shop" into its field and its value. Text without a field has none; no field has
 * a name that can be the first group of an IPv6 address.
 * @returns {{field: string, value: string}}
 */
export function splitField(word) {
  const colon = word.indexOf(':')
  const field = colon > 0 ? FIELDS[word.slice(0, colon).toLowerCase()] : undefined
  if (field === undefined) return { field: '', value: word }
  return { field, value: word.slice(colon + 1) }
}

/**
 * Returns the texts of a pool, a block, a waiting claim, or a row of the map.
 * @returns {{cidr: string, state: string, pool: string, kind: string, namespace: string, claim: string, cluster: string, project: string, class: string}}
 */
export function textsOf(thing) {
  if ('known' in thing) {
    return {
      cidr: thing.cidr, state: thing.known ? (thing.phase || '').toLowerCase() : STATES.unknown, pool: thing.parent ? poolName(thing.parent) : '',
      kind: thing.kind, namespace: thing.namespace ?? '', claim: thing.name, cluster: '', project: thing.project ?? '', class: (thing.classes ?? []).join(', '),
    }
  }
  if ('reason' in thing) {
    return {
      cidr: thing.cidr || (thing.length >= 0 ? `any /${thing.length}` : ''), state: `waiting: ${thing.reason}`, pool: thing.pools.length === 1 ? poolName(thing.pools[0]) : '',
      kind: thing.kind, namespace: thing.namespace, claim: thing.name, cluster: thing.cluster, project: '', class: thing.class ?? '',
    }
  }
  if ('level' in thing) {
    return { cidr: thing.cidr, state: STATES[thing.state] ?? thing.state, pool: thing.pool, kind: '', namespace: '', claim: thing.label, cluster: '', project: '', class: '' }
  }
  const state = STATES[BLOCK_STATES[thing.state]] ?? thing.state
  return {
    cidr: thing.cidr, state: thing.drained ? `${state}, ${STATES.drained}` : state,
    pool: thing.pool ? poolName(thing.pool) : '', kind: thing.holderKind, namespace: thing.holderNamespace, claim: thing.holderName,
    cluster: thing.cluster, project: thing.project, class: thing.class,
  }
}

/**
 * Makes the condition of a filter. All words must match.
 * @returns {((thing: object) => boolean)|null} null: there is no condition
 */
export function filterOf(text) {
  const tests = text.trim().split(/\s+/).filter((word) => word !== '').map(testOf)
  if (tests.length === 0) return null
  return (thing) => {
    const texts = textsOf(thing)
    return tests.every((test) => test(texts, thing))
  }
}

function testOf(word) {
  const { field, value } = splitField(word)
  const range = field === '' || field === 'address' ? parse(value) : null
  if (range) return (_, thing) => overlaps(thing, range)
  const wanted = value.toLowerCase()
  switch (field) {
    case '':
      return (texts) => contains(texts, wanted)
    case 'address':
      return (texts) => texts.cidr.startsWith(wanted)
    case 'state':
      return (texts) => texts.state.toLowerCase().includes(wanted)
    case 'machine':
      return (texts) => texts.claim.toLowerCase().includes(wanted)
    case 'pool':
      return (texts, thing) => texts.pool === value || ('known' in thing && poolName(thing.id) === value)
    case 'cluster':
      return (texts) => `/${texts.cluster}`.endsWith(`/${wanted}`) // prod: of every namespace
    case 'class':
      return (texts) => texts.class === value || texts.class.split(', ').includes(value)
    default:
      return (texts) => texts[field].toLowerCase() === wanted
  }
}

function overlaps(thing, range) {
  if (thing.from == null || thing.from < 0n) return false
  return familyOf(thing) === range.family && thing.from <= range.to && range.from <= thing.to
}

function contains(texts, wanted) {
  for (const name in texts) if (texts[name].toLowerCase().includes(wanted)) return true
  return `${texts.namespace}/${texts.claim}`.toLowerCase().includes(wanted)
}

/** Returns the address family of a thing. */
export function familyOf(thing) {
  return thing.family ?? 4
}
