import assert from 'node:assert/strict'
import { test } from 'node:test'
import { describe, usageOf } from '../../page/facts.js'
import { explainSections, machineSection, usedBy, whoSections } from '../../page/reports.js'
import { block, pool, storeWith } from '../fakes/register.js'

const NOW = Date.parse('2026-11-26T18:00:00Z')
const said = (line) => line.map((part) => (typeof part === 'string' ? part : part.text)).join(' ')
const fact = (description, label) => {
  const found = description.facts.find(([name]) => name === label)
  return found ? said(found[1]) : undefined
}

test('a block', () => {
  const d = describe(storeWith(), 'b:web', NOW)
  assert.deepEqual([d.kind, d.title, d.state, d.copy, d.who], ['Block', '10.1.2.0/24', 'held', '10.1.2.0/24', '10.1.2.0/24'])
  assert.equal(fact(d, 'Holder'), 'IPClaim team-a/web')
  assert.equal(fact(d, 'Pool'), 'west (10.1.0.0/16) in core (10.0.0.0/8)')
  assert.deepEqual(d.facts.find(([name]) => name === 'Cluster')[1], [{ text: 'team-a/prod', filter: 'cluster:team-a/prod' }])
  assert.match(fact(d, 'Since'), /\(60m ago\)$/)
  assert.equal(fact(d, 'Free again'), undefined)
  assert.deepEqual(d.release, { namespace: 'team-a', name: 'web', cidr: '10.1.2.0/24' })
  assert.deepEqual(d.commands, ['kubectl ipam who 10.1.2.0/24', 'kubectl get ipallocation -n team-a web-x -o yaml'])
})

test('a pool of ranges', () => {
  const store = storeWith()
  store.apply({ type: 'pools', pools: [pool('IPPool/parts', { cidr: '10.1.0.0/16', first: '10.1.4.10', last: '10.1.4.19' })] })
  assert.equal(fact(describe(store, 'p:IPPool/parts', NOW), 'Addresses'), 'ranges of 10.1.0.0/16')
})

test('a block that cannot be released here has no button', () => {
  assert.equal(describe(storeWith(), 'b:db', NOW).release, null, 'an IPAddressClaim')
  const store = storeWith()
  store.apply({ type: 'blocks', blocks: [block('web', '10.1.2.0/24', { state: 'Retained', releaseAfter: '2026-11-27T18:00:00Z' })] })
  const d = describe(store, 'b:web', NOW)
  assert.equal(d.release, null, 'a block whose claim is gone')
  assert.match(fact(d, 'Free again'), /\(in 24h\)$/)
  assert.equal(d.notes.length, 1)
})

test('a single address is written without its length', () => {
  const store = storeWith()
  store.apply({ type: 'blocks', blocks: [block('host', '10.7.0.9/32')] })
  assert.equal(describe(store, 'b:host', NOW).title, '10.7.0.9')
})

test('a pool', () => {
  const store = storeWith()
  store.apply({ type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/8', phase: 'Exhausted', message: 'no free /16', withheld: [{ from: '10.0.0.0', to: '10.0.0.0', reason: 'network address' }], usage: { total: '16777216', free: '8388608', held: '8388608', retained: '2097152', cooling: '', drained: '256', used: '8388608', blocks: 1, largestFree: 9 } })] })
  const d = describe(store, 'p:IPPool/core', NOW)
  assert.deepEqual([d.kind, d.title, d.stateText, d.copy], ['Pool', 'core', 'Exhausted', '10.0.0.0/8'])
  assert.deepEqual(d.notes, ['no free /16'])
  assert.equal(fact(d, 'Withheld'), '10.0.0.0: network address')
  assert.equal(fact(d, 'Waiting'), 'team-b/late')
  assert.equal(fact(d, 'Hands out'), '/16 to /28')
  assert.equal(fact(d, 'Out of range'), '256 addresses of the held ones')
  assert.equal(d.usage.text, '50% of 16,777,216 addresses used in 1 block; 8,388,608 free, the largest free block is a /9.')
  assert.deepEqual(d.usage.parts, [['held', 6291456n, '38%'], ['retained', 2097152n, '13%'], ['free', 8388608n, '50%']])
})

test('usage that is not known, or of nothing', () => {
  assert.equal(usageOf({ usage: null }), null)
  assert.equal(usageOf({ usage: { total: '0' } }), null)
})

test('an unreadable pool, and a deleted block', () => {
  const store = storeWith()
  store.apply({ type: 'gone', pools: ['IPPool/west'] })
  const d = describe(store, 'p:IPPool/west', NOW)
  assert.deepEqual([d.title, d.stateText, fact(d, 'Addresses')], ['west', 'may not be read', '10.1.0.0/16'])
  assert.equal(describe(store, 'b:gone', NOW), null)
  assert.equal(describe(store, 'p:IPPool/gone', NOW), null)
  assert.equal(describe(store, 'w:gone', NOW), null)
  assert.equal(describe(store, 'odd', NOW), null)
})

test('a claim that waits', () => {
  const d = describe(storeWith(), 'w:late', NOW)
  assert.deepEqual([d.title, d.stateText, fact(d, 'Asks for'), fact(d, 'Pools')], ['team-b/late', 'waiting: PoolExhausted', 'a /24', 'core'])
  assert.equal(fact(d, 'Cluster'), 'team-b/dev')
  assert.deepEqual(d.commands, ['kubectl ipam explain late --kind ipclaim -n team-b'])
})

const WHO = {
  asked: '10.1.2.0/24', omitted: 2, places: [
    { routingDomain: 'default', pool: { kind: 'IPPool', name: 'core' }, poolCIDR: '10.0.0.0/8', free: '0' },
    { routingDomain: 'default', pool: { kind: 'IPPool', name: 'west' }, poolCIDR: '10.1.0.0/16', free: '5', poolPhase: 'Paused', blocks: [
      { cidr: '10.1.2.0/24', state: 'Bound', holder: { kind: 'IPClaim', namespace: 'team-a', name: 'web' }, owners: [{ kind: 'Machine', namespace: 'team-a', name: 'm' }, { kind: 'Cluster', namespace: 'team-a', name: 'c' }], since: '2026-11-26T17:00:00Z', allocation: 'team-a/web-x' },
    ], withheld: [{ range: '10.1.0.0', reason: 'network address' }] },
  ],
}

test('the answer of who names pools by kind', () => {
  const places = [['InClusterIPPool', 'team-a', 'vms'], ['LocalIPPool', 'team-a', 'lab']].map(([kind, namespace, name]) => ({ pool: { kind, namespace, name } }))
  const sections = whoSections(storeWith(), { places }, NOW)
  assert.deepEqual(sections.map(({ title }) => title), ['In pool InClusterIPPool team-a/vms', 'In pool team-a/lab'])
  assert.deepEqual(sections.map(({ lines }) => lines[0][0].to), ['p:InClusterIPPool/team-a/vms', 'p:LocalIPPool/team-a/lab'])
})

test('the answer of who', () => {
  const store = storeWith()
  assert.deepEqual(usedBy(WHO, store.blocks.get('web')), ['Machine team-a/m, owned by Cluster team-a/c'])
  assert.equal(usedBy(WHO, store.blocks.get('db')), null)
  const [held] = WHO.places[1].blocks
  const ofCluster = { places: [{ blocks: [{ ...held, network: { cluster: 'prod', purpose: 'pods' } }] }] }
  assert.deepEqual(usedBy(ofCluster, store.blocks.get('web')), ['pods of Cluster prod'])
  assert.deepEqual(explainSections({ network: { cluster: 'prod', purpose: 'pods' } }, NOW)[0].lines[0], ['It is for the pods of Cluster prod.'])
  const sections = whoSections(store, WHO, NOW)
  assert.deepEqual(sections.map((s) => s.title), ['In pool core', 'In pool west', ''])
  const lines = sections[1].lines.map(said)
  assert.match(lines[1], /^10\.1\.2\.0\/24 bound, by IPClaim team-a\/web; used by Machine team-a\/m, owned by Cluster team-a\/c; since .* \(60m ago\)$/)
  assert.deepEqual(lines.slice(2), ['10.1.0.0 is withheld: network address', '5 addresses free, but the pool is Paused'])
  assert.equal(sections[1].lines[1][0].to, 'b:web')
})

test('the answer of explain', () => {
  const sections = explainSections({
    namespace: 'team-b', asks: 'a /24 of pool core', reason: 'PoolExhausted', message: 'none is free', remedies: ['release one'],
    candidates: [{ kind: 'IPPool', name: 'core', cidr: '10.0.0.0/8', reason: 'Full', message: 'no free /24' }, { kind: 'LocalIPPool', name: 'lab', reason: 'Full', message: 'x' }],
    order: [{ kind: 'IPClaim', namespace: 'a', name: 'first', since: '2026-11-26T17:00:00Z' }, { kind: 'IPClaim', namespace: 'team-b', name: 'late', since: '2026-11-26T17:30:00Z', asked: true }], orderIsPartial: true,
  }, NOW)
  assert.deepEqual(sections.map((s) => s.title), ['Why it waits', 'Any of these would help', 'Pools that could serve it', 'Order'])
  assert.equal(sections[2].rows[0][0][0].to, 'p:IPPool/core')
  assert.equal(sections[2].rows[1][0][0].to, 'p:LocalIPPool/team-b/lab')
  assert.match(said(sections[3].lines[0]), /^Number 2 of 2 claims that wait for the same pools, of those that you may see\./)
  assert.match(said(sections[3].lines[1]), /^before it: IPClaim a\/first, since /)
})

test('the addresses of a Machine', () => {
  const store = storeWith()
  const none = machineSection(store, { claims: [] }, 'm')
  assert.match(said(none.lines[0]), /No IPAddressClaim .* Machine named m/)
  const some = machineSection(store, { claims: [{ kind: 'IPAddressClaim', namespace: 'team-b', name: 'db' }, { kind: 'IPAddressClaim', namespace: 'x', name: 'y' }] }, 'm')
  assert.deepEqual(some.rows.map((row) => row.map(said)), [['IPAddressClaim team-b/db', '10.2.0.0/24'], ['IPAddressClaim x/y', 'no block that you may read']])
})
