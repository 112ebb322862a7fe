import assert from 'node:assert/strict'
import test from 'node:test'

import { strip } from './generate.js'
import { mapOf } from './scene.js'

const pool = (id, parent, from, to, more) => strip(id, 's', parent, from, to, { kind: 'pool', state: 'carved', ...more })
const spaces = [{ id: 's', name: 's', family: 4 }]
const strips = [
  pool('p', null, 0n, 979n), pool('child', 'p', 500n, 599n),
  strip('a', 's', 'p', 100n, 149n), strip('b', 's', 'p', 200n, 209n), strip('span', 's', 'p', 300n, 309n, { kind: 'span', state: 'withheld' }),
  strip('x', 's', 'child', 500n, 509n), strip('y', 's', 'child', 520n, 529n),
]
const Y = { domain: 10, axis: 40, 1: 80, 2: 150, 3: 220 }

function made(options) {
  const scene = mapOf({ spaces, strips }, options)
  const events = []
  for (const name of ['select', 'open', 'view']) scene.map.on(name, (value) => events.push([name, value]))
  const press = (key, more = {}) => scene.canvas.send('keydown', { key, ...more })
  const range = () => [scene.map.view.from, scene.map.view.to]
  return { ...scene, events, press, range }
}

test('a click selects the strip under it, if there is one', () => {
  const { canvas, map, events } = made()
  const click = (offsetX, offsetY) => {
    canvas.send('pointerdown', { offsetX, offsetY })
    canvas.send('pointermove', { offsetX: offsetX + 2, offsetY })
    canvas.send('pointerup', { offsetX: offsetX + 2, offsetY })
  }
  click(120, Y[2])
  assert.equal(map.selected, 'a')
  click(60, Y[1])
  assert.equal(map.selected, 'p')
  click(60, Y[2])
  assert.equal(map.selected, null)
  assert.deepEqual(events.filter(([name]) => name === 'select').map(([, id]) => id), ['a', 'p', null])
})

test('a drag moves the view with the pointer, by mouse and by finger, and selects nothing', () => {
  const { canvas, map, range } = made()
  map.zoom(4)
  const address = map.at(400, Y[1]).address
  canvas.send('pointerdown', { offsetX: 400, offsetY: Y[1], pointerType: 'touch' })
  canvas.send('pointermove', { offsetX: 450, offsetY: Y[1] })
  canvas.send('pointermove', { offsetX: 500, offsetY: Y[1] })
  assert.ok(Math.abs(Number(map.at(500, Y[1]).address - address)) <= 1)
  canvas.send('pointerup', { offsetX: 500, offsetY: Y[1] })
  assert.equal(map.selected, null)
  const before = range()
  canvas.send('pointermove', { offsetX: 100, offsetY: Y[1] })
  assert.deepEqual(range(), before, 'it is not pressed any more')
})

test('two fingers zoom, and the place between them stays', () => {
  const { canvas, map } = made()
  const address = map.at(500, Y[1]).address
  canvas.send('pointerdown', { pointerId: 1, offsetX: 450, offsetY: Y[1] })
  canvas.send('pointerdown', { pointerId: 2, offsetX: 550, offsetY: Y[1] })
  canvas.send('pointermove', { pointerId: 1, offsetX: 400, offsetY: Y[1] })
  canvas.send('pointermove', { pointerId: 2, offsetX: 600, offsetY: Y[1] })
  assert.equal(Number(map.view.to - map.view.from + 1n) < 500, true)
  assert.ok(Math.abs(Number(map.at(500, Y[1]).address - address)) <= 1)
  canvas.send('pointerup', { pointerId: 1, offsetX: 400, offsetY: Y[1] })
  canvas.send('pointerup', { pointerId: 2, offsetX: 600, offsetY: Y[1] })
  assert.equal(map.selected, null, 'a pinch is no click')
})

test('the wheel zooms at the pointer, and moves sideways', () => {
  const { canvas, map, range } = made()
  const address = map.at(300, Y[2]).address
  assert.equal(canvas.send('wheel', { offsetX: 300, offsetY: Y[2], deltaY: -200 }), true)
  assert.ok(range()[1] - range()[0] < 700n)
  assert.ok(Math.abs(Number(map.at(300, Y[2]).address - address)) <= 1)
  const before = range()
  canvas.send('wheel', { offsetX: 300, offsetY: Y[2], deltaX: 50 })
  assert.ok(range()[0] > before[0])
  canvas.send('wheel', { offsetX: 300, offsetY: Y[2], deltaY: -50, shiftKey: true })
  assert.deepEqual(range(), before)
  assert.equal(canvas.send('wheel', { offsetX: 300, offsetY: Y.domain, deltaY: 50 }), false, 'above the ribbons the page scrolls')
})

test('keys select in the order of the addresses, and up and down the levels', () => {
  const { map, press, events } = made()
  const went = (key) => {
    assert.equal(press(key), true)
    return map.selected
  }
  assert.equal(went('ArrowDown'), 'p', 'the first one')
  assert.equal(went('ArrowDown'), 'a')
  assert.deepEqual(['ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowRight'].map(went), ['b', 'span', 'child', 'child'])
  assert.equal(went('ArrowDown'), 'x')
  assert.equal(went('ArrowRight'), 'y')
  assert.equal(went('ArrowLeft'), 'x')
  assert.equal(went('ArrowUp'), 'child')
  assert.equal(went('ArrowUp'), 'p')
  assert.equal(went('ArrowUp'), 'p')
  assert.equal(went('Escape'), null)
  assert.equal(events.some(([name]) => name === 'open'), false)
})

test('down goes to the first strip that is on the screen', () => {
  const { map, press } = made()
  map.view = { space: 's', from: 450n, to: 650n }
  map.select('p')
  press('ArrowDown')
  assert.equal(map.selected, 'child')
})

test('a strip that keys select moves into view', () => {
  const { map, press } = made()
  map.view = { space: 's', from: 100n, to: 149n }
  map.select('a')
  press('ArrowRight')
  assert.equal(map.selected, 'b')
  assert.ok(map.view.from <= 200n && map.view.to >= 209n, `${map.view.from}-${map.view.to}`)
})

test('arrows move the view where nothing is selected, and with shift', () => {
  const { map, press, range } = made()
  map.zoom(4)
  const before = range()
  press('ArrowRight')
  assert.ok(range()[0] > before[0])
  press('ArrowLeft')
  assert.ok(Math.abs(Number(range()[0] - before[0])) <= 1)
  map.select('a')
  press('ArrowRight', { shiftKey: true })
  assert.equal(map.selected, 'a')
  assert.ok(range()[0] > before[0] + 10n)
})

test('plus and minus zoom at the selected strip, Home shows all', () => {
  const { map, press, range } = made()
  map.select('y')
  const x = () => (Number(524n - map.view.from) / Number(map.view.to - map.view.from + 1n))
  const before = x()
  for (let k = 0; k < 3; k++) press('+')
  assert.ok(Math.abs(x() - before) < 0.01)
  assert.ok(range()[1] - range()[0] < 300n)
  press('-')
  assert.ok(range()[1] - range()[0] > 300n)
  press('Home')
  assert.deepEqual(range(), [0n, 979n])
})

test('Enter and a double click open: the strip is shown, and the page is notified', () => {
  const { map, press, canvas, events, range } = made()
  press('Enter')
  assert.equal(events.length, 0)
  map.select('child')
  press('Enter')
  assert.deepEqual(range(), [498n, 601n])
  map.fit('s')
  canvas.send('dblclick', { offsetX: 120, offsetY: Y[2] })
  assert.deepEqual(events.filter(([name]) => name === 'open').map(([, id]) => id), ['child', 'a'])
  assert.equal(map.selected, 'a')
})

test('Tab leaves the map, and other keys are the page\'s', () => {
  const { map, press } = made()
  map.select('a')
  for (const shiftKey of [false, true]) assert.equal(press('Tab', { shiftKey }), false)
  assert.equal(map.selected, 'a')
  assert.equal(press('q'), false)
})

test('a point of the screen names the strip or the free space there', () => {
  const { map } = made()
  assert.equal(map.at(120, Y[2]).strip.id, 'a')
  assert.deepEqual(map.at(60, Y[2]).free, { from: 0n, to: 99n })
})

test('a movement to a strip takes some frames and ends where it should; with reduced motion it is at once', () => {
  const { map, window, range } = made({ still: false })
  map.fit('child', { animate: true })
  assert.deepEqual(range(), [0n, 979n])
  let frames = 0
  while (window.frame(50) > 0) frames++
  assert.ok(frames > 3 && frames < 20, `${frames} frames`)
  assert.deepEqual(range(), [498n, 601n])
  map.fit('s', { animate: true })
  window.frame(50)
  map.zoom(2)
  const before = range()
  while (window.frame(50) > 0);
  assert.deepEqual(range(), before, 'who moves the view ends the movement')
  const still = made({ still: true })
  still.map.fit('child', { animate: true })
  assert.deepEqual(still.range(), [498n, 601n])
})

test('several spaces have separate views; a space below the bottom is scrolled to', () => {
  const names = ['one', 'two', 'three', 'four']
  const data = {
    spaces: names.map((id, k) => ({ id, name: id, family: k === 3 ? 6 : 4 })),
    strips: names.flatMap((id) => [{ ...pool(`p-${id}`, null, 0n, 979n), space: id }, { ...strip(`b-${id}`, id, `p-${id}`, 5n, 9n) }]),
  }
  const { map, canvas, window } = mapOf(data, { height: 300 })
  assert.equal(map.view.space, 'one')
  map.view = { space: 'two', from: 0n, to: 99n }
  assert.deepEqual(map.view, { space: 'two', from: 0n, to: 99n })
  map.fit('one')
  assert.deepEqual(map.view, { space: 'one', from: 0n, to: 979n })
  map.fit('two')
  assert.deepEqual(map.view, { space: 'two', from: 0n, to: 979n })
  assert.equal(map.at(100, 60).space, 'one')
  assert.equal(canvas.style.touchAction, 'none')
  assert.equal(canvas.send('wheel', { offsetX: 100, offsetY: 12, deltaY: 120 }), true)
  assert.notEqual(map.at(100, 60)?.space, 'one')
  canvas.send('keydown', { key: 'PageUp' })
  assert.equal(map.at(100, 60).space, 'one')
  map.fit('b-four')
  window.frame()
  const levels = []
  for (let y = 0; y < 300; y++) {
    const at = map.at(350, y)
    if (at?.space === 'four' && at.strip?.id === 'b-four') levels.push(y)
  }
  assert.ok(levels.length >= 20, 'it was scrolled into view')
})

test('when data come later the view shows them, until it is moved', () => {
  const { map, window } = mapOf({ spaces, strips: [] })
  assert.deepEqual(map.view, { space: 's', from: 0n, to: (1n << 32n) - 1n })
  map.change({ put: { strips } })
  assert.deepEqual(map.view, { space: 's', from: 0n, to: 979n })
  map.pan(0)
  map.change({ put: { strips: [pool('later', null, 5000n, 5999n)] } })
  window.frame()
  assert.deepEqual(map.view, { space: 's', from: 0n, to: 979n })
})

test('the canvas has the size of the element, in pixels of the screen', () => {
  const { map, element, window } = made()
  assert.deepEqual([map.canvas.width, map.canvas.height], [2000, 1200])
  element.clientWidth = 390
  window.devicePixelRatio = 3
  for (const observer of window.observers) observer()
  window.frame()
  assert.deepEqual([map.canvas.width, map.canvas.style.width], [1170, '390px'])
  assert.deepEqual([map.view.from, map.view.to], [0n, 979n])
})

test('a map that is destroyed leaves nothing behind', () => {
  const { map, element, window, canvas } = made()
  map.destroy()
  assert.equal(element.children.length, 0)
  assert.equal(window.observers.length + window.timers.size, 0)
  assert.equal([...canvas.listeners.values()].reduce((sum, set) => sum + set.size, 0), 0)
})
