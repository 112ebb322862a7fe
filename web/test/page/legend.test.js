import assert from 'node:assert/strict'
import { test } from 'node:test'
import { joinLegends } from '../../page/legend.js'

const entry = (label, color, count) => ({ label, color, pattern: 'solid', count })

test('legends of several maps are one, with the sums', () => {
  const joined = joinLegends([{ name: 'a', entries: [entry('held', '#1', 2), entry('', '#9', 5)] }, { name: 'b', entries: [entry('held', '#1', 3), entry('cooling', '#2', 1)] }])
  assert.deepEqual(joined.map((one) => [one.label, one.count]), [['held', 5], ['cooling', 1]])
})

test('a label with two colors names the map of each', () => {
  const joined = joinLegends([{ name: 'a', entries: [entry('shop', '#1', 2)] }, { name: 'b', entries: [entry('shop', '#2', 3)] }])
  assert.deepEqual(joined.map((one) => [one.label, one.color, one.count]), [['shop (a)', '#1', 2], ['shop (b)', '#2', 3]])
})
