import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseQuery, suggest } from '../../page/find.js'
import { storeWith } from '../fakes/register.js'

const QUERIES = {
  '': { kind: 'empty' },
  '   ': { kind: 'empty' },
  '10.2.0.77': { kind: 'range', from: 0x0a02004dn, to: 0x0a02004dn },
  ' 10.2.0.0/24 ': { kind: 'range', from: 0x0a020000n, to: 0x0a0200ffn },
  '10.2.0.77/24': { kind: 'range', from: 0x0a020000n, to: 0x0a0200ffn, hostBits: true },
  '10.0.0.1-10.0.0.9': { kind: 'range', from: 0x0a000001n, to: 0x0a000009n },
  '::ffff:10.0.0.1': { kind: 'range', from: 0x0a000001n, to: 0x0a000001n },
  '2001:db8::1': { kind: 'range', from: 0x20010db8000000000000000000000001n, to: 0x20010db8000000000000000000000001n },
  'address:10.2.0.77': { kind: 'range', from: 0x0a02004dn, to: 0x0a02004dn },
  '10.2.0.300': { kind: 'text', value: '10.2.0.300' },
  '10.2.0.0/33': { kind: 'text', value: '10.2.0.0/33' },
  '10.2': { kind: 'text', value: '10.2' },
  'pool:core': { kind: 'field', field: 'pool', value: 'core' },
  'NS:team-a': { kind: 'field', field: 'namespace', value: 'team-a' },
  'machine:m-0': { kind: 'field', field: 'machine', value: 'm-0' },
  'color:red': { kind: 'text', value: 'color:red' },
  'team-a/web': { kind: 'text', value: 'team-a/web' },
}
for (const [text, want] of Object.entries(QUERIES)) {
  test(`query: ${JSON.stringify(text)}`, () => {
    const { range, ...query } = parseQuery(text)
    const got = range ? { ...query, from: range.from, to: range.to, ...(range.hostBits ? { hostBits: true } : {}) } : query
    assert.deepEqual(got, want)
  })
}

const found = (text) => suggest(storeWith(), text).map((s) => [s.kind, s.text])

test('an address leads to itself, and to the blocks around it, the smallest first', () => {
  assert.deepEqual(found('10.1.2.77'), [['Address', '10.1.2.77'], ['Block', '10.1.2.0/24'], ['Pool', 'west'], ['Pool', 'core']])
  assert.deepEqual(found('2001:db8::1'), [['Address', '2001:db8::1']])
})

test('a CIDR that is one block leads to the block first', () => {
  assert.deepEqual(found('10.1.2.0/24'), [['Block', '10.1.2.0/24'], ['CIDR', '10.1.2.0/24'], ['Pool', 'west'], ['Pool', 'core']])
  assert.deepEqual(found('10.1.2.7/24')[0], ['CIDR', '10.1.2.0/24'])
})

test('a CIDR leads to itself, to the blocks around it, and to those in it', () => {
  assert.deepEqual(found('10.1.0.0/15'), [['CIDR', '10.0.0.0/15'], ['Pool', 'core'], ['Block', '10.1.2.0/24'], ['Pool', 'west']])
  assert.match(suggest(storeWith(), '10.1.0.0/15')[0].detail, /^10\.0\.0\.0\/15 is the network of 10\.1\.0\.0\/15$/)
})

test('names lead to pools, namespaces, Clusters, projects, classes and claims', () => {
  assert.deepEqual(found('web').slice(0, 1), [['Claim', 'team-a/web']])
  assert.deepEqual(found('team-b')[0], ['Namespace', 'team-b'])
  assert.deepEqual(found('bank')[0], ['Project', 'bank'])
  assert.deepEqual(found('prod').slice(0, 2), [['Cluster', 'team-a/prod'], ['Cluster', 'team-b/prod']])
  assert.deepEqual(found('nets')[0], ['Class', 'nets'])
  assert.deepEqual(found('late')[0], ['Waits', 'team-b/late'])
  assert.deepEqual(found('CORE')[0], ['Pool', 'core'])
  assert.deepEqual(found('team-b/db'), [['Claim', 'team-b/db']])
  assert.deepEqual(found('10.1.2'), [['Block', '10.1.2.0/24']])
  assert.deepEqual(found('no such thing'), [])
})

test('a field narrows', () => {
  assert.deepEqual(found('pool:we'), [['Pool', 'west']])
  assert.deepEqual(found('claim:we'), [['Claim', 'team-a/web']])
  assert.deepEqual(found('project:sh'), [['Project', 'shop']])
  assert.deepEqual(found('cluster:team-b'), [['Cluster', 'team-b/prod']])
  assert.deepEqual(found('machine:m-0'), [['Machine', 'm-0']])
  assert.deepEqual(found('pool:'), [])
})

test('suggestions are few, and the same name is first', () => {
  const store = storeWith()
  for (let i = 0; i < 500; i++) store.apply({ type: 'pools', pools: [{ id: `IPPool/core-${i}`, kind: 'IPPool', namespace: '', name: `core-${i}`, known: true, family: 4 }] })
  const all = suggest(store, 'core')
  assert.equal(all.length, 10)
  assert.equal(all[0].text, 'core')
  assert.equal(all.at(-1).kind, 'Machine')
})

test('targets', () => {
  assert.deepEqual(suggest(storeWith(), 'west')[0].target, { type: 'key', key: 'p:IPPool/west' })
  assert.deepEqual(suggest(storeWith(), 'team-b')[0].target, { type: 'filter', filter: 'namespace:team-b' })
  assert.deepEqual(suggest(storeWith(), 'prod')[1].target, { type: 'filter', filter: 'cluster:team-b/prod' })
  assert.deepEqual(suggest(storeWith(), '10.0.0.1')[0].target, { type: 'range', family: 4, from: 0x0a000001n, to: 0x0a000001n, text: '10.0.0.1' })
})
