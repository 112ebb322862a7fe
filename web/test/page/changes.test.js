import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Changes } from '../../page/changes.js'
import { Store } from '../../page/store.js'
import { block, firstState, pool, waiting } from '../fakes/register.js'

function begun(options = {}) {
  const store = new Store()
  const changes = new Changes({ now: () => 42, ...options })
  store.listen((delta) => changes.take(delta))
  for (const message of firstState()) store.apply(message)
  return { store, changes, last: () => changes.last().map((c) => [c.what, c.text, c.key]) }
}

test('the first state is no change', () => {
  assert.deepEqual(begun().last(), [])
})

test('granted, changed and released', () => {
  const { store, changes, last } = begun()
  const one = (fields) => store.apply({ type: 'blocks', blocks: [block('new', '10.5.0.0/24', fields)] })
  one()
  one({ state: 'Retained' })
  one({ state: 'Retained', drained: true })
  one({ state: 'Cooling', drained: true })
  one({ state: 'Cooling', drained: true, terminating: true })
  store.apply({ type: 'gone', blocks: ['new'] })
  assert.deepEqual(last().map(([what]) => what).reverse(), ['granted', 'retained', 'out of range', 'cooling', 'terminating', 'released'])
  assert.deepEqual(last()[0], ['released', '10.5.0.0/24', 'b:new'])
  assert.deepEqual([changes.last()[0].time, changes.last()[0].detail], [42, 'IPClaim team-a/new'])
})

test('pools and waiting claims', () => {
  const { store, last } = begun()
  store.apply({ type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/8', usage: { blocks: 3 } })] })
  assert.deepEqual(last(), [], 'its usage alone is no change')
  store.apply({ type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/8', phase: 'Exhausted' }), pool('IPPool/east', { cidr: '10.9.0.0/16' })] })
  store.apply({ type: 'waiting', claims: [waiting('late'), waiting('later'), waiting('late', { reason: 'Conflict' })] })
  store.apply({ type: 'gone', claims: ['late'], pools: ['IPPool/east'] })
  assert.deepEqual(last().map(([what, text]) => `${what} ${text}`).reverse(), [
    'pool is Exhausted core', 'pool added east', 'waits team-b/later', 'waits: Conflict team-b/late', 'pool deleted east', 'waits no more team-b/late',
  ])
})

test('a difference after a lost connection is a change', () => {
  const { store, last } = begun()
  const messages = firstState()
  messages[3].blocks = messages[3].blocks.filter((b) => b.id !== 'db')
  for (const message of messages) store.apply(message)
  assert.deepEqual(last(), [['released', '10.2.0.0/24', 'b:db']])
})

test('memory is bounded, and all are counted', () => {
  const { store, changes } = begun({ most: 10 })
  const many = Array.from({ length: 5000 }, (_, i) => block(`n${i}`, '10.5.0.0/24'))
  store.apply({ type: 'blocks', blocks: many })
  assert.equal(changes.total, 5000)
  assert.equal(changes.last().length, 10)
  assert.equal(changes.last()[0].key, 'b:n4999')
  assert.ok(changes.kept <= 20)
})
