// Draws patterns: small tiles that repeat. Each state has its own, so that a print in gray, or an
// eye that does not see colors, can distinguish them.

const SIZE = 8

/** The rectangles of a tile, as x, y, width, height. */
const RECTANGLES = {
  none: [],
  solid: [],
  rules: [[0, 5, 8, 1]],
  bars: [[1, 0, 2, 8], [5, 0, 2, 8]],
  dots: [[1, 1, 2, 2], [5, 5, 2, 2]],
  checks: [[0, 0, 4, 4], [4, 4, 4, 4]],
}

/** The lines of a tile, beyond the edges so that tiles join. */
const LINES = {
  rising: [[-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6]],
  falling: [[-2, 6, 2, 10], [-2, -2, 10, 10], [6, -2, 10, 2]],
  cross: [[-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6], [-2, 6, 2, 10], [-2, -2, 10, 10], [6, -2, 10, 2]],
  chevrons: [[0, 6, 4, 2], [4, 2, 8, 6], [0, 2, 4, -2], [4, -2, 8, 2], [0, 10, 4, 6], [4, 6, 8, 10]],
}

const WIDTHS = { rising: 2, falling: 2.5, cross: 1, chevrons: 1.5 }

/** The names of all patterns. */
export const NAMES = [...Object.keys(RECTANGLES), ...Object.keys(LINES)]

/** Draws a tile. @param {{fill: string, ink: string}} color */
export function drawTile(ctx, pattern, color) {
  ctx.fillStyle = color.fill
  ctx.fillRect(0, 0, SIZE, SIZE)
  ctx.fillStyle = color.ink
  for (const [x, y, width, height] of RECTANGLES[pattern] ?? []) ctx.fillRect(x, y, width, height)
  if (LINES[pattern] === undefined) return
  ctx.strokeStyle = color.ink
  ctx.lineWidth = WIDTHS[pattern]
  ctx.beginPath()
  for (const [x0, y0, x1, y1] of LINES[pattern]) {
    ctx.moveTo(x0, y0)
    ctx.lineTo(x1, y1)
  }
  ctx.stroke()
}

/** Draws the color and the pattern of a legend's entry on a canvas, in twice the size. */
export function drawSwatch(canvas, { color, ink, pattern }) {
  const context = canvas.getContext('2d')
  const tile = canvas.ownerDocument.createElement('canvas')
  tile.width = tile.height = SIZE
  drawTile(tile.getContext('2d'), pattern, { fill: color, ink })
  context.setTransform(2, 0, 0, 2, 0, 0)
  context.fillStyle = context.createPattern(tile, 'repeat')
  context.fillRect(0, 0, canvas.width / 2, canvas.height / 2)
}

/** Makes fill styles for a canvas, each once. */
export class Patterns {
  /** @param {() => HTMLCanvasElement} makeCanvas */
  constructor(makeCanvas) {
    this.makeCanvas = makeCanvas
    this.made = new Map()
  }

  /** Returns a fill style: a color if the pattern is plain, and else a CanvasPattern. */
  style(ctx, theme, key, pattern) {
    const color = theme.colors[key]
    if (pattern === null || pattern === 'none' || pattern === 'solid') return color.fill
    const name = `${color.fill}${color.ink}${pattern}`
    let style = this.made.get(name)
    if (style === undefined) {
      const tile = this.makeCanvas()
      tile.width = SIZE
      tile.height = SIZE
      drawTile(tile.getContext('2d'), pattern, color)
      style = ctx.createPattern(tile, 'repeat')
      this.made.set(name, style)
    }
    return style
  }
}
