// Makes the map of address spaces: nested strips in address order on a canvas. It takes data and
// does not know their source. It uses the document of the given element, and nothing global.

import { MapState } from './state.js'

export { THEMES } from './theme.js'
export { chooseSlots, FACETS, PATTERNS, sameSlots } from './coloring.js'
export { drawSwatch } from './patterns.js'

/**
 * Draws a map in an element. With the focus on it, the arrows go to the strips beside, above and
 * below the selected one (with shift, or if none is selected, they move the view), + and - zoom,
 * Enter shows the selected strip in full, Escape clears the selection, Home shows everything, and
 * page up and down scroll if there are more spaces than fit.
 * @param {HTMLElement} element
 * @param {{theme?: 'light'|'dark', now?: () => Date}} [options]
 */
export function createMap(element, options = {}) {
  return new MapState(element, options)
}
