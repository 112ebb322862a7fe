import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createApi, Refusal } from '../../page/api.js'
import { askUntilAnswered } from '../../page/retry.js'

// Sends a question that fails with these failures, and then succeeds.
async function asked(...failures) {
  const said = []
  const waits = []
  const ask = async () => {
    const failure = failures.shift()
    if (failure) throw failure
    return 'an answer'
  }
  const options = { signal: new AbortController().signal, onFailure: (text) => said.push(text), wait: (fn, ms) => (waits.push(ms), fn()) }
  return { answer: await askUntilAnswered(ask, options), said, waits }
}

test('a failure that may pass is shown, and the question is asked again, less and less often', async () => {
  const { answer, said, waits } = await asked(...[0, 429, 500, 503, 503, 504, 503].map((status) => new Refusal('other questions are being answered', status)))
  assert.equal(answer, 'an answer')
  assert.deepEqual(waits, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000])
  assert.equal(said[1], 'Other questions are being answered. Asking again in 2 s.')
})

for (const status of [400, 403, 404, 507]) {
  test(`a failure with status ${status} does not pass`, async () => {
    await assert.rejects(asked(new Refusal('no', status)), { status })
  })
}

test('an error of the page is not asked again', async () => {
  await assert.rejects(asked(new TypeError('x is not a function')), TypeError)
})

test('a question that is aborted has no answer, and is not asked again', async () => {
  const abort = new AbortController()
  const asks = []
  const never = askUntilAnswered(async () => {
    asks.push(asks.length)
    throw new Refusal('no', 503)
  }, { signal: abort.signal, onFailure: () => setImmediate(() => abort.abort()), wait: () => {} })
  await assert.rejects(never, { name: 'AbortError' })
  assert.equal(asks.length, 1)
  const late = askUntilAnswered(async () => 'an answer', { signal: abort.signal, onFailure: () => assert.fail('it has an answer') })
  await assert.rejects(late, { name: 'AbortError' })
})

test('an answer that breaks off is none', async () => {
  const body = new ReadableStream({ start: (controller) => controller.error(new TypeError('network error')) })
  await assert.rejects(createApi('T', { send: async () => new Response(body) }).who('10.0.0.1'), { name: 'Error', status: 0 })
})
