// A document without a browser: as much of it as the map uses, with a canvas that records what
// is drawn on it.

/** Records calls, with rectangles and texts in pixels of the canvas's unit. */
export class FakeContext {
  constructor() {
    this.reset()
    this.stack = []
    this.fillStyle = '#000000'
    this.strokeStyle = '#000000'
    this.font = '10px sans-serif'
    this.textAlign = 'start'
    this.textBaseline = 'alphabetic'
    this.lineWidth = 1
    this.path = []
    this.clipped = null
  }

  reset() {
    this.calls = 0
    /** @type {{x: number, y: number, width: number, height: number, style: unknown}[]} */
    this.rectangles = []
    /** @type {{text: string, x: number, y: number, font: string, style: unknown}[]} */
    this.texts = []
    this.scales = []
  }

  take(...numbers) {
    this.calls++
    for (const number of numbers) if (!Number.isFinite(number)) throw new Error(`a call has ${numbers.join(', ')}`)
  }

  save() {
    this.take()
    const { fillStyle, strokeStyle, font, clipped } = this
    this.stack.push({ fillStyle, strokeStyle, font, clipped })
  }

  restore() {
    this.take()
    Object.assign(this, this.stack.pop())
  }

  setTransform(...numbers) {
    this.take(...numbers)
  }

  scale(x, y) {
    this.take(x, y)
    this.scales.push(x)
  }

  beginPath() {
    this.take()
    this.path = []
  }

  rect(x, y, width, height) {
    this.take(x, y, width, height)
    this.path.push({ x, y, width, height })
  }

  clip() {
    this.take()
    this.clipped = this.path[this.path.length - 1]
  }

  moveTo(x, y) {
    this.take(x, y)
  }

  lineTo(x, y) {
    this.take(x, y)
  }

  stroke() {
    this.take()
  }

  fillRect(x, y, width, height) {
    this.take(x, y, width, height)
    if (typeof this.fillStyle !== 'string' && !this.fillStyle?.isPattern) throw new Error(`fill style ${this.fillStyle}`)
    this.rectangles.push({ x, y, width, height, style: this.fillStyle, clipped: this.clipped })
  }

  fillText(text, x, y) {
    this.take(x, y)
    this.texts.push({ text, x, y, font: this.font, style: this.fillStyle, clipped: this.clipped, after: this.rectangles.length })
  }

  /** Narrow and wide characters, as in a real font. */
  measureText(text) {
    const size = Number(/(\d+)px/.exec(this.font)[1])
    let width = 0
    for (const character of text) width += size * ('il.:|/ '.includes(character) ? 0.3 : 'mwMW'.includes(character) ? 0.9 : 0.6)
    return { width }
  }

  createPattern(tile) {
    return { isPattern: true, tile }
  }
}

/** As FakeContext, but it only counts: for measurements. */
export class CountingContext extends FakeContext {
  fillRect() {
    this.calls++
  }

  fillText() {
    this.calls++
  }
}

class FakeElement {
  constructor(document, width = 0, height = 0) {
    this.ownerDocument = document
    this.clientWidth = width
    this.clientHeight = height
    this.style = {}
    this.children = []
    this.listeners = new Map()
  }

  setAttribute() {}

  appendChild(child) {
    this.children.push(child)
    child.parent = this
  }

  remove() {
    this.parent.children = this.parent.children.filter((child) => child !== this)
  }

  getContext() {
    this.context ??= new this.ownerDocument.Context()
    return this.context
  }

  addEventListener(name, listener) {
    if (!this.listeners.has(name)) this.listeners.set(name, new Set())
    this.listeners.get(name).add(listener)
  }

  removeEventListener(name, listener) {
    this.listeners.get(name)?.delete(listener)
  }

  /** Sends an event. @returns {boolean} whether its default was prevented */
  send(name, fields = {}) {
    let isPrevented = false
    const event = { pointerId: 1, button: 0, offsetX: 0, offsetY: 0, deltaX: 0, deltaY: 0, deltaMode: 0, ...fields, preventDefault: () => (isPrevented = true) }
    for (const listener of this.listeners.get(name) ?? []) listener(event)
    return isPrevented
  }
}

/** A window whose time and frames the test moves on. */
export class FakeWindow {
  constructor({ Context = FakeContext, still = true } = {}) {
    this.devicePixelRatio = 2
    this.time = 0
    this.performance = { now: () => this.time }
    this.frames = []
    this.timers = new Map()
    this.observers = []
    const window = this
    this.document = { defaultView: this, Context, createElement: () => new FakeElement(this.document) }
    this.matchMedia = () => ({ matches: still })
    this.ResizeObserver = class {
      constructor(callback) {
        window.observers.push(callback)
        this.callback = callback
      }

      observe() {}

      disconnect() {
        window.observers = window.observers.filter((callback) => callback !== this.callback)
      }
    }
  }

  element(width = 1000, height = 600) {
    return new FakeElement(this.document, width, height)
  }

  requestAnimationFrame(callback) {
    this.frames.push(callback)
    return this.frames.length
  }

  cancelAnimationFrame() {
    this.frames = []
  }

  setInterval(callback) {
    this.timers.set(this.timers.size + 1, callback)
    return this.timers.size
  }

  clearInterval(id) {
    this.timers.delete(id)
  }

  /** Runs the frames that were asked for. @returns {number} how many */
  frame(ms = 16) {
    this.time += ms
    const frames = this.frames
    this.frames = []
    for (const callback of frames) callback(this.time)
    return frames.length
  }
}
