import assert from 'node:assert/strict'
import test from 'node:test'

import { measure } from './bench.js'

test('a frame costs as many calls and steps as there are pixels, for any number of strips', () => {
  const [small, medium, big] = [10000, 50000, 150000].map((count) => measure(count, 25))
  assert.ok(big.strips > 140000, `${big.strips} strips`)
  // Two panels of 1380 pixels, three ribbons each. In a column of a lane are a few rectangles;
  // a step is a search for a pixel, of which a column needs the logarithm of its strips.
  const columns = 1380 * 2 * 3
  for (const { calls, steps } of [small, medium, big]) {
    assert.ok(calls < columns * 2, `${calls} calls`)
    assert.ok(steps < columns * 20, `${steps} steps`)
  }
  assert.ok(big.calls < 2 * medium.calls, `${medium.calls} and ${big.calls} calls`)
  assert.ok(big.steps < 2 * medium.steps, `${medium.steps} and ${big.steps} steps`)
})
