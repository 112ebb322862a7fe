import assert from 'node:assert/strict'
import test from 'node:test'

import { lastOf } from '../../map/address.js'
import { THEMES } from '../../map/theme.js'
import { Measure } from '../../map/text.js'
import { randomOf, strip } from './generate.js'
import { Model } from './model.js'
import { mapOf } from './scene.js'

const MARGIN = 10

function randomMap(seed) {
  const random = randomOf(seed)
  const model = new Model(random, seed % 2 ? 4 : 6)
  for (let n = 0; n < 8; n++) model.change(15)
  const made = mapOf({ spaces: model.spaces, strips: model.all }, { width: 300 + Math.floor(random() * 900), height: 200 + Math.floor(random() * 500) })
  // At a random depth, around a strip.
  const target = model.all[Math.floor(random() * model.all.length)]
  if (random() < 0.7) made.map.fit(target.id)
  made.map.zoom(Math.exp((random() - 0.5) * 3))
  return { ...made, model, random }
}

const pool = (id, parent, from, to, more) => strip(id, 's', parent, from, to, { kind: 'pool', state: 'carved', ...more })
const four = [{ id: 's', name: 's', family: 4 }]

test('labels do not overlap, and are inside of the view and of a rectangle of their row', () => {
  let labels = 0
  for (let seed = 1; seed <= 150; seed++) {
    const { draw, map } = randomMap(seed)
    const { texts, rectangles } = draw()
    const measure = new Measure()
    const { context } = { context: map.canvas.getContext('2d') }
    const boxes = texts.map(({ text, x, y, font, clipped, after }) => ({ text, x0: x, x1: x + measure.width(context, font, text), y0: y - 7, y1: y + 7, clipped, after }))
    for (const [k, a] of boxes.entries()) {
      assert.ok(a.x0 >= a.clipped.x && a.x1 <= a.clipped.x + a.clipped.width, `seed ${seed}: ${a.text} is cut off`)
      for (const b of boxes.slice(k + 1)) {
        assert.ok(a.x1 <= b.x0 || b.x1 <= a.x0 || a.y1 <= b.y0 || b.y1 <= a.y0, `seed ${seed}: ${a.text} and ${b.text} overlap`)
      }
    }
    // Below the axis every text is a label, and has a strip around it that is drawn before.
    for (const a of boxes.filter(({ y0 }) => y0 > 55)) {
      labels++
      const around = rectangles.slice(0, a.after).some(({ x, y, width, height }) => x <= a.x0 && a.x1 <= x + width && y <= a.y0 && a.y1 <= y + height)
      assert.ok(around, `seed ${seed}: ${a.text} has no strip around it`)
      for (const { x, y, width, height } of rectangles.slice(a.after)) {
        const isMark = width <= 4 || height <= 4
        if (!isMark) assert.ok(x >= a.x1 || x + width <= a.x0 || y >= a.y1 || y + height <= a.y0, `seed ${seed}: something is drawn over ${a.text}`)
      }
    }
  }
  assert.ok(labels > 200, `only ${labels} labels`)
})

test('a strip is found where it is drawn, and nothing where nothing is', () => {
  let hits = 0
  for (let seed = 1; seed <= 60; seed++) {
    const { map, draw, random } = randomMap(seed)
    const { rectangles } = draw()
    const colors = THEMES.light.colors
    const free = new Set([colors.free.fill, colors.free.edge])
    const other = new Set([THEMES.light.background, THEMES.light.grid, THEMES.light.muted, THEMES.light.line])
    for (let n = 0; n < 200; n++) {
      const { width, height } = { width: map.canvas.width / 2, height: map.canvas.height / 2 }
      const x = MARGIN + Math.floor(random() * (width - 2 * MARGIN)) + 0.5
      const y = Math.floor(random() * height) + 0.5
      const at = map.at(x, y)
      const on = rectangles.filter((r) => r.x <= x && x < r.x + r.width && r.y <= y && y < r.y + r.height && !other.has(r.style))
      const strips = on.filter((r) => !free.has(r.style))
      if (at === null || at.level === 0) continue
      const context = `seed ${seed}, at ${x}, ${y}`
      if (strips.length > 0) {
        hits++
        assert.notEqual(at.strip, null, `${context}: drawn, but not found`)
        const pixel = Number(map.view.to - map.view.from + 1n) / (width - 2 * MARGIN)
        assert.ok(Number(at.strip.from - at.address) <= pixel + 1 && Number(at.address - at.strip.to) <= pixel + 1, `${context}: ${at.strip.id} is elsewhere`)
      }
      if (on.length > 0 && strips.length === 0 && at.strip === null) {
        let above = at
        for (let up = y; above !== null && above.level !== at.level - 1; up--) above = map.at(x, up)
        const isInside = above !== null && above.strip !== null && above.strip.from <= at.address && at.address <= above.strip.to
        const isFound = [0, -1, 1].some((by) => map.at(x + by, y).free !== null || map.at(x + by, y).strip !== null)
        assert.ok(!isInside || isFound, `${context}: free space is drawn, but not found`)
      }
      if (on.length === 0 && at.strip !== null) {
        // Between neighbors is a pixel in which nothing is drawn, and above a column that is not
        // full there is space.
        const neighbor = map.at(x - 1, y)?.strip
        const isBelow = rectangles.some((r) => r.x <= x && x < r.x + r.width && r.y > y && r.y - y < 70)
        assert.ok(neighbor?.id === at.strip.id || isBelow, `${context}: ${at.strip.id} is found, but not drawn`)
      }
    }
  }
  assert.ok(hits > 1500, `only ${hits} hits`)
})

test('the drawing of a strip that is wide enough is as long as it has addresses', () => {
  const { draw, map } = mapOf({ spaces: four, strips: [pool('p', null, 0n, 979n), strip('a', 's', 'p', 100n, 149n), strip('b', 's', 'p', 150n, 150n, { state: 'drained' })] })
  const { rectangles } = draw()
  const held = rectangles.filter(({ style }) => style === THEMES.light.colors.held.fill)
  assert.deepEqual(held.map(({ x, width }) => [x, width]), [[MARGIN + 100, 49]], 'less one pixel between neighbors')
  assert.equal(map.at(MARGIN + 100.5, held[0].y + 5).strip.id, 'a')
  assert.equal(map.at(MARGIN + 99.5, held[0].y + 5).strip, null)
  assert.deepEqual(map.at(MARGIN + 99.5, held[0].y + 5).free, { from: 0n, to: 99n })
  assert.equal(map.at(MARGIN + 150.5, held[0].y + 5).strip.id, 'b')
  assert.deepEqual(map.at(MARGIN + 500, held[0].y + 5).free, { from: 151n, to: 979n })
  assert.equal(map.at(MARGIN + 500, 5000), null)
})

test('a column of many strips shows how much they cover, and each of their states', () => {
  const strips = [pool('p', null, 0n, 979999n)]
  // In each pixel of 1000 addresses: 400 held, one cooling.
  for (let k = 0; k < 980; k++) {
    for (let n = 0; n < 4; n++) strips.push(strip(`h${k}-${n}`, 's', 'p', BigInt(k * 1000 + n * 100), BigInt(k * 1000 + n * 100 + 99)))
    strips.push(strip(`c${k}`, 's', 'p', BigInt(k * 1000 + 400), BigInt(k * 1000 + 400), { state: 'cooling' }))
  }
  const { draw, map } = mapOf({ spaces: four, strips })
  const { rectangles } = draw()
  const held = rectangles.filter(({ style, y }) => style === THEMES.light.colors.held.fill && y > 100)
  const row = 68
  const area = held.reduce((sum, r) => sum + r.width * r.height, 0) / 980
  assert.ok(Math.abs(area / row - 0.33) < 0.06, `held is ${area} of ${row} high`)
  assert.ok(rectangles.some(({ style, y }) => style.isPattern && y > 100), 'one of 401 is seen')
  assert.ok(rectangles.length < 150, `${rectangles.length} rectangles: equal columns are joined`)
  assert.equal(map.at(MARGIN + 300.5, held[0].y + 3).strip.parent, 'p')
})

test('of several strips in a column the one under the pointer is found, and one that goes on behind it is drawn', () => {
  const strips = [pool('p', null, 0n, 97999n), strip('a', 's', 'p', 0n, 9n), strip('b', 's', 'p', 40n, 49n), strip('c', 's', 'p', 80n, 899n, { state: 'retained' })]
  const { draw, map } = mapOf({ spaces: four, strips })
  const pattern = draw().rectangles.filter(({ style, y }) => style.isPattern && y > 100)
  assert.deepEqual(pattern.map(({ x, width }) => [x, width]), [[MARGIN, 9]])
  const y = pattern[0].y + 1
  const found = [0.05, 0.45, 0.9, 1.5, 8.5].map((x) => map.at(MARGIN + x, y).strip?.id)
  assert.deepEqual(found, ['a', 'b', 'b', 'c', 'c'])
  assert.equal(map.at(MARGIN + 9.5, y).strip, null)
})

test('one strip of a hundred in a column is seen', () => {
  const strips = [pool('p', null, 0n, 97999n)]
  for (let k = 0; k < 100; k++) strips.push(strip(`b${k}`, 's', 'p', BigInt(k), BigInt(k), { state: k === 50 ? 'cooling' : 'held' }))
  const { rectangles } = mapOf({ spaces: four, strips }).draw()
  const pattern = rectangles.filter(({ style, y }) => style.isPattern && y > 100)
  assert.deepEqual(pattern.map(({ width, height }) => [width, height]), [[1, 1]])
})

test('of blocks in each other the inner one is found', () => {
  const { map } = mapOf({ spaces: four, strips: [pool('p', null, 0n, 979n), strip('outer', 's', 'p', 0n, 499n), strip('inner', 's', 'p', 100n, 199n)] })
  const y = 55 + 68 + 4 + 20
  assert.deepEqual([50, 150, 250].map((x) => map.at(MARGIN + x, y).strip.id), ['outer', 'inner', 'outer'])
})

test('free space has a label where it is wide, and not above strips', () => {
  const freeLabels = (strips) => mapOf({ spaces: four, strips: [pool('p', null, 0n, 979999n), ...strips] }).draw().texts.map(({ text }) => text).filter((text) => text.endsWith(' free'))
  assert.deepEqual(freeLabels([]), ['980,000 free'])
  assert.deepEqual(freeLabels([strip('a', 's', 'p', 100000n, 799999n)]), ['100,000 free', '180,000 free'])
  assert.deepEqual(freeLabels(Array.from({ length: 33 }, (_, k) => strip(`b${k}`, 's', 'p', BigInt(k) * 30000n, BigInt(k) * 30000n))), [])
})

test('a band that is too low for text has none', () => {
  const data = { spaces: four, strips: [pool('p', null, 0n, 979n), strip('w', 's', 'p', 0n, 979n, { state: 'waiting', label: 'claim' })] }
  assert.ok(mapOf(data).draw().texts.some(({ text }) => text === 'claim'))
  assert.ok(!mapOf(data, { height: 100 }).draw().texts.some(({ text }) => text === 'claim'))
})

test('free and full differ though every strip is narrower than a pixel', () => {
  const strips = [pool('p', null, 0n, 99999n)]
  for (let k = 0; k < 50000; k++) strips.push(strip(`h${k}`, 's', 'p', BigInt(k), BigInt(k)))
  const { rectangles } = mapOf({ spaces: four, strips }).draw()
  const held = rectangles.filter(({ style, y }) => style === THEMES.light.colors.held.fill && y > 100)
  assert.equal(held.length, 1, 'one rectangle for all')
  assert.deepEqual([held[0].x, held[0].width, held[0].height], [MARGIN, 490, 68])
})

test('every call has numbers, for any data and view', () => {
  const cases = {
    'nothing at all': { spaces: [], strips: [] },
    'a space without strips': { spaces: four, strips: [] },
    'a pool without blocks': { spaces: four, strips: [pool('p', null, 0n, 255n)] },
    'all of IPv4': { spaces: four, strips: [pool('p', null, 0n, lastOf(4)), strip('last', 's', 'p', lastOf(4), lastOf(4))] },
    'one address': { spaces: four, strips: [pool('p', null, 7n, 7n), strip('b', 's', 'p', 7n, 7n)] },
    'a /128 in ::/0': { spaces: [{ id: 's', name: 's', family: 6 }], strips: [pool('p', null, 0n, lastOf(6)), strip('b', 's', 'p', 1n << 77n, 1n << 77n)] },
    'the last /128': { spaces: [{ id: 's', name: 's', family: 6 }], strips: [pool('p', null, 0n, lastOf(6)), strip('b', 's', 'p', lastOf(6), lastOf(6))] },
    'blocks of pools that are not known': { spaces: four, strips: [strip('a', 's', 'gone', 5n, 9n), strip('b', 's', null, 10n, 10n)] },
    'strips of a space that is not known': { spaces: four, strips: [strip('a', 'other', null, 5n, 9n)] },
    'texts that are missing': { spaces: four, strips: [{ id: 'a', space: 's', parent: null, from: 0n, to: 9n, kind: 'block', state: 'strange', label: '' }] },
  }
  for (const [name, data] of Object.entries(cases)) {
    for (const by of ['state', 'project', 'age']) {
      for (const size of [{}, { width: 1, height: 1 }, { width: 0, height: 0 }, { width: 390, height: 90 }]) {
        const { map, draw, window } = mapOf(data, size)
        map.colorBy(by)
        draw()
        for (const { id } of data.strips) {
          map.fit(id)
          map.select(id)
          map.highlight([id])
          draw()
          const entry = map.at(map.canvas.width / 4, map.canvas.height / 4)
          assert.ok(entry === null || typeof entry.address === 'bigint', name)
        }
        for (let k = 0; k < 12; k++) {
          map.zoom(k % 2 ? 1e9 : 1e-4, k * 30)
          map.pan(k - 5)
          draw()
        }
        map.visible()
        map.legend()
        map.destroy()
        window.frame()
      }
    }
  }
})

test('a /128 in ::/0 is seen in all of it, and fills the view when it is opened', () => {
  const address = (0x20010db8n << 96n) + 77n
  const { map, draw } = mapOf({ spaces: [{ id: 's', name: 's', family: 6 }], strips: [pool('p', null, 0n, lastOf(6)), strip('b', 's', 'p', address, address)] })
  const held = () => draw().rectangles.filter(({ style, y }) => style === THEMES.light.colors.held.fill && y > 100)
  assert.equal(held().length, 1)
  assert.equal(held()[0].width, 1)
  assert.equal(map.at(held()[0].x + 0.5, held()[0].y + 1).strip.id, 'b')
  map.view = { space: 's', from: address, to: address }
  assert.deepEqual(held().map(({ width }) => width), [980])
  assert.equal(map.at(500, held()[0].y + 1).address, address)
  map.fit('b')
  const [one] = held()
  assert.ok(Math.abs(one.width - 980 / 5) <= 2, 'with as much again around it')
})

test('a withheld block that is held is drawn as the block, and awaited space above it', () => {
  const { map, draw } = mapOf({ spaces: four, strips: [
    pool('p', null, 0n, 979n), strip('span', 's', 'p', 100n, 299n, { kind: 'span', state: 'withheld' }),
    strip('drained', 's', 'p', 200n, 249n, { state: 'drained' }), strip('wait', 's', 'p', 240n, 259n, { state: 'waiting' }),
  ] })
  draw()
  const y = 55 + 68 + 4 + 20
  const ids = [150, 210, 245, 255, 270].map((x) => map.at(MARGIN + x + 0.5, y + 30).strip?.id)
  assert.deepEqual(ids, ['span', 'drained', 'drained', 'span', 'span'])
  assert.deepEqual([230, 245, 258, 262].map((x) => map.at(MARGIN + x + 0.5, y - 10).strip?.id), ['drained', 'wait', 'wait', 'span'])
})

test('the theme that is set is the one that is drawn', () => {
  const { map, draw } = mapOf({ spaces: four, strips: [pool('p', null, 0n, 979n), strip('a', 's', 'p', 0n, 99n), strip('b', 's', 'p', 200n, 299n, { state: 'cooling' })] })
  const light = new Set(draw().rectangles.map(({ style }) => style))
  map.theme = 'dark'
  const dark = new Set(draw().rectangles.map(({ style }) => style))
  assert.deepEqual([...light].filter((style) => dark.has(style)), [])
  assert.ok(dark.has(THEMES.dark.colors.held.fill))
})

test('a CIDR is not cut off: of one that does not fit only the length is shown', () => {
  const label = (text, width, sub = '') => mapOf({ spaces: four, strips: [pool('p', null, 0n, 979n, { label: '' }), strip('a', 's', 'p', 0n, BigInt(width - 1), { label: text, sub })] })
    .draw().texts.filter(({ y }) => y > 100).map((one) => one.text).filter((one) => !one.endsWith('free'))
  assert.deepEqual(label('10.0.0.0/24', 200), ['10.0.0.0/24'])
  assert.deepEqual(label('10.0.0.0/24', 60), ['/24'])
  assert.deepEqual(label('10.0.0.100', 60), [])
  assert.deepEqual(label('2001:db8:1::/48', 60), ['/48'])
  assert.deepEqual(label('web-server-1', 80), ['web-…r-1'])
  assert.deepEqual(label('web-server-1', 30), [])
  assert.deepEqual(label('web-server-1', 40, '10.0.0.0/24'), ['/24'])
})

test('a column that many strips go on in, and one where they end, are as high as they cover', () => {
  // Four addresses in five, 73 addresses in a pixel, up to the middle of column 400.
  const strips = [pool('p', null, 0n, 979n * 73n + 72n)]
  for (let k = 0; k < 400.5 * 73; k++) if (k % 5 !== 4) strips.push(strip(`b${k}`, 's', 'p', BigInt(k), BigInt(k)))
  const { rectangles } = mapOf({ spaces: four, strips }).draw()
  const held = rectangles.filter(({ style, y }) => style === THEMES.light.colors.held.fill && y > 100)
  const column = (x) => held.find((r) => r.x <= MARGIN + x && MARGIN + x < r.x + r.width)?.height
  for (let x = 1; x < 399; x++) assert.ok(Math.abs(column(x) - 0.8 * 68) <= 1.5, `column ${x} is ${column(x)} high`)
  assert.ok(Math.abs(column(400) - 0.4 * 68) <= 2, `the last column is ${column(400)} high`)
  assert.equal(column(401), undefined)
})

test('a frame is drawn when something changed, and only then', () => {
  const { map, window } = mapOf({ spaces: four, strips: [pool('p', null, 0n, 979n)] })
  const { frames } = map.stats
  assert.equal(window.frame(), 0)
  for (let k = 0; k < 50; k++) map.change({ put: { strips: [strip(`b${k}`, 's', 'p', BigInt(k), BigInt(k))] } })
  map.pan(0.1)
  map.zoom(2)
  assert.equal(window.frame(), 1)
  assert.equal(map.stats.frames, frames + 1)
  assert.equal(window.frame(), 0)
  map.destroy()
  map.pan(0.1)
  assert.equal(window.frame(), 0)
})

test('a print is white, with the same strips at any scale', () => {
  const { map, context } = mapOf({ spaces: four, strips: [pool('p', null, 0n, 979n), strip('a', 's', 'p', 0n, 99n, { state: 'retained' })] }, { theme: 'dark' })
  for (const scale of [1, 2, 4.5]) {
    context.reset()
    const height = map.paintTo(context, 700, 400, scale)
    assert.ok(height > 100 && height < 400)
    assert.deepEqual(context.scales, [scale])
    assert.deepEqual([context.rectangles[0].style, context.rectangles[0].width], ['#ffffff', 700])
    assert.ok(context.rectangles.some(({ style, width }) => style.isPattern && Math.abs(width - 69) <= 2))
  }
})
