// Lays out one panel for each space, below each other; a panel has the ribbon of the space, the
// axis, and a ribbon for each level.

export const MARGIN = 10
const DOMAIN = 24
const AXIS = 22
const GAP = 4
const BETWEEN = 20
const LEAST = 30
const MOST = 68

/**
 * @typedef {{level: number, y: number, height: number}} Row
 * @typedef {{space: object, view: import('./view.js').View, left: number, top: number,
 *   height: number, domain: {y: number, height: number}, axis: {y: number, height: number},
 *   rows: Row[]}} Panel
 */

/**
 * @param {number} width of all
 * @param {number} height of all
 * @param {number} scroll the pixels of the panels above the top
 * @returns {{panels: Panel[], height: number, scroll: number, width: number}} height is that of
 *   all panels, which can exceed the given one; scroll is cut off accordingly
 */
export function layOut(spaces, viewOf, width, height, scroll) {
  const inner = Math.max(1, width - 2 * MARGIN)
  const levels = spaces.map((space) => Math.max(space.depth, 2))
  const ribbons = levels.reduce((sum, depth) => sum + depth, 0)
  const fixed = spaces.length * (DOMAIN + AXIS + GAP + BETWEEN) + ribbons * GAP
  const ribbon = Math.floor(Math.min(Math.max((height - fixed) / Math.max(ribbons, 1), LEAST), MOST))
  const total = fixed + ribbons * ribbon
  const most = Math.max(0, total - height)
  const from = Math.min(Math.max(Math.round(scroll), 0), most)
  let top = MARGIN / 2 - from
  const panels = spaces.map((space, k) => {
    const view = viewOf(space)
    view.resize(inner)
    const panel = panelOf(space, view, top, levels[k], ribbon)
    top += panel.height + BETWEEN
    return panel
  })
  return { panels, height: total, scroll: from, width: inner }
}

function panelOf(space, view, top, depth, ribbon) {
  const domain = { y: top, height: DOMAIN }
  const axis = { y: top + DOMAIN, height: AXIS }
  const rows = []
  for (let level = 1; level <= depth; level++) {
    rows.push({ level, y: axis.y + AXIS + GAP + (level - 1) * (ribbon + GAP), height: ribbon })
  }
  return { space, view, left: MARGIN, top, height: DOMAIN + AXIS + GAP + depth * (ribbon + GAP), domain, axis, rows }
}

/** Returns the part of a row in which the strips of a layer are drawn: waiting strips have a band above. */
export function bandOf(row, layer) {
  if (layer !== 'waiting') return row
  return { level: row.level, y: row.y, height: Math.max(8, Math.min(18, Math.floor(row.height * 0.4))) }
}
