// Turns the answers of `who`, `explain` and a question for a Machine into sections for the panel.

import { blockOfClaim, blockOfRecord, poolKey } from './places.js'
import { count, counted, moment, objectName, poolName } from './words.js'

/**
 * Holds a section of the panel.
 * @typedef {object} Section
 * @property {string} title
 * @property {import('./facts.js').Line[]} [lines]
 * @property {string[]} [headers] of a table
 * @property {import('./facts.js').Line[][]} [rows]
 */

const MOST_ROWS = 50

/** Returns the user of a held block in words: the network of a Cluster, or the owners of its holder; empty if there is none. */
function userOf({ network, owners }) {
  return network ? `${network.purpose} of Cluster ${network.cluster}` : (owners ?? []).map(objectName).join(', owned by ')
}

/** Returns the users of a block. @param {object} report of who */
export function usedBy(report, block) {
  for (const place of report.places ?? []) {
    const held = (place.blocks ?? []).find((one) => one.allocation === block.allocation && one.cidr === block.cidr)
    if (held && userOf(held)) return [userOf(held)]
  }
  return null
}

/** Returns the answer of `who` about addresses, a section for each pool. */
export function whoSections(store, report, now) {
  const sections = (report.places ?? []).map((place) => ofPlace(store, place, now))
  if (report.omitted > 0) sections.push({ title: '', lines: [[`${counted(report.omitted, 'more row')} not shown: the list has them.`]] })
  return sections
}

function ofPlace(store, place, now) {
  const lines = []
  const title = place.pool ? `In pool ${poolName(poolKey(place.pool).slice(2))}` : `In routing domain ${place.routingDomain}`
  if (place.pool) {
    lines.push([{ text: objectName(place.pool), to: poolKey(place.pool) }, place.poolCIDR ? `(${place.poolCIDR})` : '', place.routingDomain ? `of routing domain ${place.routingDomain}` : ''])
  }
  for (const block of (place.blocks ?? []).slice(0, MOST_ROWS)) lines.push(ofHeld(store, block, now))
  for (const span of (place.withheld ?? []).slice(0, MOST_ROWS)) lines.push([`${span.range} is withheld: ${span.reason}`])
  if (place.free && place.free !== '0') {
    const phase = place.poolPhase ? `, but the pool is ${place.poolPhase}` : ''
    lines.push([`${counted(place.free, 'address', 'addresses')} free${phase}`])
  }
  return { title, lines: lines.map((line) => line.filter((part) => part !== '')) }
}

function ofHeld(store, block, now) {
  const known = blockOfRecord(store, block.allocation, block.cidr)
  const cidr = known ? { text: block.cidr, to: known.child ? `p:${known.child}` : `b:${known.id}` } : block.cidr
  const words = [`${block.state.toLowerCase()}${block.drained ? ', out of range' : ''}, by ${objectName(block.holder)}`]
  if (userOf(block)) words.push(`used by ${userOf(block)}`)
  words.push(`since ${moment(Date.parse(block.since), now)}`)
  return [cidr, words.join('; ')]
}

/** Returns the answer of `explain` about a claim that waits. */
export function explainSections(report, now) {
  const sections = [{ title: 'Why it waits', lines: [[`It asks for ${report.asks}.`], [`${report.reason}: ${report.message}`]] }]
  if (report.block) sections[0] = { title: 'Its block', lines: [[`It asked for a block of ${report.asks}, and holds ${report.block}.`], [report.afterwards ?? '']] }
  if (report.network) sections[0].lines.unshift([`It is for the ${userOf(report)}.`])
  if (report.remedies?.length > 0) sections.push({ title: 'Any of these would help', lines: report.remedies.map((remedy) => [remedy]) })
  if (report.candidates?.length > 0) {
    sections.push({
      title: 'Pools that could serve it', headers: ['Pool', 'Why not'],
      rows: report.candidates.slice(0, MOST_ROWS).map((c) => [[poolPart(c, report.namespace)], [`${c.reason}: ${c.message}`]]),
    })
  }
  if (report.order?.length > 0) sections.push(orderSection(report, now))
  if (report.poolsUnread) sections.push({ title: '', lines: [['You may not read enough to judge the pools.']] })
  return sections
}

function poolPart(candidate, namespace) {
  const slash = candidate.name.indexOf('/')
  const ref = slash < 0 ? { kind: candidate.kind, namespace, name: candidate.name }
    : { kind: candidate.kind, namespace: candidate.name.slice(0, slash), name: candidate.name.slice(slash + 1) }
  return { text: candidate.name, to: poolKey(ref) }
}

function orderSection(report, now) {
  const place = report.order.findIndex((one) => one.asked) + 1
  const seen = report.orderIsPartial ? ', of those that you may see' : ''
  if (report.order.length === 1) return { title: 'Order', lines: [[`No other claim${report.orderIsPartial ? ' that you may see' : ''} waits for the same pools.`]] }
  const lines = [[`Number ${count(place)} of ${counted(report.order.length, 'claim')} that wait for the same pools${seen}. The oldest that fits is served first.`]]
  for (const one of report.order.slice(0, Math.max(0, place - 1)).slice(0, 5)) lines.push([`before it: ${objectName(one)}, since ${moment(Date.parse(one.since), now)}`])
  return { title: 'Order', lines }
}

/** Returns the claims that a Machine owns. */
export function machineSection(store, answer, name) {
  const claims = answer.claims ?? []
  if (claims.length === 0) return { title: 'Addresses', lines: [[`No IPAddressClaim that you may read is owned by a Machine named ${name}.`]] }
  return {
    title: 'Addresses', headers: ['Claim', 'Holds'],
    rows: claims.slice(0, MOST_ROWS).map((claim) => {
      const block = blockOfClaim(store, claim)
      const waits = [...store.waiting.values()].find((one) => one.kind === claim.kind && one.namespace === claim.namespace && one.name === claim.name)
      const holds = block ? { text: block.cidr, to: `b:${block.id}` } : waits ? { text: `waits: ${waits.reason}`, to: `w:${waits.id}` } : 'no block that you may read'
      return [[objectName(claim)], [holds]]
    }),
  }
}
