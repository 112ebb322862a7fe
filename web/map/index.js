// Makes the map of address spaces: nested strips in address order on a canvas. It takes data and
// does not know their source. It uses the document of the given element, and nothing global.

import { bitsOf } from './address.js'
import { MapState } from './state.js'

export * as address from './address.js'
export { THEMES } from './theme.js'
export { FACETS, PATTERNS } from './coloring.js'
export { NAMES as PATTERN_NAMES, drawTile } from './patterns.js'

/**
 * Draws a map in an element. With the focus on it, Tab goes through the strips on the screen, the
 * arrows go to the strips beside, above and below the selected one (with shift, or if none is
 * selected, they move the view), + and - zoom, Enter shows the selected strip in full, Escape
 * clears the selection, and lets the next Tab leave the map, Home shows everything, and page up
 * and down scroll if there are more spaces than fit.
 * @param {HTMLElement} element
 * @param {{theme?: 'light'|'dark', labels?: boolean, now?: () => Date}} [options]
 */
export function createMap(element, options = {}) {
  const state = new MapState(element, options)
  return {
    set: (data) => state.set(data),
    change: (delta) => state.change(delta),
    /** Colors the strips. With slots, several maps give a value the same color. */
    colorBy: (name, options) => state.colorBy(name, options),
    legend: () => state.legend(),
    get view() {
      return state.viewOf(state.activeSpace())
    },
    set view(view) {
      state.show(view)
    },
    fit: (target, how) => state.fit(target, how),
    zoom: (factor, at) => state.zoom(factor, at),
    pan: (fraction) => state.pan(fraction),
    select: (id) => state.select(id),
    get selected() {
      return state.selected
    },
    highlight: (ids) => state.highlight(ids),
    on: (name, listener) => state.on(name, listener),
    at: (x, y) => state.at(x, y),
    around: (id) => state.store.around(id),
    visible: (most) => state.visible(most),
    stats: () => ({ ...state.stats }),
    paintTo: (context, width, height, scale) => state.paintTo(context, width, height, scale),
    set theme(name) {
      state.setTheme(name)
    },
    get theme() {
      return state.themeName
    },
    set labels(on) {
      state.setLabels(on)
    },
    get canvas() {
      return state.canvas
    },
    destroy: () => state.destroy(),
  }
}

export { bitsOf }
