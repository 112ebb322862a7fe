import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { createApi } from '../../page/api.js'
import { atMostEvery } from '../../page/dom.js'
import { Press, press } from '../../page/press.js'

// A page whose pointer a test moves, and a clock.
function pressed() {
  mock.timers.enable({ apis: ['setTimeout'] })
  const page = new EventTarget()
  const own = new Press()
  own.follow(page)
  return { own, page, say: (name) => page.dispatchEvent(new Event(name)) }
}

const settle = () => new Promise((resolve) => setImmediate(resolve))

test('work that comes while a pointer is pressed is done after its release, in order', async (t) => {
  const { own, say } = pressed()
  t.after(() => mock.timers.reset())
  const done = []
  own.after(() => done.push('before'))
  say('pointerdown')
  own.after(() => done.push('first'))
  own.after(() => done.push('second'))
  mock.timers.tick(1000)
  await settle()
  assert.deepEqual(done, ['before'])
  say('pointerup')
  mock.timers.tick(49)
  await settle()
  assert.deepEqual(done, ['before'], 'the click of a tap comes a little later')
  mock.timers.tick(1)
  await settle()
  assert.deepEqual(done, ['before', 'first', 'second'])
  assert.equal(own.released, null)
})

for (const [what, last, after] of [['is canceled', 'pointercancel', 50], ['has chosen', 'change', 50], ['has opened a menu', 'contextmenu', 50], ['is not released', 'pointermove', 5000]]) {
  test(`a pointer that ${what} does not hold back for ever`, async (t) => {
    const { own, say } = pressed()
    t.after(() => mock.timers.reset())
    let done = false
    say('pointerdown')
    own.after(() => (done = true))
    say(last)
    mock.timers.tick(after)
    await settle()
    assert.equal(done, true)
  })
}

test('nothing is drawn again and no answer comes while a pointer of the page is pressed', async (t) => {
  const { page, say } = pressed()
  t.after(() => mock.timers.reset())
  press.follow(page)
  const done = []
  const draw = atMostEvery(() => done.push('drawn'), 500)
  const api = createApi('T', { send: async () => new Response('{"answer":1}') })
  say('pointerdown')
  draw()
  api.who('10.0.0.1').then(() => done.push('answered'))
  mock.timers.tick(1000)
  await settle()
  assert.deepEqual(done, [])
  say('pointerup')
  mock.timers.tick(50)
  await settle()
  assert.deepEqual(done.sort(), ['answered', 'drawn'])
})

test('due work is done at once, and once', (t) => {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.after(() => mock.timers.reset())
  let drawn = 0
  const draw = atMostEvery(() => drawn++, 500)
  draw.now()
  assert.equal(drawn, 0, 'nothing is due')
  draw()
  draw.now()
  assert.equal(drawn, 1)
  mock.timers.tick(1000)
  assert.equal(drawn, 1)
})
