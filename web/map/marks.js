// Draws the marks on a panel: the selected strip, and the strips that a search found.

import { firstIndex } from './lane.js'
import { bandOf } from './layout.js'
import { layerOf } from './store.js'
import { columnOf, edge, isWide, rightEdge } from './walk.js'

/** Returns the pixels of a strip, if it is on the screen. */
export function boxOf(panel, entry) {
  const row = panel.rows.find(({ level }) => level === entry.level)
  if (row === undefined || entry.lane === null) return null
  const { view, left } = panel
  const { lane, at } = entry
  if (lane.right(view, at) <= 0 || lane.left(view, at) >= view.width) return null
  const isAlone = isWide(lane, view, at)
  const x0 = isAlone ? edge(view, lane.left(view, at)) : columnOf(lane, view, at)
  const x1 = isAlone ? rightEdge(lane, view, at) : x0 + 1
  const band = bandOf(row, layerOf(entry.strip))
  return { x: left + x0, y: band.y, width: x1 - x0, height: band.height }
}

/** Draws the marks of a panel. */
export function drawMarks(painter, panel) {
  const { ctx, theme, scene } = painter
  drawLit(painter, panel)
  const entry = scene.selected === null ? undefined : scene.store.byId.get(scene.selected)
  if (entry === undefined || entry.strip.space !== panel.space.id) return
  const box = boxOf(panel, entry)
  if (box === null) return
  const first = panel.rows[0].y
  const last = panel.rows[panel.rows.length - 1]
  const width = Math.max(box.width, 2)
  // The strips above it and below it are in its columns.
  ctx.fillStyle = theme.shade
  ctx.fillRect(box.x, first, width, box.y - first)
  ctx.fillRect(box.x, box.y + box.height, width, last.y + last.height - box.y - box.height)
  outline(ctx, theme.background, box.x, box.y, width, box.height, 1)
  outline(ctx, theme.accent, box.x - 2, box.y - 2, width + 4, box.height + 4, 3)
  ctx.fillStyle = theme.accent
  ctx.fillRect(Math.round(box.x + width / 2) - 3, panel.axis.y + panel.axis.height - 2, 6, 4)
}

function outline(ctx, color, x, y, width, height, line) {
  ctx.fillStyle = color
  ctx.fillRect(x, y, width, line)
  ctx.fillRect(x, y + height - line, width, line)
  ctx.fillRect(x, y, line, height)
  ctx.fillRect(x + width - line, y, line, height)
}

/** Draws a bar above each strip that a search found; strips in one column share one. */
function drawLit({ ctx, theme, scene }, panel) {
  if (scene.lit.size === 0) return
  const { view, left } = panel
  ctx.fillStyle = theme.mark
  for (const row of panel.rows) {
    for (const lane of panel.space.lanes(row.level)) {
      const lit = scene.lit.get(lane)
      if (lit === undefined) continue
      for (let k = lowest(lit, lane.firstAfter(view, 0)); k < lit.length; ) {
        const i = lit[k]
        if (lane.left(view, i) >= view.width) break
        const isAlone = isWide(lane, view, i)
        const x0 = isAlone ? edge(view, lane.left(view, i)) : columnOf(lane, view, i)
        const width = isAlone ? rightEdge(lane, view, i) - x0 : 1
        ctx.fillRect(left + x0, row.y - 3, Math.max(width, 2), 4)
        if (width >= 8) {
          ctx.fillRect(left + x0, row.y, 2, row.height)
          ctx.fillRect(left + x0 + width - 3, row.y, 2, row.height)
          ctx.fillRect(left + x0, row.y + row.height - 2, width - 1, 2)
        }
        k = isAlone ? k + 1 : lowest(lit, lane.nextFrom(view, i, x0 + 1))
      }
    }
  }
}

/** Returns the index of the first number in a sorted list that is not smaller. */
function lowest(sorted, number) {
  return firstIndex(0, sorted.length, (i) => sorted[i] >= number)
}
