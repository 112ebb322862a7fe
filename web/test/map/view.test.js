import assert from 'node:assert/strict'
import test from 'node:test'

import { lastOf } from '../../map/address.js'
import { high, low, middle } from '../../map/limbs.js'
import { View } from '../../map/view.js'
import { below, randomOf } from './generate.js'

const FRACTION = 2n ** 32n

/** The pixel of an address, by exact division. */
function exactPixel(view, address) {
  return Number(((address * FRACTION - view.start) * BigInt(view.width) * 2n ** 60n) / view.span) / 2 ** 60
}

function randomView(random, of) {
  const view = new View(of)
  view.resize(300 + Math.floor(random() * 2000))
  const size = 1n + below(random, 1n << BigInt(Math.floor(random() * (of === 4 ? 32 : 128))))
  const from = below(random, lastOf(of) - size + 2n)
  view.set(from, from + size - 1n)
  return view
}

test('pixels are exact, from ::/0 to a /128', () => {
  const random = randomOf(1)
  for (let k = 0; k < 3000; k++) {
    const view = randomView(random, random() < 0.3 ? 4 : 6)
    view.zoom(1 + random() * 3, random() * view.width)
    for (let n = 0; n < 5; n++) {
      const address = view.address(random() * view.width)
      const got = view.locate(high(address), middle(address), low(address))
      assert.ok(Math.abs(got - exactPixel(view, address)) < 1e-6, `${address} in ${view.from}-${view.to}: ${got}`)
    }
    assert.equal(view.locate(high(view.to), middle(view.to), low(view.to) + 1) >= view.width - 1e-6, true)
  }
})

test('the address under the pointer stays there when the view zooms and moves, within a pixel', () => {
  const random = randomOf(2)
  for (let k = 0; k < 3000; k++) {
    const view = randomView(random, random() < 0.3 ? 4 : 6)
    const x = random() * view.width
    const point = view.point(x)
    view.zoom(Math.exp((random() - 0.5) * 4), x)
    const isLimited = view.start === 0n || view.start + view.span === view.whole
    const at = Number(((point - view.start) * BigInt(view.width) * 2n ** 40n) / view.span) / 2 ** 40
    if (!isLimited) assert.ok(Math.abs(at - x) < 1, `zoom: ${x} became ${at}`)
    const before = view.point(x)
    const by = (random() - 0.5) * view.width
    view.pan(by)
    if (view.start === 0n || view.start + view.span === view.whole) continue
    const moved = Number(((before - view.start) * BigInt(view.width) * 2n ** 40n) / view.span) / 2 ** 40
    assert.ok(Math.abs(moved - (x - by)) < 1, `pan: ${x} - ${by} became ${moved}`)
  }
})

test('a view stays in its family and shows an address at least', () => {
  const random = randomOf(3)
  for (const of of [4, 6]) {
    const view = randomView(random, of)
    for (let k = 0; k < 4000; k++) {
      if (random() < 0.5) view.zoom(Math.exp((random() - 0.4) * 6), random() * view.width)
      else view.pan((random() - 0.5) * 3 * view.width)
      assert.ok(view.from >= 0n && view.to <= lastOf(of) && view.from <= view.to)
      assert.ok(view.span >= FRACTION)
      assert.ok(Number.isFinite(view.scale) && Number.isFinite(view.fraction))
    }
    view.zoom(1e300, 5)
    assert.equal(view.span, FRACTION)
    for (let k = 0; k < 200; k++) view.zoom(0.5, 5)
    assert.deepEqual([view.from, view.to], [0n, lastOf(of)])
  }
})

test('thousands of steps to a /128 and back lose nothing', () => {
  const view = new View(6)
  view.resize(1400)
  const address = 0x20010db8000000000000000000000777n
  for (let k = 0; k < 500; k++) view.zoom(1.3, view.pixel(address) + view.scale / 2)
  assert.equal(view.from, address)
  for (let k = 0; k < 100; k++) view.pan(0.25)
  for (let k = 0; k < 100; k++) view.pan(-0.25)
  assert.ok(view.from >= address - 1n && view.to <= address + 1n)
})

test('between two snapshots the view moves without a jump and ends where it should', () => {
  const view = new View(6)
  view.resize(1000)
  const first = view.snapshot()
  view.set(5n, 9n)
  const last = view.snapshot()
  let span = first.span + 1n
  for (let k = 0; k <= 20; k++) {
    view.between(first, last, k / 20)
    assert.ok(view.span < span)
    assert.ok(view.from <= 5n && view.to >= 9n, 'the target stays visible')
    span = view.span
  }
  assert.deepEqual(view.snapshot(), last)
})
