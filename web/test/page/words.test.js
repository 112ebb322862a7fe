import assert from 'node:assert/strict'
import { test } from 'node:test'
import { count, counted, domainName, duration, moment, objectName, percent, poolName, sentence, spaceName } from '../../page/words.js'

test('numbers are exact where they are short', () => {
  const want = { 0: '0', 999: '999', 1000: '1,000', 16777216: '16,777,216', 999999999999: '999,999,999,999' }
  for (const [n, text] of Object.entries(want)) assert.equal(count(n), text)
  assert.equal(count('18446744073709551616'), '2^64')
  assert.equal(count((1n << 128n).toString()), '2^128')
  assert.equal(count('18446744073709551615'), '1.8e19')
  assert.equal(count(''), '')
})

test('one thing is one, and several are several', () => {
  assert.equal(counted(1, 'block'), '1 block')
  assert.equal(counted('1', 'address', 'addresses'), '1 address')
  assert.equal(counted(0, 'block'), '0 blocks')
  assert.equal(counted(2n, 'address', 'addresses'), '2 addresses')
})

test('a share is 0% or 100% only where it is so', () => {
  const want = [[0n, 5n, '0%'], [1n, 1n << 64n, '<0.1%'], [1n, 3n, '33%'], [1n, 20n, '5.0%'], [(1n << 64n) - 1n, 1n << 64n, '>99.9%'], [995n, 1000n, '99%'], [5n, 5n, '100%'], [0n, 0n, '0%']]
  for (const [part, whole, text] of want) assert.equal(percent(part, whole), text)
})

test('ages are those of kubectl', () => {
  const s = 1000
  const want = [[0, '0s'], [-5 * s, '0s'], [119 * s, '119s'], [120 * s, '2m'], [310 * s, '5m10s'], [3599 * s, '59m'], [2.5 * 3600 * s, '150m'], [3.5 * 3600 * s, '3h30m'], [47 * 3600 * s, '47h'], [49 * 3600 * s, '2d1h'], [9 * 86400 * s, '9d'], [800 * 86400 * s, '2y70d']]
  for (const [ms, text] of want) assert.equal(duration(ms), text)
  assert.equal(moment(0, 1), '')
  assert.match(moment(1000, 61000), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(60s ago\)$/)
  assert.match(moment(61000, 1000), /\(in 60s\)$/)
})

test('sentences', () => {
  assert.equal(sentence('pool p is full'), 'Pool p is full.')
  assert.equal(sentence('Why?'), 'Why?')
  assert.equal(sentence(' '), '')
})

test('names', () => {
  assert.equal(poolName('LocalIPPool/team-a/lab'), 'team-a/lab')
  assert.equal(poolName('InClusterIPPool/team-a/vms'), 'InClusterIPPool team-a/vms')
  assert.equal(poolName('GlobalInClusterIPPool/vms'), 'GlobalInClusterIPPool vms')
  assert.equal(objectName({ kind: 'IPClaim', namespace: 'a', name: 'b' }), 'IPClaim a/b')
  assert.equal(objectName({ kind: 'IPPool', name: 'core' }), 'IPPool core')
  assert.equal(spaceName({ name: domainName(''), family: 6 }), 'routing domain not known · IPv6')
})
