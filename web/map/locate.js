// Finds the strip or the free space at a point of the screen.

import { bandOf } from './layout.js'
import { LAYERS } from './store.js'
import { hit } from './walk.js'

/**
 * @returns {{space: string, address: bigint, strip: import('./store.js').Strip|null,
 *   free: {from: bigint, to: bigint}|null, level: number}|null} null outside of all panels
 */
export function locate(panels, x, y) {
  const panel = panels.find(({ top, height }) => y >= top && y < top + height)
  if (panel === undefined) return null
  const { space, view, left } = panel
  const pixel = Math.min(Math.max(Math.floor(x - left), 0), view.width - 1)
  const address = view.address(Math.min(Math.max(x - left, 0), view.width))
  const row = panel.rows.find((candidate) => y >= candidate.y && y < candidate.y + candidate.height)
  const at = { space: space.id, address, strip: null, free: null, level: row?.level ?? 0 }
  if (row === undefined) return at
  const entry = drawnAt(panel, row, pixel, y, address)
  if (entry !== null) return { ...at, strip: entry.strip }
  return { ...at, free: freeAt(space, row.level, address) }
}

/** Returns the strip on top at a pixel of a row. */
function drawnAt({ space, view }, row, pixel, y, address) {
  const layers = space.levels[row.level] ?? []
  for (let k = layers.length - 1; k >= 0; k--) {
    const band = bandOf(row, LAYERS[k])
    if (y < band.y || y >= band.y + band.height) continue
    for (let n = layers[k].lanes.length - 1; n >= 0; n--) {
      const lane = layers[k].lanes[n]
      const i = hit(lane, view, pixel, address)
      if (i >= 0) return lane.items[i]
    }
  }
  return null
}

/** Returns the free space around an address on a level: the addresses of its pool that no strip covers. */
export function freeAt(space, level, address) {
  const pool = space.lanes(level - 1).map((lane) => lane.holding(address)).filter((entry) => entry !== null && entry.strip.kind === 'pool').pop()
  if (level < 2 || pool === undefined) return null
  let { from, to } = pool.strip
  for (const [k, layer] of (space.levels[level] ?? []).entries()) {
    if (LAYERS[k] === 'waiting') continue
    for (const lane of layer.lanes) {
      const at = lane.search(address)
      const next = lane.items[at]?.strip
      const before = lane.items[at - 1]?.strip
      if (next !== undefined && next.from <= address) return null
      if (next !== undefined && next.from <= to) to = next.from - 1n
      if (before !== undefined && before.to >= from) from = before.to + 1n
    }
  }
  return { from, to }
}
