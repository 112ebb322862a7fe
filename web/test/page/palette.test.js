import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chooseSlots, sameSlots } from '../../map/coloring.js'
import { countsOf } from '../../page/palette.js'
import { pool, storeWith } from '../fakes/register.js'

const many = (n) => new Map(Array.from({ length: n }, (_, i) => [`project-${i}`, 100 - i]))

test('values have their own colors, the most frequent ones first', () => {
  const slots = chooseSlots(many(20))
  assert.equal(slots.size, 11)
  assert.equal(new Set(slots.values()).size, 11)
  assert.ok([...slots.values()].every((slot) => slot >= 0 && slot < 11))
  assert.deepEqual([...slots.keys()].sort(), [...many(11).keys()].sort())
  assert.equal(chooseSlots(new Map([['', 5]])).size, 0)
})

test('a value keeps its color while it exists, and a color is free again when its value is gone', () => {
  const before = chooseSlots(many(11))
  const after = chooseSlots(new Map([...many(30)].map(([value, n]) => [value, 200 - n])), before)
  assert.ok(sameSlots(before, after))
  const less = new Map([...many(12)].filter(([value]) => value !== 'project-3'))
  const next = chooseSlots(less, before)
  assert.equal(next.get('project-11'), before.get('project-3'))
  assert.equal(sameSlots(before, next), false)
})

test('blocks and pools are counted', () => {
  const store = storeWith()
  assert.deepEqual([...countsOf(store, 'cluster')], [['team-a/prod', 1], ['team-b/prod', 1]])
  assert.deepEqual([...countsOf(store, 'project')], [['shop', 1], ['bank', 1]])
  assert.deepEqual([...countsOf(store, 'holder')], [['IPClaim', 1], ['IPAddressClaim', 1], ['IPPool', 2]])
  assert.deepEqual([...countsOf(store, 'class')], [['nets', 3]])
  store.apply({ type: 'pools', pools: [pool('LocalIPPool/team-a/lab', { project: 'shop' })] })
  assert.equal(countsOf(store, 'project').get('shop'), 2)
})
