import assert from 'node:assert/strict'
import test from 'node:test'

import { bitsOf, lastOf, parseAddress } from '../../map/address.js'
import { ticksOf } from '../../map/axis.js'
import { View } from '../../map/view.js'
import { below, randomOf } from './generate.js'

const widthOf = (text) => 7 * text.length

function randomView(random, of) {
  const view = new View(of)
  view.resize(360 + Math.floor(random() * 1500))
  const size = 1n + below(random, 1n << BigInt(Math.floor(random() * bitsOf(of)) + 1))
  const from = below(random, lastOf(of) - size + 2n)
  view.set(from, from + size - 1n)
  return view
}

test('ticks are where prefixes begin, their labels have room, and there are some', () => {
  const random = randomOf(4)
  let some = 0
  for (let k = 0; k < 2000; k++) {
    const view = randomView(random, k % 2 ? 4 : 6)
    const { length, ticks, minor } = ticksOf(view, widthOf)
    const size = 1n << BigInt(bitsOf(view.family) - length)
    const context = `${view.family} ${view.from}-${view.to} in ${view.width}`
    for (const [n, { x, text }] of ticks.entries()) {
      if (n > 0) assert.ok(x - ticks[n - 1].x >= widthOf(ticks[n - 1].text) + 4, `${context}: ${ticks[n - 1].text} and ${text}`)
      if (text.startsWith('…')) continue
      const address = parseAddress(text)
      assert.equal(address % size, 0n, context)
      assert.ok(Math.abs(view.pixel(address) - x) < 1e-6)
    }
    assert.ok(minor.length <= 4 * ticks.length + 4)
    if (ticks.length >= 2) some++
    assert.ok(ticks.length * 48 <= view.width + 48, context)
  }
  assert.ok(some > 1500, `only ${some} of 2000 views have two ticks`)
})

test('labels of IPv6 that begin alike are shortened to their difference', () => {
  const view = new View(6)
  view.resize(390)
  const from = parseAddress('2001:db8:1:2:3:4:5:0')
  view.set(from, from + 0xffffn)
  const { ticks } = ticksOf(view, widthOf)
  assert.ok(ticks.length >= 3)
  assert.deepEqual(ticks.slice(0, 2).map(({ text }) => text), ['…:0', '…:4000'])
})
