import assert from 'node:assert/strict'
import { test } from 'node:test'
import { wordsOf } from '../../page/sign.js'

const store = (complete, blocks = 0) => ({ complete, blocks: new Map(Array.from({ length: blocks }, (_, i) => [i, i])) })
const state = (phase, fields = {}) => ({ phase, text: '', retryAt: 0, heard: 0, ...fields })

test('in step there is a sign and no banner', () => {
  assert.deepEqual(wordsOf(state('live'), store(true), 0), ['Live', ''])
})

test('behind states the reason', () => {
  assert.deepEqual(wordsOf(state('behind', { text: 'the watch is broken' }), store(true), 0), ['Behind', 'The page may be behind: the watch is broken.'])
})

test('a lost connection states since when, and when it is tried again', () => {
  const [sign, banner] = wordsOf(state('lost', { text: 'the connection ended', heard: new Date(2026, 10, 26, 18, 31, 2).getTime(), retryAt: 5000 }), store(true), 1200)
  assert.equal(sign, 'Not connected')
  assert.equal(banner, 'Not connected: the connection ended. The page is as of 18:31:02. Trying again in 4 s.')
  assert.match(wordsOf(state('lost', { text: 'x', retryAt: 1000 }), store(false), 1200)[1], /^Not connected: x\. Trying again now\.$/)
})

test('the progress is shown while the first state is read', () => {
  assert.deepEqual(wordsOf(state('reading'), store(false, 2), 0), ['Reading, 2 blocks so far', ''])
  assert.match(wordsOf(state('reading'), store(true, 2), 0)[1], /reading what has changed/)
  assert.equal(wordsOf(state('reading', { text: 'nothing was heard for 12 seconds' }), store(false), 0)[1], 'Reading: nothing was heard for 12 seconds.')
  assert.match(wordsOf(state('connecting', { text: 'x' }), store(true), 0)[1], /^Connecting again: x\./)
  assert.deepEqual(wordsOf(state('connecting'), store(false), 0), ['Connecting', ''])
})
