// Describes a selection without a DOM: titles, facts with links, commands. A text with a link is
// {text, to}; a link to rows of the list is {text, filter}.

import { ipam, poolArgs, quote } from './commands.js'
import { blockState, holderLink, poolLink, poolsAbove, rangeText } from './places.js'
import { count, counted, moment, percent, poolName, STATES } from './words.js'

/**
 * @typedef {string|{text: string, to?: string, filter?: string}} Part
 * @typedef {Part[]} Line
 *
 * Describes one thing.
 * @typedef {object} Description
 * @property {string} kind such as Pool or Block
 * @property {string} title
 * @property {string} state a state of the map; empty: none
 * @property {string} stateText
 * @property {string} copy the text for the copy button; empty: no button
 * @property {[string, Line, string|undefined][]} facts the parts of a line, or of a "list"
 * @property {string[]} notes sentences that warn
 * @property {{text: string, parts: [string, bigint, string][]}|null} usage of a pool
 * @property {string[]} commands
 * @property {string} who the addresses to ask `who` about; empty: none
 * @property {object|null} explain the claim to ask `explain` about
 * @property {object|null} release the IPClaim that can be released
 * @property {string} pool whose free space can be listed; empty: none
 */

const MOST = 8

/** The empty description. @type {Description} */
export const blank = { kind: '', title: '', state: '', stateText: '', copy: '', facts: [], notes: [], usage: null, commands: [], who: '', explain: null, release: null, pool: '' }

/**
 * Describes the object with a key, or returns null if it is gone.
 * @returns {Description|null}
 */
export function describe(store, key, now) {
  if (key.startsWith('p:')) return ofPool(store, key.slice(2), now)
  if (key.startsWith('s:') || key.startsWith('u:')) return ofSpan(store, key)
  const thing = store.at(key)
  if (!thing) return null
  return key.startsWith('b:') ? ofBlock(store, thing, now) : ofWaiting(store, thing, now)
}

// Describes withheld addresses of a pool, or addresses of unknown use.
function ofSpan(store, key) {
  const slash = key.lastIndexOf('/')
  const id = key.slice(2, slash)
  const pool = store.pools.get(id)
  const span = key.startsWith('s:') ? pool?.spans[Number(key.slice(slash + 1))] : undefined
  if (!pool || (key.startsWith('s:') && !span)) return null
  const facts = [['Pool', poolsAbove(store, id)]]
  if (!span) {
    return { ...blank, kind: 'Addresses', title: 'Not known', state: 'unknown', stateText: STATES.unknown, facts, notes: ['You may not read all records of this pool, so it is not known whether these addresses are free.'], pool: id }
  }
  const text = rangeText(span)
  return { ...blank, kind: 'Withheld', title: text, state: 'withheld', stateText: STATES.withheld, copy: text, facts: [['Why', [span.reason]], ...facts], who: span.length >= 0 ? text : '' }
}

function ofBlock(store, block, now) {
  const facts = [
    ['Holder', [holderLink(block)]],
    ['Pool', poolsAbove(store, block.pool)],
    ['Routing domain', [block.domain || 'not known']],
    ['Cluster', clusterLink(block)],
    ['Project', block.project ? [{ text: block.project, filter: `project:${block.project}` }] : []],
    ['Class', block.class ? [{ text: block.class, filter: `class:${block.class}` }] : []],
    ['Requested by', [block.requestedBy]],
    ['Since', [moment(block.since, now)]],
    ['Free again', block.releaseAfter ? [moment(block.releaseAfter, now)] : []],
    ['Record', [block.allocation ? `ipallocation ${block.allocation}` : '']],
  ]
  const notes = []
  if (block.drained) notes.push('It is out of range: its pool does not hand these addresses out any more. It stays until its holder releases it.')
  if (block.terminating) notes.push('Its record is being deleted. The block is taken until that is done.')
  if (block.state === 'Cooling') notes.push('It was released, and is not handed out again before the reuse delay of its pool has passed.')
  if (block.state === 'Retained') notes.push('Its claim is gone. The block is retained until it is claimed by name.')
  const commands = [ipam('who', bare(block))]
  const [namespace, name] = block.allocation.split('/')
  if (name) commands.push(`kubectl get ipallocation -n ${quote(namespace)} ${quote(name)} -o yaml`)
  const claimed = block.holderKind === 'IPClaim' && block.state === 'Bound'
  return {
    ...blank, kind: 'Block', title: bare(block), state: blockState(block), stateText: STATES[blockState(block)], copy: bare(block),
    facts: known(facts), notes, commands, who: bare(block), pool: block.pool,
    release: claimed ? { namespace: block.holderNamespace, name: block.holderName, cidr: block.cidr } : null,
  }
}

function clusterLink({ cluster }) {
  return cluster ? [{ text: cluster, filter: `cluster:${cluster}` }] : []
}

/** Returns a block in the form that people write: if it is an address, without a length. */
function bare(block) {
  return block.from === block.to ? block.cidr.replace(/\/\d+$/, '') : block.cidr
}

function ofPool(store, id, now) {
  const pool = store.pools.get(id)
  const own = store.ownBlock(id)
  if (!pool && !own) return null
  const cidr = pool?.cidr || own?.cidr || ''
  if (!pool?.known) return ofUnknownPool(store, id, cidr, own)
  const notes = pool.message && pool.phase !== 'Ready' ? [pool.message] : []
  if (pool.usageFrom === 'status') notes.push('Its records may not all be read. The numbers come from its status, and its free blocks are not known in detail.')
  const args = poolArgs(pool)
  return {
    ...blank, kind: pool.kind === 'LocalIPPool' ? 'Local pool' : 'Pool', title: poolName(id), state: own?.drained ? 'drained' : '', stateText: pool.phase,
    copy: cidr, facts: known([['Addresses', [pool.first ? `ranges of ${cidr}` : cidr]], ...poolFacts(store, pool, now)]), notes, usage: usageOf(pool),
    commands: [ipam('tree', ...args), ipam('free', ...args), ipam('map', ...args)], pool: id, who: '',
  }
}

// Returns the facts of a pool, and of its space to hand out.
function poolFacts(store, pool, now) {
  const waiting = [...store.waiting.values()].filter((claim) => claim.pools.includes(pool.id))
  return [
    ['Lies in', pool.parent ? poolsAbove(store, pool.parent) : [`routing domain ${pool.domain || 'not known'}`]],
    ['Hands out', [lengths(pool)]],
    ['Classes', pool.classes.map((name) => ({ text: name, filter: `class:${name}` })), 'list'],
    ['Project', pool.project ? [{ text: pool.project, filter: `project:${pool.project}` }] : []],
    ['Visibility', [pool.visibility ?? '']],
    ['Strategy', [pool.strategy ?? '']],
    ['Reuse delay', [pool.reuseDelay && pool.reuseDelay !== '0s' ? pool.reuseDelay : '']],
    ['When full', [pool.onExhaustion === 'Reject' ? 'claims are refused' : pool.onExhaustion === 'Wait' ? 'claims wait' : '']],
    ['Limits of a project', [limits(pool.limits)]],
    ['Out of range', [BigInt(pool.usage?.drained || 0) > 0n ? `${counted(pool.usage.drained, 'address', 'addresses')} of the held ones` : '']],
    ['Withheld', some(pool.spans, (span) => `${rangeText(span)}: ${span.reason}`), 'list'],
    ['Waiting', some(waiting, (claim) => ({ text: `${claim.namespace}/${claim.name}`, to: `w:${claim.id}` })), 'list'],
    ['Labels', some(Object.entries(pool.labels), ([name, value]) => `${name}=${value}`), 'list'],
    ['Since', [moment(store.ownBlock(pool.id)?.since ?? 0, now)]],
  ]
}

function ofUnknownPool(store, id, cidr, own) {
  return {
    ...blank, kind: 'Pool', title: poolName(id), state: 'unknown', stateText: 'may not be read', copy: cidr, commands: [],
    facts: known([['Addresses', [cidr]], ['Lies in', own?.pool ? poolsAbove(store, own.pool) : []], ['Blocks that you may read', [count([...store.blocksOf(id)].length)]]]),
    notes: ['Blocks of this pool are recorded, but the pool does not exist or you may not read it.'],
  }
}

function lengths(pool) {
  if (pool.minLength === undefined || pool.minLength < 0) return ''
  const bits = pool.family === 6 ? 128 : 32
  if (pool.minLength === bits) return `single addresses (/${bits})`
  return pool.minLength === pool.maxLength ? `/${pool.minLength}` : `/${pool.minLength} to /${pool.maxLength}`
}

function limits(of) {
  if (!of) return ''
  const parts = []
  if (of.addresses) parts.push(counted(of.addresses, 'address', 'addresses'))
  if (of.blocks) parts.push(counted(of.blocks, 'block'))
  return parts.join(', ')
}

/**
 * Describes the usage of a pool: a sentence and its parts, as [state, addresses, share].
 * @returns {{text: string, parts: [string, bigint, string][]}|null}
 */
export function usageOf(pool) {
  if (!pool.usage) return null
  const of = (name) => BigInt(pool.usage[name] || 0)
  const total = of('total')
  if (total === 0n) return null
  const free = of('free')
  const held = of('held') - of('retained') - of('cooling') // held includes those
  const parts = [['held', held], ...['carved', 'retained', 'cooling', 'withheld', 'free'].map((state) => [state, of(state)])]
    .filter(([, addresses]) => addresses > 0n)
    .map(([state, addresses]) => [state, addresses, percent(addresses, total)])
  const used = of('used')
  const largest = pool.usage.largestFree >= 0 && free > 0n ? `, the largest free block is a /${pool.usage.largestFree}` : ''
  return { text: `${percent(used, total)} of ${counted(total, 'address', 'addresses')} used in ${counted(pool.usage.blocks ?? 0, 'block')}; ${count(free)} free${largest}.`, parts }
}

function ofWaiting(store, claim, now) {
  const asks = claim.cidr || (claim.length >= 0 ? `a /${claim.length}` : 'a block')
  const facts = [
    ['Asks for', [`${asks}${claim.class ? ` of class ${claim.class}` : ''}`]],
    ['Pools', some(claim.pools, poolLink), 'list'],
    ['Namespace', [{ text: claim.namespace, filter: `namespace:${claim.namespace}` }]],
    ['Cluster', clusterLink(claim)],
    ['Waits since', [moment(claim.since, now)]],
  ]
  return {
    ...blank, kind: claim.kind, title: `${claim.namespace}/${claim.name}`, state: 'waiting', stateText: `waiting: ${claim.reason}`, copy: claim.cidr,
    facts: known(facts), notes: claim.message ? [claim.message] : [], explain: claim,
    commands: [ipam('explain', claim.name, '--kind', claim.kind.toLowerCase(), '-n', claim.namespace)],
    release: claim.kind === 'IPClaim' ? { namespace: claim.namespace, name: claim.name, cidr: '' } : null,
  }
}

// Returns the first few, and the number of the others.
function some(all, part) {
  const shown = all.slice(0, MOST).map(part)
  return all.length > MOST ? [...shown, `${all.length - MOST} more`] : shown
}

// Leaves out facts without known content.
function known(facts) {
  return facts.map(([label, line, form]) => [label, line.filter((part) => part !== '' && part !== undefined), form]).filter(([, line]) => line.length > 0)
}
