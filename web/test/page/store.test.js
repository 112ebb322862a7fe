import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Store } from '../../page/store.js'
import { block, firstState, pool, storeWith, waiting } from '../fakes/register.js'

test('the first state is stored, and is complete at ready', () => {
  const store = new Store()
  const deltas = []
  store.listen((delta) => deltas.push(delta))
  for (const message of firstState()) store.apply(message)
  assert.equal(store.complete, true)
  assert.equal(store.hello.context, 'test')
  assert.deepEqual([store.pools.size, store.blocks.size, store.waiting.size], [2, 4, 1])
  assert.deepEqual([...store.blocksOf('IPPool/core')].map((b) => b.id).sort(), ['db', 'own-west'])
  assert.equal(store.ownBlock('IPPool/west').id, 'own-west')
  assert.deepEqual([...store.childrenOf('IPPool/core')], ['IPPool/west'])
  assert.deepEqual([...store.facet('project')], [['shop', 1], ['bank', 1]])
  assert.deepEqual(deltas.map((d) => [d.first, d.ready]), [[true, false], [true, false], [true, false], [true, false], [true, true]])
})

test('a pool has its space while one of its blocks is left', () => {
  const store = storeWith()
  const own = (id, cidr) => block(id, cidr, { pool: 'IPPool/core', child: 'IPPool/parts' })
  store.apply({ type: 'blocks', blocks: [own('uid', '10.2.0.0/30'), own('uid/10.2.0.8/31', '10.2.0.8/31')] })
  assert.equal(store.ownBlock('IPPool/parts').id, 'uid')
  store.apply({ type: 'gone', blocks: ['uid'] })
  assert.equal(store.ownBlock('IPPool/parts').id, 'uid/10.2.0.8/31')
  store.apply({ type: 'gone', blocks: ['uid/10.2.0.8/31'] })
  assert.equal(store.ownBlock('IPPool/parts'), undefined)
})

test('addresses are read once', () => {
  const store = storeWith()
  const { from, to, family, since } = store.blocks.get('web')
  assert.deepEqual([from, to, family, since], [0x0a010200n, 0x0a0102ffn, 4, Date.parse('2026-11-26T17:00:00Z')])
  assert.deepEqual(store.pools.get('IPPool/core').spans, [{ reason: 'reserved', family: 4, from: 0x0a000000n, to: 0x0a00ffffn, length: 16 }])
})

test('a change has the state before and after it', () => {
  const store = storeWith()
  const deltas = []
  store.listen((delta) => deltas.push(delta))
  store.apply({ type: 'blocks', blocks: [block('web', '10.1.2.0/24', { pool: 'IPPool/west', state: 'Retained' })] })
  store.apply({ type: 'gone', blocks: ['web'], claims: ['late', 'never-there'] })
  assert.deepEqual(deltas[0].blocks.map(([a, b]) => [a.state, b.state]), [['Bound', 'Retained']])
  assert.deepEqual(deltas[1].blocks.map(([a, b]) => [a.id, b]), [['web', null]])
  assert.deepEqual(deltas[1].waiting.map(([a, b]) => [a.id, b]), [['late', null]])
  assert.deepEqual([...store.blocksOf('IPPool/west')], [])
  assert.equal(store.facet('project').has('shop'), false)
})

test('a block that is said again as it was is no change', () => {
  const store = storeWith()
  const deltas = []
  store.listen((delta) => deltas.push(delta))
  store.apply({ type: 'blocks', blocks: [block('web', '10.1.2.0/24', { pool: 'IPPool/west', cluster: 'prod' })] })
  assert.deepEqual(deltas[0].blocks, [])
  assert.equal(store.facet('project').get('shop'), 1)
})

test('the known state stays while a connection begins again; then deleted objects are removed', () => {
  const store = storeWith()
  const deltas = []
  store.listen((delta) => deltas.push(delta))
  const [hello, unread, pools, blocks] = firstState()
  store.apply(hello)
  store.apply(unread)
  store.apply({ type: 'pools', pools: [pools.pools[0]] })
  assert.equal(store.pools.size, 2)
  assert.equal(store.complete, true)
  store.apply({ type: 'blocks', blocks: [...blocks.blocks.slice(0, 1), block('new', '10.9.0.0/24')] })
  store.apply({ type: 'ready' })
  assert.deepEqual([...store.pools.keys()], ['IPPool/core'])
  assert.deepEqual([...store.childrenOf('IPPool/core')], [])
  assert.deepEqual([...store.blocks.keys()].sort(), ['new', 'own-core'])
  assert.equal(store.waiting.size, 0)
  const last = deltas.at(-1)
  assert.equal(last.ready, true)
  assert.deepEqual(last.blocks.map(([a, b]) => [a.id, b]), [['own-west', null], ['web', null], ['db', null]])
  assert.ok(deltas.every((delta) => !delta.first))
})

test('a change after the state is complete removes nothing else', () => {
  const store = storeWith()
  store.apply({ type: 'blocks', blocks: [block('new', '10.9.0.0/24')] })
  store.apply({ type: 'ready' })
  assert.equal(store.blocks.size, 5)
})

test('a beat, and a message of a newer command, are no change', () => {
  const store = storeWith()
  store.listen(() => assert.fail('no delta'))
  store.apply({ type: 'beat', now: '', behind: '' })
  store.apply({ type: 'weather' })
})

test('a Cluster has its namespace, and is counted while any block is of it', () => {
  const store = storeWith()
  const deltas = []
  store.listen((delta) => deltas.push(delta))
  assert.deepEqual([...store.facet('cluster')], [['team-a/prod', 1], ['team-b/prod', 1]])
  assert.equal(store.waiting.get('late').cluster, 'team-b/dev')
  store.apply({ type: 'blocks', blocks: [block('web', '10.1.2.0/24', { pool: 'IPPool/west' })] })
  assert.deepEqual(deltas[0].blocks.map(([a, b]) => [a.cluster, b.cluster]), [['team-a/prod', '']])
  assert.deepEqual([...store.facet('cluster')], [['team-b/prod', 1]])
})

test('strings that repeat are kept once, and an unreadable block has no place', () => {
  const store = new Store()
  store.apply({ type: 'hello' })
  store.apply({ type: 'blocks', blocks: [block('a', 'what'), { id: 'b', cidr: '10.0.0.0/24' }] })
  assert.equal(store.blocks.get('a').from, -1n)
  assert.equal(store.blocks.get('b').holderName, '')
  store.apply({ type: 'pools', pools: [pool('IPPool/x', { cidr: '', withheld: [{ from: 'x', to: 'y', reason: '' }] })] })
  assert.deepEqual([store.pools.get('IPPool/x').from, store.pools.get('IPPool/x').spans], [null, []])
  store.apply({ type: 'waiting', claims: [waiting('w', { cidr: '10.0.0.0/30' })] })
  assert.equal(store.waiting.get('w').to, 0x0a000003n)
})
