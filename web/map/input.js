// Turns the input from pointer, wheel and keys into calls of the map.

/** A pointer that moves no more than this is a click. */
const STILL = 4
/** The zoom of a pixel of the wheel. */
const WHEEL = 0.0022
const STEP = 0.15
const KEY_ZOOM = 1.5

/**
 * Follows the events of a canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {object} actions the actions of the map
 * @returns {() => void} stops following
 */
export function follow(canvas, actions) {
  const pointers = new Pointers(canvas, actions)
  const handlers = {
    pointerdown: (event) => pointers.down(event),
    pointermove: (event) => pointers.move(event),
    pointerup: (event) => pointers.up(event),
    pointercancel: (event) => pointers.cancel(event),
    dblclick: (event) => openAt(actions, event),
    wheel: (event) => wheel(actions, event),
    keydown: (event) => key(actions, event),
  }
  for (const [name, handler] of Object.entries(handlers)) {
    canvas.addEventListener(name, handler, name === 'wheel' ? { passive: false } : undefined)
  }
  return () => {
    for (const [name, handler] of Object.entries(handlers)) canvas.removeEventListener(name, handler)
  }
}

class Pointers {
  constructor(canvas, actions) {
    this.canvas = canvas
    this.actions = actions
    /** @type {Map<number, {x: number, y: number}>} the pressed pointers */
    this.pressed = new Map()
    this.moved = 0
  }

  down(event) {
    if (event.button > 0) return
    if (this.pressed.size === 0) {
      this.moved = 0
      this.actions.begin(event.offsetX, event.offsetY)
    }
    this.pressed.set(event.pointerId, { x: event.offsetX, y: event.offsetY })
    this.canvas.setPointerCapture?.(event.pointerId)
  }

  move(event) {
    const last = this.pressed.get(event.pointerId)
    if (last === undefined) return
    const next = { x: event.offsetX, y: event.offsetY }
    if (this.pressed.size === 1) this.drag(last, next)
    else if (this.pressed.size === 2) this.pinch(event.pointerId, last, next)
    if (this.moved > STILL || this.pressed.size > 1) this.pressed.set(event.pointerId, next)
  }

  /** Drags the point under the pointer along with it. Up to STILL pixels it can still be a click. */
  drag(last, next) {
    const distance = Math.hypot(next.x - last.x, next.y - last.y)
    if (this.moved <= STILL && distance <= STILL) return
    this.moved += distance
    this.actions.drag(last.x - next.x, last.y - next.y)
  }

  pinch(id, last, next) {
    const other = [...this.pressed].find(([key]) => key !== id)[1]
    const before = Math.max(Math.hypot(last.x - other.x, last.y - other.y), 8)
    const after = Math.max(Math.hypot(next.x - other.x, next.y - other.y), 8)
    this.moved = Infinity
    const middle = (last.x + other.x) / 2
    this.actions.drag(middle - (next.x + other.x) / 2, 0)
    this.actions.zoomAt(after / before, (next.x + other.x) / 2, null)
  }

  up(event) {
    if (!this.pressed.delete(event.pointerId) || this.pressed.size > 0) return
    if (this.moved <= STILL) this.actions.click(event.offsetX, event.offsetY)
  }

  cancel(event) {
    this.pressed.delete(event.pointerId)
    this.moved = Infinity
  }
}

function openAt(actions, event) {
  event.preventDefault()
  actions.openAt(event.offsetX, event.offsetY)
}

function wheel(actions, event) {
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1
  const x = event.deltaX * unit
  const y = event.deltaY * unit
  if (!event.ctrlKey && (event.shiftKey || Math.abs(x) > Math.abs(y))) {
    event.preventDefault()
    actions.panAt(Math.abs(x) > Math.abs(y) ? x : y, event.offsetY)
    return
  }
  if (!event.ctrlKey && actions.isHead(event.offsetY)) {
    if (actions.scroll(y)) event.preventDefault()
    return
  }
  event.preventDefault()
  const strength = event.ctrlKey ? WHEEL * 4 : WHEEL
  actions.zoomAt(Math.exp(-Math.min(Math.max(y, -400), 400) * strength), event.offsetX, event.offsetY)
}

/** The actions of keys. */
const KEYS = {
  ArrowLeft: (actions, shift) => (shift || !actions.beside(-1)) && actions.pan(-STEP),
  ArrowRight: (actions, shift) => (shift || !actions.beside(1)) && actions.pan(STEP),
  ArrowUp: (actions) => actions.above(),
  ArrowDown: (actions) => actions.below(),
  '+': (actions) => actions.zoom(KEY_ZOOM),
  '=': (actions) => actions.zoom(KEY_ZOOM),
  '-': (actions) => actions.zoom(1 / KEY_ZOOM),
  _: (actions) => actions.zoom(1 / KEY_ZOOM),
  Home: (actions) => actions.home(),
  Enter: (actions) => actions.open(),
  Escape: (actions) => actions.escape(),
  PageDown: (actions) => actions.scrollPage(1),
  PageUp: (actions) => actions.scrollPage(-1),
}

function key(actions, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  const action = KEYS[event.key]
  if (action === undefined) return
  event.preventDefault()
  action(actions, event.shiftKey)
}
