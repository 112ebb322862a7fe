// node web/test/map/bench.js: what frames and changes cost, by the number of strips, without
// what a browser takes to fill the rectangles.

import { View } from '../../map/view.js'
import { CountingContext } from '../fakes/canvas.js'
import { large, strip } from './generate.js'
import { mapOf } from './scene.js'

const FRAMES = 120

/** Counts what a map does in each of many frames while its view moves. */
export function measure(count, frames = FRAMES, clock = () => performance.now()) {
  const data = large(count)
  const before = clock()
  const { map, window, context } = mapOf(data, { width: 1400, height: 800, Context: CountingContext })
  const first = clock() - before
  const { locate } = View.prototype
  let steps = 0
  View.prototype.locate = function (...of) {
    steps++
    return locate.apply(this, of)
  }
  const result = { strips: data.strips.length, first, frames: [], calls: 0, steps: 0 }
  try {
    for (const depth of [0, 3, 8]) {
      map.fit('default')
      map.zoom(2 ** depth, 0)
      for (let k = 0; k < frames; k++) {
        context.calls = 0
        steps = 0
        map.pan(k % 40 < 20 ? 0.013 : -0.013)
        window.frame()
        result.calls = Math.max(result.calls, context.calls)
        result.steps = Math.max(result.steps, steps)
      }
    }
  } finally {
    View.prototype.locate = locate
  }
  for (let k = 0; k < frames; k++) {
    map.pan(k % 40 < 20 ? 0.013 : -0.013)
    const start = clock()
    window.frame()
    result.frames.push(clock() - start)
  }
  result.frames.sort((a, b) => a - b)
  result.change = costOfChange(map, window, data, clock)
  return result
}

/** How long the frame takes after one block came and another one went. */
function costOfChange(map, window, data, clock) {
  const times = []
  for (let k = 0; k < 20; k++) {
    const at = data.strips[200 + k]
    map.change({ put: { strips: [strip(`new${k}`, at.space, at.parent, at.to + 1n, at.to + 1n)] }, remove: [at.id] })
    const start = clock()
    window.frame()
    times.push(clock() - start)
  }
  return times.sort((a, b) => a - b)[10]
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  console.log('strips   first ms  frame ms (median, worst)  after a change ms  calls  steps  heap MB')
  for (const count of [1000, 10000, 100000, 1000000]) {
    const { strips, first, frames, change, calls, steps } = measure(count)
    const row = [strips, first.toFixed(0), `${frames[FRAMES / 2].toFixed(2)}, ${frames[FRAMES - 1].toFixed(2)}`, change.toFixed(1), calls, steps]
    console.log([...row, Math.round(process.memoryUsage().heapUsed / 1e6)].join('   '))
  }
}
