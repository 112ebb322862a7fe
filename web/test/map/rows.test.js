import assert from 'node:assert/strict'
import test from 'node:test'

import { THEMES } from '../../map/theme.js'
import { large, randomOf, strip } from './generate.js'
import { Model } from './model.js'
import { mapOf } from './scene.js'

const pool = (id, parent, from, to, more) => strip(id, 's', parent, from, to, { kind: 'pool', state: 'carved', ...more })
const spaces = [{ id: 's', name: 's', family: 4 }]

test('the rows are the strips and the free space of the screen, in the order of the addresses', () => {
  const { map } = mapOf({ spaces, strips: [
    pool('p', null, 0n, 979n), pool('child', 'p', 500n, 599n), strip('a', 's', 'p', 100n, 149n, { label: 'web', sub: 'team' }),
    strip('w', 's', 'p', 200n, 209n, { state: 'waiting' }),
  ] })
  const rows = map.visible().map(({ id, level, from, to, state }) => [id, level, Number(from), Number(to), state])
  assert.deepEqual(rows, [
    ['p', 1, 0, 979, 'carved'], [null, 2, 0, 99, 'free'], ['a', 2, 100, 149, 'held'], [null, 2, 150, 499, 'free'],
    ['w', 2, 200, 209, 'waiting'], ['child', 2, 500, 599, 'carved'], [null, 3, 500, 599, 'free'], [null, 2, 600, 979, 'free'],
  ])
  const [, free, a] = map.visible()
  assert.deepEqual([free.label, free.sub, a.label, a.sub], ['100 free', '0.0.0.0–0.0.0.99', 'web', 'team'])
  map.view = { space: 's', from: 120n, to: 130n }
  assert.deepEqual(map.visible().map(({ id }) => id), ['p', 'a'])
})

test('free space that goes on beyond the screen ends where the next strip begins', () => {
  const { map } = mapOf({ spaces, strips: [
    pool('p', null, 0n, 979n), strip('a', 's', 'p', 100n, 149n), strip('b', 's', 'p', 300n, 309n), strip('c', 's', 'p', 400n, 499n),
  ] })
  map.view = { space: 's', from: 200n, to: 350n }
  const free = () => map.visible().filter(({ state }) => state === 'free').map(({ from, to }) => [Number(from), Number(to)])
  assert.deepEqual(free(), [[150, 299], [310, 399]])
  map.view = { space: 's', from: 200n, to: 250n }
  assert.deepEqual(free(), [[150, 299]])
  map.view = { space: 's', from: 700n, to: 750n }
  assert.deepEqual(free(), [[500, 979]])
})

test('strips that are too narrow are one row, with their kinds', () => {
  const strips = [pool('p', null, 0n, 979999n)]
  for (let k = 0; k < 500; k++) strips.push(strip(`b${k}`, 's', 'p', BigInt(k), BigInt(k), { state: k < 3 ? 'cooling' : 'held' }))
  const { map } = mapOf({ spaces, strips })
  const several = map.visible().find(({ state }) => state === 'several')
  assert.deepEqual([several.count, several.from, several.to], [500, 0n, 499n])
  assert.match(several.sub, /497 held.*3 cooling/)
  map.change({ put: { strips: Array.from({ length: 9 }, (_, k) => strip(`far${k}`, 's', 'p', BigInt(500000 + k), BigInt(500000 + k))) } })
  assert.deepEqual(map.visible().filter(({ state }) => state === 'several').map(({ count }) => count), [500, 9])
  map.view = { space: 's', from: 0n, to: 4n }
  assert.deepEqual(map.visible().map(({ id }) => id), ['p', 'b0', 'b1', 'b2', 'b3', 'b4'])
})

test('every strip on the screen is in a row, and no more rows are given than were asked for', () => {
  for (let seed = 1; seed <= 40; seed++) {
    const random = randomOf(seed)
    const model = new Model(random, seed % 2 ? 4 : 6)
    for (let n = 0; n < 6; n++) model.change(20)
    const { map } = mapOf({ spaces: model.spaces, strips: model.all })
    map.zoom(Math.exp(random() * 6), random() * 900)
    const rows = map.visible(Infinity)
    const { from, to } = map.view
    const shown = model.all.filter((one) => one.from <= to && one.to >= from && model.levelOf(one) !== 'circle')
    for (const one of shown) {
      const isThere = rows.some((row) => row.id === one.id || (row.id === null && row.count > 1 && row.from <= one.from && one.to <= row.to))
      assert.ok(isThere, `seed ${seed}: ${one.id}`)
    }
    for (let k = 1; k < rows.length; k++) assert.ok(rows[k - 1].from <= rows[k].from)
    const few = map.visible(5)
    assert.ok(few.length <= 5)
    assert.equal(few.length + few.more, rows.length)
  }
})

test('the rows of 100,000 strips are as many as there are places on the screen', () => {
  const { map } = mapOf(large(100000), { width: 1400 })
  assert.ok(map.visible(Infinity).length < 1000)
})

test('the legend counts the strips of each state, value and age', () => {
  const day = 86400e3
  const { map } = mapOf({ spaces, strips: [
    pool('p', null, 0n, 979n), strip('a', 's', 'p', 0n, 0n, { facets: { project: 'x' }, since: 1e12 - day / 2 }),
    strip('b', 's', 'p', 1n, 1n, { facets: { project: 'x' } }), strip('c', 's', 'p', 2n, 2n, { state: 'cooling', facets: { project: 'y' } }),
    strip('w', 's', 'p', 3n, 3n, { kind: 'span', state: 'withheld' }),
  ] })
  const counts = () => Object.fromEntries(map.legend().map(({ label, count }) => [label, count]))
  assert.deepEqual(counts(), { free: 0, held: 2, 'carved into a child pool': 1, withheld: 1, cooling: 1 })
  map.change({ put: { strips: [strip('b', 's', 'p', 1n, 1n, { state: 'cooling', facets: { project: 'z' } })] }, remove: ['w'] })
  assert.deepEqual(counts(), { free: 0, held: 1, 'carved into a child pool': 1, cooling: 2 })
  map.colorBy('project')
  assert.deepEqual(counts(), { x: 1, y: 1, z: 1, 'no project': 1 })
  map.colorBy('age')
  assert.deepEqual(counts(), { 'no date': 3, 'up to 1 day': 1 })
  for (const entry of map.legend()) assert.match(entry.color, /^#[0-9a-f]{6}$/)
  map.theme = 'dark'
  map.colorBy('state')
  assert.equal(map.legend().find(({ label }) => label === 'held').color, THEMES.dark.colors.held.fill)
  assert.throws(() => (map.theme = 'pink'), /pink is not a theme/)
})

test('colors by age follow the time', () => {
  let now = 1e12
  const { map, window } = mapOf({ spaces, strips: [strip('a', 's', null, 0n, 0n, { since: 1e12 - 3590e3 })] }, { now: () => new Date(now) })
  map.colorBy('age')
  assert.equal(map.legend()[0].label, 'up to 1 hour')
  now += 61e3
  for (const timer of window.timers.values()) timer()
  assert.equal(map.legend()[0].label, 'up to 1 day')
})

test('a match of a search is marked above its strips, once in a column', () => {
  const strips = [pool('p', null, 0n, 979999n)]
  for (let k = 0; k < 5000; k++) strips.push(strip(`b${k}`, 's', 'p', BigInt(k * 10), BigInt(k * 10)))
  strips.push(strip('wide', 's', 'p', 500000n, 600000n))
  const { map, draw } = mapOf({ spaces, strips })
  const marks = () => draw().rectangles.filter(({ style }) => style === THEMES.light.mark)
  assert.equal(marks().length, 0)
  map.highlight(strips.filter(({ id }) => id.startsWith('b')).map(({ id }) => id))
  assert.equal(marks().length, 50)
  map.highlight(['wide', 'nobody'])
  assert.equal(marks()[0].x, 510)
  map.change({ put: { strips: [strip('c', 's', 'p', 400000n, 400000n)] } })
  assert.equal(marks()[0].x, 510, 'after the strips before it changed')
  map.change({ remove: ['wide'] })
  assert.equal(marks().length, 0)
  map.highlight([])
})

test('the selected strip is outlined, and the strips above and below it are shaded', () => {
  const { map, draw } = mapOf({ spaces, strips: [pool('p', null, 0n, 979n), strip('a', 's', 'p', 100n, 149n)] })
  const drawn = (style) => draw().rectangles.filter((r) => r.style === style)
  assert.equal(drawn(THEMES.light.accent).length, 0)
  map.select('a')
  const [top] = drawn(THEMES.light.accent)
  assert.deepEqual([top.x, top.width], [108, 54])
  assert.deepEqual(drawn(THEMES.light.shade).map(({ x, width }) => [x, width]), [[110, 50], [110, 50]])
  map.view = { space: 's', from: 500n, to: 599n }
  assert.equal(drawn(THEMES.light.accent).length, 0, 'it is not on the screen')
  map.change({ remove: ['a'] })
  assert.equal(drawn(THEMES.light.accent).length, 0)
})
