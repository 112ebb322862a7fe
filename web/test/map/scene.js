// Maps for tests: in a window without a browser, with the rectangles that were drawn.

import { createMap } from '../../map/index.js'
import { FakeWindow } from '../fakes/canvas.js'

/** A map with data, of which the first frame is drawn. */
export function mapOf(data, { width = 1000, height = 600, Context, still, ...options } = {}) {
  const window = new FakeWindow({ Context, still })
  const element = window.element(width, height)
  const map = createMap(element, { now: () => new Date(1e12), ...options })
  map.set(data)
  window.frame()
  const context = map.canvas.getContext('2d')
  /** Draws a frame of its own, and returns what was drawn. */
  const draw = () => {
    window.frame()
    context.reset()
    map.theme = map.theme
    window.frame()
    return context
  }
  return { map, window, element, context, draw, canvas: map.canvas }
}
