// Visits the strips of a lane as they are on the screen: strips of a pixel or more by themselves,
// and the others by the column in which they begin. So a lane costs no more steps than it has
// pixels, whatever its number of strips. Drawing, pointing and listing all use this, so that they
// agree.

/** The distance outside of the view that rectangles can reach: their edges must not be visible. */
const BEYOND = 4

/** Positions that differ less are the same: their calculation has this error. */
const ERROR = 1e-4

/** Returns the pixel of a position, cut off outside of the view. */
export function edge(view, x) {
  return Math.floor(Math.min(Math.max(x, -BEYOND), view.width + BEYOND) + ERROR)
}

/** Strips of this width or more are drawn with the last pixel that they have a part of. */
const GENEROUS = 8

/**
 * Returns the pixel up to which a strip of a pixel or more is drawn. A long strip is drawn with
 * the last pixel that it has a part of, unless the next strip begins there, so that its content
 * does not stand out.
 */
export function rightEdge(lane, view, i) {
  const right = lane.right(view, i)
  if (right - lane.left(view, i) < GENEROUS) return edge(view, right)
  const last = Math.ceil(Math.min(Math.max(right, -BEYOND), view.width + BEYOND) - ERROR)
  const isShared = i + 1 < lane.count && lane.left(view, i + 1) < last - ERROR
  return isShared ? edge(view, right) : last
}

/** Reports whether strip i is drawn by itself. */
export function isWide(lane, view, i) {
  return lane.right(view, i) - lane.left(view, i) >= 1 - ERROR
}

/** Returns the pixel column of a strip that is less than a pixel wide. */
export function columnOf(lane, view, i) {
  return Math.max(0, Math.floor(lane.left(view, i) + ERROR))
}

/**
 * Visits the visible strips of a lane, in order.
 * @param {{wide(lane, i, x0, x1): void, clump(lane, i, j, column): void}} sink wide: strip i is
 *   drawn from pixel x0 up to x1; clump: strips i to j-1 are in a column together
 */
export function walk(lane, view, sink) {
  let i = lane.firstAfter(view, 0)
  while (i < lane.count) {
    const left = lane.left(view, i)
    if (left >= view.width) return
    const right = lane.right(view, i)
    if (right - left >= 1 - ERROR) {
      sink.wide(lane, i, edge(view, left), rightEdge(lane, view, i))
      i++
      continue
    }
    const column = columnOf(lane, view, i)
    let j = lane.nextFrom(view, i, column + 1 - ERROR)
    if (j - 1 > i && isWide(lane, view, j - 1)) j--
    sink.clump(lane, i, j, column)
    i = j
  }
}

/**
 * Returns the share of a column that strips cover, of which i to j-1 begin in it. If they go on in
 * the next column, it is measured from the first of them to the next one behind them, so that the
 * edges of addresses and pixels make no pattern.
 */
export function shareOf(lane, view, i, j, column) {
  const covered = lane.covered(i, j) * view.scale
  const left = lane.left(view, i)
  const right = lane.right(view, j - 1)
  const before = i > 0 ? lane.right(view, i - 1) : -Infinity
  const next = j < lane.count ? lane.left(view, j) : Infinity
  if (left - before < 0.5 && next - right < 0.5) return Math.min(covered / (next - left), 1)
  const beyond = Math.max(0, right - column - 1)
  return Math.min(covered + Math.max(0, before - column) - beyond, 1)
}

/**
 * Returns the strip that is drawn at a pixel.
 * @param {bigint} address the address there: of several in a column, the one nearest to it
 * @returns {number} -1 if there is none
 */
export function hit(lane, view, pixel, address) {
  const first = pixel === 0 ? lane.firstAfter(view, 0) : lane.nextFrom(view, -1, pixel - ERROR)
  if (first < lane.count && !isWide(lane, view, first) && columnOf(lane, view, first) === pixel) {
    let end = lane.nextFrom(view, first, pixel + 1 - ERROR)
    if (end - 1 > first && isWide(lane, view, end - 1)) end--
    return Math.min(Math.max(lane.search(address), first), end - 1)
  }
  for (let i = lane.firstAfter(view, pixel - 1); i < lane.count && lane.left(view, i) < pixel + 1; i++) {
    if (isWide(lane, view, i) && edge(view, lane.left(view, i)) <= pixel && pixel < rightEdge(lane, view, i)) return i
  }
  return -1
}
