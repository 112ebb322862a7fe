import assert from 'node:assert/strict'
import test from 'node:test'

import { bitsOf, family, format, formatCount, formatRange, lastOf, parse, parseAddress, prefixesOf } from '../../map/address.js'
import { below, randomOf } from './generate.js'

test('IPv6 addresses are written as in RFC 5952', () => {
  for (const [text, want] of [
    ['2001:0db8::0001', '2001:db8::1'], // section 4.1
    ['2001:db8:0:0:0:0:2:1', '2001:db8::2:1'], // 4.2.1
    ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'], // 4.2.2: one group is not shortened
    ['2001:0:0:1:0:0:0:1', '2001:0:0:1::1'], // 4.2.3: the longest run
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'], // 4.2.3: the first of equal ones
    ['2001:DB8::ABCD', '2001:db8::abcd'], // 4.3
    ['::ffff:192.0.2.1', '::ffff:192.0.2.1'], // 5
    ['0:0:0:0:0:0:0:0', '::'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['1:0:0:0:0:0:0:0', '1::'],
    ['::1.2.3.4', '::102:304'],
    ['fe80:0:0:0:1:2:3:4', 'fe80::1:2:3:4'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
    ['10.0.0.1', '10.0.0.1'],
    ['255.255.255.255', '255.255.255.255'],
  ]) {
    assert.equal(format(parseAddress(text), family(text)), want, text)
  }
})

test('a text that is not an address is refused', () => {
  const texts = ['', '10.0.0', '10.0.0.256', '10.0.0.01', '10.0.0.0.0', '1:2:3', ':', '1:::2', '1::2::3', '12345::', '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7:8::', '::1.2.3', '1.2.3.4::', '10.0.0.-1', '10.0.0.0/33', '::/129', '10.0.0.0/', '10.0.0.0/x', '10.0.0.0/08', '10.0.0.0/8/8',
    'g::', '10.0.0.2-10.0.0.1', '10.0.0.1-::1', '10.0.0.0/8-10.0.0.1']
  for (const text of texts) assert.throws(() => parse(text), SyntaxError, text)
})

test('a CIDR and a range are read', () => {
  assert.deepEqual(parse('10.1.2.3/8'), { family: 4, from: 0x0a000000n, to: 0x0affffffn, length: 8 })
  assert.deepEqual(parse('::/0'), { family: 6, from: 0n, to: lastOf(6), length: 0 })
  assert.deepEqual(parse(' 10.0.0.0-10.0.0.255 '), { family: 4, from: 0x0a000000n, to: 0x0a0000ffn, length: 24 })
  assert.equal(parse('10.0.0.1-10.0.0.2').length, -1)
})

test('random addresses are the same after they were written and read', () => {
  const random = randomOf(7)
  for (let k = 0; k < 2000; k++) {
    const of = random() < 0.3 ? 4 : 6
    let value = below(random, 1n << BigInt(bitsOf(of)))
    if (random() < 0.5) value &= below(random, lastOf(of)) & below(random, lastOf(of)) & ~0xffff0000ffffn // with groups of zeros
    const text = format(value, of)
    assert.equal(parseAddress(text), value, text)
    assert.equal(text, text.toLowerCase())
  }
})

test('prefixes of a random range cover it, in order, and none can be larger', () => {
  const random = randomOf(8)
  for (let k = 0; k < 300; k++) {
    const ends = [below(random, 4096n), below(random, 4096n)].sort((a, b) => Number(a - b))
    const base = random() < 0.5 ? 0n : lastOf(6) - 4095n
    const [from, to] = ends.map((end) => base + end)
    let next = from
    for (const prefix of prefixesOf(from, to, 6)) {
      assert.equal(prefix.from, next)
      const size = 1n << BigInt(128 - prefix.length)
      assert.equal(prefix.from % size, 0n)
      next += size
      const isLargest = prefix.from % (2n * size) !== 0n || prefix.from + 2n * size - 1n > to
      assert.ok(isLargest, `${prefix.from}/${prefix.length} of ${from}-${to}`)
    }
    assert.equal(next, to + 1n)
  }
  assert.deepEqual(prefixesOf(0n, lastOf(6), 6), [{ from: 0n, length: 0 }])
  assert.equal(prefixesOf(1n, lastOf(6), 6, 2).length, 2)
})

test('ranges and counts are written for people', () => {
  assert.equal(formatRange(0x0a000000n, 0x0a0000ffn, 4), '10.0.0.0/24')
  assert.equal(formatRange(0x0a000001n, 0x0a000001n, 4), '10.0.0.1')
  assert.equal(formatRange(0x0a000001n, 0x0a000004n, 4), '10.0.0.1–10.0.0.4')
  assert.equal(formatRange(0n, lastOf(6), 6), '::/0')
  assert.equal(formatCount(65536n), '65,536')
  assert.equal(formatCount(1n << 64n), '2^64')
  assert.equal(formatCount((3n << 63n)), 'about 1.5 × 2^64')
})
