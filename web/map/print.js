// Draws the map on another canvas, for print and pictures: the same views in the theme for print.

import { layOut } from './layout.js'
import { Painter } from './paint.js'
import { THEMES } from './theme.js'
import { View } from './view.js'

/**
 * Draws all panels.
 * @param {CanvasRenderingContext2D} context
 * @param {number} width in units, each of them scale pixels of the canvas
 * @param {number} height in units
 * @returns {number} the height of all panels; parts below height are not drawn
 */
export function printOn(state, context, width, height, scale) {
  const views = new Map()
  const copyOf = (space) => {
    const view = new View(space.family)
    const { start, span } = state.viewFor(space).view
    Object.assign(view, { start, span })
    views.set(space, view)
    return view
  }
  const layout = layOut(state.store.shown(), copyOf, width, height, 0)
  const scene = { ...state.scene(layout, { width, height }, THEMES.print), whole: 0 }
  context.save()
  context.scale(scale, scale)
  new Painter(state.patterns, state.measure).paint(context, scene)
  context.restore()
  return layout.height
}
