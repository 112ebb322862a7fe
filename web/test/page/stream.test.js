import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Stream } from '../../page/stream.js'

// A ground whose clock a test moves, and whose answers a test gives.
class Ground {
  time = 0
  timers = []
  requests = []
  #number = 0

  fetch = (url, options) => new Promise((resolve, reject) => {
    options.signal.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')))
    this.requests.push({ url, options, resolve, reject })
  })
  now = () => this.time
  released = () => this.held ?? null
  random = () => 0.5
  setTimeout = (fn, ms) => {
    this.timers.push({ id: ++this.#number, at: this.time + ms, fn })
    return this.#number
  }
  clearTimeout = (id) => {
    this.timers = this.timers.filter((timer) => timer.id !== id)
  }

  async pass(ms) {
    const end = this.time + ms
    for (;;) {
      await settle()
      const due = this.timers.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0]
      if (!due) break
      this.timers = this.timers.filter((timer) => timer !== due)
      this.time = Math.max(this.time, due.at)
      due.fn()
    }
    this.time = end
  }

  // Answers the last request with a stream to which a test writes.
  answer(status = 200, body) {
    const encoder = new TextEncoder()
    let controller
    const stream = new ReadableStream({ start: (c) => (controller = c) })
    this.requests.at(-1).resolve(new Response(body ?? stream, { status }))
    return {
      say: async (...messages) => {
        for (const message of messages) controller.enqueue(encoder.encode(`${JSON.stringify(message)}\n`))
        await settle()
      },
      raw: async (bytes) => {
        controller.enqueue(typeof bytes === 'string' ? encoder.encode(bytes) : bytes)
        await settle()
      },
      end: async () => {
        controller.close()
        await settle()
      },
    }
  }
}

async function settle() {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve))
}

async function begun() {
  const ground = new Ground()
  const messages = []
  const states = []
  const stream = new Stream({ token: 'T', ground, onMessage: (m) => messages.push(m), onState: (s) => states.push({ ...s }) })
  stream.connect()
  await settle()
  return { ground, messages, states, stream, phases: () => states.map((s) => s.phase) }
}

test('messages arrive in order, however they are cut', async () => {
  const { ground, messages, stream, phases } = await begun()
  assert.equal(ground.requests[0].url, '/api/stream')
  assert.equal(ground.requests[0].options.headers.Authorization, 'Bearer T')
  const to = ground.answer()
  const bytes = new TextEncoder().encode('{"type":"hello","context":"grün"}\n{"type":"pools","pools":[]}\n\n{"type":"ready"}\n')
  for (let i = 0; i < bytes.length; i++) await to.raw(bytes.slice(i, i + 1))
  assert.deepEqual(messages.map((m) => m.type), ['hello', 'pools', 'ready'])
  assert.equal(messages[0].context, 'grün')
  assert.equal(stream.state.phase, 'live')
  assert.deepEqual(phases(), ['reading', 'live'])
})

test('the command reports that it is behind, and that it is in step again', async () => {
  const { ground, stream } = await begun()
  const to = ground.answer()
  await to.say({ type: 'hello' }, { type: 'ready' }, { type: 'beat', behind: 'the watch of ipallocations is broken' })
  assert.equal(stream.state.phase, 'behind')
  assert.equal(stream.state.text, 'the watch of ipallocations is broken')
  await to.say({ type: 'blocks', blocks: [] })
  assert.equal(stream.state.phase, 'behind', 'a change alone does not mean that all is in step')
  await to.say({ type: 'beat', behind: '' })
  assert.equal(stream.state.phase, 'live')
})

test('a beat while the first state is read does not mean that it is complete', async () => {
  const { ground, stream } = await begun()
  const to = ground.answer()
  await to.say({ type: 'hello' }, { type: 'beat', behind: '' })
  assert.equal(stream.state.phase, 'reading')
})

test('silence of 12 seconds is said; a message ends it; 30 seconds end the connection', async () => {
  const { ground, stream } = await begun()
  const to = ground.answer()
  await to.say({ type: 'hello' }, { type: 'ready' })
  await ground.pass(11_900)
  assert.equal(stream.state.phase, 'live')
  await ground.pass(200)
  assert.equal(stream.state.phase, 'behind')
  assert.match(stream.state.text, /12 seconds/)
  await to.say({ type: 'blocks', blocks: [] })
  assert.equal(stream.state.phase, 'live')
  await ground.pass(29_900)
  assert.equal(ground.requests.length, 1)
  await ground.pass(200)
  assert.equal(stream.state.phase, 'lost')
  assert.ok(ground.requests[0].options.signal.aborted)
  await ground.pass(600)
  assert.equal(ground.requests.length, 2)
})

test('a stream that ends is begun again, at longer and longer intervals', async () => {
  const { ground, stream } = await begun()
  const to = ground.answer()
  await to.say({ type: 'hello' }, { type: 'ready' })
  await to.end()
  assert.equal(stream.state.phase, 'lost')
  assert.equal(stream.state.text, 'the connection ended')
  const waits = []
  for (let i = 0; i < 8; i++) {
    waits.push(stream.state.retryAt - ground.time)
    await ground.pass(waits.at(-1))
    assert.equal(ground.requests.length, i + 2)
    ground.requests.at(-1).reject(new TypeError('refused'))
    await settle()
    assert.equal(stream.state.phase, 'lost')
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 15000, 15000, 15000])
  stream.connect() // a person asks for it
  await settle()
  await ground.answer().say({ type: 'hello' }, { type: 'ready' })
  assert.equal(stream.state.phase, 'live')
})

test('the wait is short again once a state was complete', async () => {
  const { ground, stream } = await begun()
  for (let i = 0; i < 3; i++) {
    ground.requests.at(-1).reject(new TypeError('refused'))
    await settle()
    await ground.pass(stream.state.retryAt - ground.time)
  }
  const to = ground.answer()
  await to.say({ type: 'hello' }, { type: 'ready' })
  await to.end()
  assert.equal(stream.state.retryAt - ground.time, 500)
})

test('a wrong token is not tried again', async () => {
  const { ground, stream } = await begun()
  ground.answer(401, 'no')
  await settle()
  assert.equal(stream.state.phase, 'refused')
  await ground.pass(120_000)
  assert.equal(ground.requests.length, 1)
})

test('a refusal states the reason; another status is tried again', async () => {
  const first = await begun()
  first.ground.answer(403, '{"message":"the origin is not this page"}')
  await settle()
  assert.deepEqual([first.stream.state.phase, first.stream.state.text], ['refused', 'the origin is not this page'])
  const second = await begun()
  second.ground.answer(503, 'busy')
  await settle()
  assert.equal(second.stream.state.phase, 'lost')
  assert.match(second.stream.state.text, /503/)
})

test('a line that is no JSON ends the connection, with that reason', async () => {
  const { ground, stream, messages } = await begun()
  const to = ground.answer()
  await to.say({ type: 'hello' })
  await to.raw('{"type":\n')
  assert.equal(stream.state.phase, 'lost')
  assert.match(stream.state.text, /could not read a message/)
  assert.equal(messages.length, 1)
  await ground.pass(600)
  assert.equal(ground.requests.length, 2)
})

test('nothing happens after it was closed', async () => {
  const { ground, stream, messages } = await begun()
  const to = ground.answer()
  await to.say({ type: 'hello' })
  stream.close()
  stream.connect()
  await ground.pass(120_000)
  assert.equal(ground.requests.length, 1)
  assert.equal(messages.length, 1)
  assert.equal(ground.timers.length, 0)
})

test('while a pointer is pressed no message is taken; then all are, in their order', async () => {
  const { ground, messages, stream } = await begun()
  const answer = ground.answer()
  let release
  ground.held = new Promise((resolve) => (release = resolve))
  await answer.say({ type: 'hello' }, { type: 'ready' })
  assert.deepEqual([messages, stream.state.phase], [[], 'connecting'])
  ground.held = null
  release()
  await settle()
  assert.deepEqual([messages.map((m) => m.type), stream.state.phase], [['hello', 'ready'], 'live'])
})
