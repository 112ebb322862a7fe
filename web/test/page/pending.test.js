import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Pending } from '../../page/pending.js'

const ids = ({ put, remove }) => [put.strips.map((strip) => strip.id + strip.n), remove]

test('changes are joined: the last one counts, and removals come first', () => {
  const pending = new Pending()
  assert.equal(pending.isEmpty, true)
  pending.take({ spaces: [{ id: 's' }], strips: [{ id: 'a', n: 1 }, { id: 'b', n: 1 }] }, [])
  pending.take({ spaces: [], strips: [{ id: 'a', n: 2 }] }, ['b', 'c'])
  pending.take({ spaces: [], strips: [{ id: 'c', n: 3 }] }, [])
  assert.equal(pending.isEmpty, false)
  assert.deepEqual(ids(pending.end()), [['a2', 'c3'], ['b', 'c']])
  assert.equal(pending.isEmpty, true)
  assert.deepEqual(ids(pending.end()), [[], []])
})
