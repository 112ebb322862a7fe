import assert from 'node:assert/strict'
import test from 'node:test'

import { lastOf } from '../../map/address.js'
import { coloringOf } from '../../map/coloring.js'
import { LAYERS, Store, layerOf } from '../../map/store.js'
import { View } from '../../map/view.js'
import { randomOf, strip } from './generate.js'
import { Model } from './model.js'

const NOW = () => 1e12

function storeOf(name = 'state') {
  return new Store(coloringOf(name, NOW))
}

/** Checks the whole index against all strips. */
function check(store, model, context) {
  const space = store.spaces.get('s')
  const found = new Map()
  for (const [level, layers] of space.levels.entries()) {
    layers.forEach((layer, k) => {
      for (const lane of layer.lanes) checkLane(lane, store, context)
      for (const entry of layer.entries()) {
        assert.ok(!found.has(entry.strip.id), `${context}: ${entry.strip.id} is there twice`)
        found.set(entry.strip.id, { level, layer: LAYERS[k] })
      }
    })
  }
  assert.equal(found.size, model.strips.size, context)
  for (const one of model.all) {
    const level = model.levelOf(one)
    if (level === 'circle') continue
    assert.deepEqual(found.get(one.id), { level, layer: layerOf(one) }, `${context}: ${one.id}`)
  }
}

function checkLane(lane, store, context) {
  if (lane.count === 0) return
  let covered = 0n
  const counts = new Array(lane.categories).fill(0)
  lane.items.forEach((entry, i) => {
    const { from, to } = entry.strip
    assert.equal(entry.at, i)
    assert.equal(entry.lane, lane)
    assert.equal(entry.dead, false)
    if (i > 0) assert.ok(lane.items[i - 1].strip.to < from, `${context}: two strips of a lane overlap`)
    assert.equal(lane.category[i], store.coloring.of(entry.strip))
    const join = (a, b, c) => (BigInt(a) << 84n) + (BigInt(b) << 42n) + BigInt(c)
    assert.equal(join(lane.fromA[i], lane.fromB[i], lane.fromC[i]), from, context)
    assert.equal(join(lane.toA[i], lane.toB[i], lane.toC[i]), to, context)
    assert.equal(join(lane.coverA[i], lane.coverB[i], lane.coverC[i]), covered, context)
    counts.forEach((count, k) => assert.equal(lane.counted(0, i, k), count, context))
    covered += to - from + 1n
    counts[lane.category[i]]++
  })
  counts.forEach((count, k) => assert.equal(lane.counted(0, lane.count, k), count, context))
}

for (const family of [4, 6]) {
  test(`after random changes the index is that of all strips, IPv${family}`, () => {
    for (let seed = 1; seed <= 12; seed++) {
      const random = randomOf(seed * 10 + family)
      const model = new Model(random, family)
      const store = storeOf(seed % 2 ? 'state' : 'project')
      store.set({ spaces: model.spaces, strips: [] })
      for (let step = 0; step < 25; step++) {
        for (let n = 0; n < 3; n++) store.change(model.change(Math.floor(random() * 12)))
        store.flush()
        check(store, model, `seed ${seed}, step ${step}`)
      }
      const fresh = storeOf(seed % 2 ? 'state' : 'project')
      fresh.set({ spaces: model.spaces, strips: model.all })
      fresh.flush()
      check(fresh, model, `seed ${seed}, at once`)
    }
  })
}

test('searches in a lane are those of all its strips', () => {
  const random = randomOf(5)
  for (let k = 0; k < 60; k++) {
    const model = new Model(random, k % 2 ? 4 : 6)
    const store = storeOf()
    store.set({ spaces: model.spaces, strips: [] })
    for (let n = 0; n < 10; n++) store.change(model.change(20))
    store.flush()
    const view = new View(model.family)
    view.resize(800)
    view.zoom(1 + random() * 1e4, random() * 800)
    for (const lane of store.spaces.get('s').levels.flatMap((layers) => layers.flatMap((layer) => layer.lanes))) {
      const address = view.address(random() * 800)
      const first = lane.items.findIndex(({ strip: { to } }) => to >= address)
      assert.equal(lane.search(address), first < 0 ? lane.count : first)
      const holding = lane.items.find(({ strip: { from, to } }) => from <= address && address <= to)
      assert.equal(lane.holding(address), holding ?? null)
      const x = random() * 800
      const after = lane.items.findIndex((_, i) => lane.right(view, i) > x)
      assert.equal(lane.firstAfter(view, x), after < 0 ? lane.count : after)
      const i = Math.floor(random() * lane.count)
      const next = lane.items.findIndex((_, j) => j > i && lane.left(view, j) >= x)
      if (lane.count > 0) assert.equal(lane.nextFrom(view, i, x), next < 0 ? lane.count : next)
    }
  }
})

test('around a strip are its parents and its children, in order', () => {
  const store = storeOf()
  const pool = (id, parent, from, to) => strip(id, 's', parent, from, to, { kind: 'pool', state: 'carved' })
  const strips = [pool('root', null, 0n, 1023n), pool('child', 'root', 256n, 511n), strip('b', 's', 'child', 300n, 300n), strip('a', 's', 'child', 260n, 263n), strip('c', 's', 'root', 0n, 0n)]
  store.set({ spaces: [{ id: 's', name: 's', family: 4 }], strips })
  assert.deepEqual(store.around('a'), { above: ['root', 'child'], below: [] })
  assert.deepEqual(store.around('child'), { above: ['root'], below: ['a', 'b'] })
  assert.deepEqual(store.around('root'), { above: [], below: ['c', 'child'] })
  assert.deepEqual(store.around('nobody'), { above: [], below: [] })
})

test('blocks of a pool that comes later move below it, and back when it goes', () => {
  const store = storeOf()
  store.set({ spaces: [{ id: 's', name: 's', family: 4 }], strips: [strip('b', 's', 'child', 5n, 5n)] })
  store.flush()
  assert.equal(store.byId.get('b').level, 2, 'below a pool that is not known')
  const pool = (id, parent) => strip(id, 's', parent, 0n, 255n, { kind: 'pool', state: 'carved' })
  store.change({ put: { strips: [pool('child', 'root')] } })
  store.flush()
  assert.equal(store.byId.get('b').level, 3)
  store.change({ put: { strips: [pool('root', null)] } })
  store.flush()
  assert.deepEqual(['root', 'child', 'b'].map((id) => store.byId.get(id).level), [1, 2, 3])
  store.change({ remove: ['child'] })
  store.flush()
  assert.equal(store.byId.get('b').level, 2)
})

test('parents that lead in a circle end', () => {
  const store = storeOf()
  const pool = (id, parent) => strip(id, 's', parent, 0n, 255n, { kind: 'pool', state: 'carved' })
  store.set({ spaces: [{ id: 's', name: 's', family: 4 }], strips: [pool('a', 'b'), pool('b', 'a'), pool('self', 'self')] })
  store.flush()
  assert.equal(store.byId.size, 3)
  store.around('a')
})

test('the use of a pool counts the blocks on all levels below it, but no waiting or withheld strips', () => {
  const store = storeOf()
  const pool = (id, parent, from, to, more) => strip(id, 's', parent, from, to, { kind: 'pool', state: 'carved', ...more })
  store.set({ spaces: [{ id: 's', name: 's', family: 4 }], strips: [
    pool('root', null, 0n, 1023n), pool('child', 'root', 512n, 1023n), pool('unread', 'root', 256n, 511n, { used: 0.75 }),
    pool('beside', null, 2000n, 2999n), pool('below', 'beside', 2000n, 2499n), strip('far', 's', 'below', 2000n, 2099n),
    strip('a', 's', 'root', 0n, 127n), strip('b', 's', 'child', 512n, 639n, { state: 'cooling' }),
    strip('w', 's', 'child', 640n, 700n, { state: 'waiting' }), strip('x', 's', 'root', 128n, 255n, { kind: 'span', state: 'withheld' }),
  ] })
  store.flush()
  const space = store.spaces.get('s')
  const used = (id) => store.used(space, store.byId.get(id))
  assert.equal(used('root'), 256 / 1024)
  assert.equal(used('child'), 128 / 512)
  assert.equal(used('unread'), 0.75)
  assert.equal(used('beside'), 0.1)
  assert.equal(used('below'), 0.2)
  const six = storeOf()
  six.set({ spaces: [{ id: 's', name: 's', family: 6 }], strips: [pool('all', null, 0n, lastOf(6)), strip('half', 's', 'all', 1n << 127n, lastOf(6))] })
  six.flush()
  assert.equal(six.used(six.spaces.get('s'), six.byId.get('all')), 0.5)
})

test('thousands of strips in one place are kept, in few lanes', () => {
  const store = storeOf()
  const strips = Array.from({ length: 5000 }, (_, k) => strip(`w${k}`, 's', null, 5n, 5n, { state: 'waiting' }))
  store.set({ spaces: [{ id: 's', name: 's', family: 4 }], strips })
  store.flush()
  const layer = store.byId.get('w0').layer
  assert.ok(layer.lanes.length <= 8)
  assert.equal([...layer.entries()].length, 5000)
  store.change({ remove: strips.slice(0, 4995).map(({ id }) => id) })
  store.flush()
  assert.equal([...layer.entries()].length, 5)
  assert.equal(layer.spill.length, 0)
})

test('a strip that cannot be drawn is refused by its name', () => {
  const store = storeOf()
  for (const wrong of [{ from: 2n, to: 1n }, { from: 1, to: 2 }, { from: -1n, to: 2n }, { from: 0n, to: 1n << 128n }]) {
    assert.throws(() => store.set({ spaces: [], strips: [{ ...strip('bad', 's', null, 0n, 0n), ...wrong }] }), /strip bad/)
  }
})

test('a change costs as much as its size: unchanged strips are copied, not converted', () => {
  const store = storeOf()
  const count = 20000n
  const strips = Array.from({ length: Number(count) }, (_, k) => strip(`b${k}`, 's', null, BigInt(k) * 4n, BigInt(k) * 4n))
  store.set({ spaces: [{ id: 's', name: 's', family: 4 }], strips })
  store.flush()
  const { bank, spare } = store.byId.get('b0').lane
  let converted = 0
  for (const one of [bank, spare]) {
    const put = one.put.bind(one)
    one.put = (...of) => {
      converted++
      put(...of)
    }
  }
  for (let k = 0; k < 50; k++) store.change({ put: { strips: [strip(`n${k}`, 's', null, BigInt(k) * 400n + 1n, BigInt(k) * 400n + 1n)] }, remove: [`b${k * 7}`] })
  store.flush()
  assert.equal(converted, 50)
})

test('the addresses that thousands of large strips cover are counted exactly', () => {
  const store = storeOf()
  for (const size of [(1n << 42n) - 1n, (1n << 84n) - 1n]) {
    const strips = Array.from({ length: 5000 }, (_, k) => strip(`b${k}`, 's', null, BigInt(k) * (size + 1n), BigInt(k) * (size + 1n) + size - 1n))
    store.set({ spaces: [{ id: 's', name: 's', family: 6 }], strips })
    store.flush()
    checkLane(store.byId.get('b0').lane, store, `${size}`)
  }
})
