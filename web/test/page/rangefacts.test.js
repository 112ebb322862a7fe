import assert from 'node:assert/strict'
import { test } from 'node:test'
import { claimFor } from '../../page/commands.js'
import { blocksSection, describeRange } from '../../page/rangefacts.js'
import { parse } from '../../page/ranges.js'
import { pool, storeWith } from '../fakes/register.js'

const said = (text, store = storeWith()) => describeRange(store, parse(text))
const fact = (d, label) => d.facts.find(([name]) => name === label)?.[1].map((part) => part.text ?? part)

test('a block that is free can be claimed from its pool', () => {
  const d = said('10.1.3.0/24')
  assert.deepEqual([d.title, d.stateText, d.pool], ['10.1.3.0/24', 'free', 'IPPool/west'])
  assert.deepEqual(fact(d, 'Free in'), ['west'])
  assert.deepEqual(d.claimable.map((one) => [one.pool.id, one.cidr, one.length]), [['IPPool/west', '10.1.3.0/24', 24]])
  assert.deepEqual(d.commands, ['kubectl ipam who 10.1.3.0/24'])
})

test('an address that is free in an in-cluster pool is not claimed', () => {
  const store = storeWith()
  store.apply({ type: 'pools', pools: [pool('InClusterIPPool/team-a/vms', { cidr: '172.16.0.0/24', first: '172.16.0.10', last: '172.16.0.19', minLength: 24, maxLength: 32 })] })
  const d = said('172.16.0.10', store)
  assert.deepEqual([d.stateText, fact(d, 'Free in'), d.claimable], ['free', ['InClusterIPPool team-a/vms'], []])
})

test('a range that is held, withheld, carved or partly so is not free', () => {
  for (const text of ['10.1.2.0/24', '10.1.2.128/25', '10.1.2.0/23', '10.0.5.0/24', '10.0.0.0/15', '11.0.0.0/24', '2001:db8::/64']) {
    const d = said(text)
    assert.deepEqual([d.stateText, d.claimable, fact(d, 'Free in')], ['', [], undefined], text)
  }
})

test('an address that a pool of ranges does not hold is free in the pool around it', () => {
  const store = storeWith()
  store.apply({ type: 'pools', pools: [pool('IPPool/parts', {
    cidr: '10.1.0.0/16', first: '10.1.4.10', last: '10.1.4.19', parent: 'IPPool/west', withheld: [{ from: '10.1.4.14', to: '10.1.4.15', reason: 'not of this pool' }],
  })] })
  for (const [text, want] of [['10.1.4.11', 'parts'], ['10.1.4.14', 'west'], ['10.1.4.9', 'west'], ['10.1.4.20', 'west']]) {
    assert.deepEqual(fact(said(text, store), 'Free in'), [want], text)
  }
})

test('a free range of a length that is not handed out cannot be claimed', () => {
  const d = said('10.1.3.4')
  assert.deepEqual([d.kind, d.title, d.stateText, d.claimable], ['Address', '10.1.3.4', 'free', []])
})

test('where the records may not be read nothing is said to be free', () => {
  const store = storeWith()
  store.apply({ type: 'pools', pools: [pool('IPPool/west', { cidr: '10.1.0.0/16', parent: 'IPPool/core', usageFrom: 'status' })] })
  assert.equal(said('10.1.3.0/24', store).stateText, '')
})

test('a range that is no block names its parts, and the blocks in it', () => {
  const d = said('10.1.2.0-10.1.4.255')
  assert.deepEqual(fact(d, 'Consists of'), ['10.1.2.0/23', '10.1.4.0/24'])
  assert.deepEqual([fact(d, 'Addresses'), d.commands, d.claimable], [['768'], [], []])
  const section = blocksSection(storeWith(), parse('10.1.2.0-10.1.4.255'))
  assert.deepEqual(section.lines.map((line) => line[0].to), ['p:IPPool/core', 'p:IPPool/west', 'b:web'])
  assert.deepEqual(blocksSection(storeWith(), parse('11.0.0.1-11.0.0.3')).lines, [['There is none that you may read.']])
  assert.deepEqual(fact(said('10.9.0.1-10.9.255.254'), 'Consists of').slice(-1), ['and more'])
})

test('the claim for a block has its name and namespace', () => {
  const core = { kind: 'IPPool', namespace: '', name: 'core' }
  assert.deepEqual(claimFor(core, '10.2.0.0/24', 24, 'team-a'), { namespace: 'team-a', name: 'claim-10-2-0-0-24', pool: core, cidr: '10.2.0.0/24', length: 24 })
  assert.equal(claimFor({ ...core, kind: 'LocalIPPool', namespace: 'team-b' }, '2001:DB8::/64', 64, 'team-a').namespace, 'team-b')
  assert.equal(claimFor(core, '2001:DB8::/64', 64, 'x').name, 'claim-2001-db8-64')
})
