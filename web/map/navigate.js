// Finds the next strip for a key: in address order on a level, and up and down.

import { inOrder } from './lane.js'

/** Returns the strip before (-1) or behind (1) one on its level. @param {1|-1} direction */
export function beside(space, entry, direction) {
  let best = null
  const consider = (other) => {
    if (other === undefined || Math.sign(inOrder(other, entry)) !== direction) return
    if (best === null || Math.sign(inOrder(best, other)) === direction) best = other
  }
  for (const layer of space.levels[entry.level] ?? []) {
    for (const lane of layer.lanes) {
      // No two strips of a lane overlap, so the next one is one of these three.
      const at = lane.search(entry.strip.from)
      for (let k = at - 1; k <= at + 1; k++) consider(lane.items[k])
    }
    for (const other of layer.spill) consider(other)
  }
  return best
}

/** Returns the strip that contains one. */
export function above(store, space, entry) {
  const parent = store.parentOf(entry.strip.id)
  if (parent !== undefined) return parent
  for (let level = entry.level - 1; level > 0; level--) {
    for (const lane of space.lanes(level).reverse()) {
      const found = lane.holding(entry.strip.from)
      if (found !== null) return found
    }
  }
  return null
}

/** Returns the first strip of a level that has addresses from..to. */
export function firstOn(space, level, from, to) {
  let best = null
  for (const lane of space.lanes(level)) {
    const found = lane.items[lane.search(from)]
    if (found === undefined || found.strip.from > to) continue
    if (best === null || inOrder(found, best) < 0) best = found
  }
  return best
}

/** Returns the first strip below one, preferably a visible one. */
export function below(space, view, entry) {
  const { from, to } = entry.strip
  const seen = firstOn(space, entry.level + 1, from > view.from ? from : view.from, to < view.to ? to : view.to)
  return seen ?? firstOn(space, entry.level + 1, from, to)
}
