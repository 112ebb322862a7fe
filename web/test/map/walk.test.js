import assert from 'node:assert/strict'
import test from 'node:test'

import { Lane } from '../../map/lane.js'
import { View } from '../../map/view.js'
import { columnOf, hit, rightEdge, shareOf, walk } from '../../map/walk.js'
import { strip } from './generate.js'

/** A lane of ranges, and a view of ten addresses a pixel. */
function laneOf(...ranges) {
  const lane = new Lane()
  lane.fill(ranges.map(([from, to], k) => ({ strip: strip(`${k}`, 's', null, BigInt(from), BigInt(to)), at: -1, lane: null })))
  lane.categorize(() => 0, 1)
  const view = new View(4)
  view.resize(100)
  view.set(0n, 999n)
  return { lane, view }
}

function visits({ lane, view }) {
  const visited = []
  walk(lane, view, { wide: (_, i, x0, x1) => visited.push(['wide', i, x0, x1]), clump: (_, i, j, column) => visited.push(['clump', i, j, column]) })
  return visited
}

test('a range that is a pixel wide is visited by itself, and the rest by columns', () => {
  const scene = laneOf([0, 3], [5, 6], [7, 26], [40, 49], [55, 55], [990, 999], [1000, 1010])
  assert.deepEqual(visits(scene), [['clump', 0, 2, 0], ['wide', 2, 0, 2], ['wide', 3, 4, 5], ['clump', 4, 5, 5], ['wide', 5, 99, 100]])
})

test('a long strip is drawn with the last pixel that it has a part of, unless the next one begins there', () => {
  const { lane, view } = laneOf([0, 104], [200, 304], [307, 500], [600, 634])
  assert.deepEqual([0, 1, 2, 3].map((i) => rightEdge(lane, view, i)), [11, 30, 51, 63])
})

test('a column at the end of a run is as full as it is covered', () => {
  const { lane, view } = laneOf([8, 12], [14, 14], [30, 34], [50, 59])
  assert.ok(Math.abs(shareOf(lane, view, 0, 1, columnOf(lane, view, 0)) - 0.2) < 1e-9, 'without what is in the next column')
  assert.ok(Math.abs(shareOf(lane, view, 1, 2, 1) - 0.4) < 1e-9, 'with what goes on from the column before')
  assert.equal(shareOf(lane, view, 2, 3, 3), 0.5)
})

test('a hit is the visited range there', () => {
  const { lane, view } = laneOf([0, 3], [5, 6], [7, 26], [40, 49], [55, 55], [990, 999])
  const at = (pixel, address) => hit(lane, view, pixel, BigInt(address))
  assert.deepEqual([at(0, 1), at(0, 6), at(0, 9), at(1, 15), at(2, 21), at(4, 45), at(5, 52), at(6, 60), at(99, 995)], [0, 1, 1, 2, -1, 3, 4, -1, 5])
})
