// Collects rectangles by style and fills them together, because changing the fill style costs
// most.

class Heap {
  constructor(style, color) {
    this.style = style
    this.color = color
    this.numbers = new Float64Array(256)
    this.length = 0
  }

  push(x, y, width, height) {
    if (this.length + 4 > this.numbers.length) {
      const larger = new Float64Array(this.numbers.length * 2)
      larger.set(this.numbers)
      this.numbers = larger
    }
    this.numbers[this.length++] = x
    this.numbers[this.length++] = y
    this.numbers[this.length++] = width
    this.numbers[this.length++] = height
  }
}

export class Brush {
  constructor(patterns) {
    this.patterns = patterns
    /** @type {Map<string, Map<string|null, Heap>>} by color key and pattern */
    this.heaps = new Map()
    this.drawn = 0
  }

  /** Begins to draw on a canvas with a theme. */
  begin(ctx, theme) {
    this.ctx = ctx
    if (theme !== this.theme) this.heaps.clear()
    this.theme = theme
    this.drawn = 0
  }

  heap(key, pattern) {
    let byPattern = this.heaps.get(key)
    if (byPattern === undefined) this.heaps.set(key, (byPattern = new Map()))
    let heap = byPattern.get(pattern)
    if (heap === undefined) {
      const color = this.theme.colors[key] ?? this.theme.colors.unknown
      const style = this.patterns.style(this.ctx, this.theme, key in this.theme.colors ? key : 'unknown', pattern)
      byPattern.set(pattern, (heap = new Heap(style, color)))
    }
    return heap
  }

  /** Adds a rectangle of a color and a pattern. */
  push(key, pattern, x, y, width, height) {
    this.heap(key, pattern).push(x, y, width, height)
  }

  /** Fills the collected rectangles; if a color has an edge, each rectangle gets it. */
  flush() {
    for (const byPattern of this.heaps.values()) {
      for (const heap of byPattern.values()) if (heap.length > 0) this.fill(heap)
    }
  }

  fill(heap) {
    const { ctx } = this
    const { numbers, length, color } = heap
    const hasEdge = color.edge !== color.fill
    if (hasEdge) {
      ctx.fillStyle = color.edge
      for (let i = 0; i < length; i += 4) ctx.fillRect(numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3])
    }
    ctx.fillStyle = heap.style
    for (let i = 0; i < length; i += 4) {
      if (!hasEdge) ctx.fillRect(numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3])
      else if (numbers[i + 2] > 2 && numbers[i + 3] > 2) ctx.fillRect(numbers[i] + 1, numbers[i + 1] + 1, numbers[i + 2] - 2, numbers[i + 3] - 2)
    }
    this.drawn += length / 4
    heap.length = 0
  }
}
