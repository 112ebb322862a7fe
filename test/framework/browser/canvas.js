// Records the drawings on canvases: for each canvas of the page the texts of its last frame, and of
// each frame how many calls it took and how long the main thread was busy with it.
(() => {
  const noted = { frame: 0, frames: [], texts: new Map(), first: 0, measuring: false }
  window.__drawn = noted
  let calls = 0
  const proto = CanvasRenderingContext2D.prototype
  const begin = (canvas) => {
    let kept = noted.texts.get(canvas)
    if (!kept || kept.frame !== noted.frame) noted.texts.set(canvas, (kept = { frame: noted.frame, texts: [] }))
    return kept
  }
  for (const method of ['fillRect', 'strokeRect', 'fill', 'stroke', 'fillText', 'strokeText', 'drawImage', 'clearRect', 'roundRect', 'rect', 'moveTo', 'lineTo', 'arc', 'beginPath', 'clip', 'save', 'restore']) {
    const real = proto[method]
    if (!real) continue
    proto[method] = function (...args) {
      calls++
      if (this.canvas.isConnected) {
        if (noted.first === 0 && (method === 'fillText' || method === 'drawImage')) noted.first = performance.now()
        const kept = begin(this.canvas)
        if (method === 'fillText') {
          const m = this.measureText(args[0])
          const t = this.getTransform()
          const left = this.textAlign === 'center' ? args[1] - m.width / 2 : this.textAlign === 'right' || this.textAlign === 'end' ? args[1] - m.width : args[1]
          kept.texts.push({ text: args[0], left: t.a * left + t.e, right: t.a * (left + m.width) + t.e, top: t.d * (args[2] - m.actualBoundingBoxAscent) + t.f, bottom: t.d * (args[2] + m.actualBoundingBoxDescent) + t.f })
        }
      }
      return real.apply(this, args)
    }
  }
  const request = window.requestAnimationFrame
  window.requestAnimationFrame = (callback) => request((time) => {
    if (noted.time !== time) {
      noted.time = time
      noted.frame++
    }
    callback(time)
  })

  // Draws frames while step(n) is called in each, until it has been called `count` times. Of each
  // frame: the time since the one before, how long the main thread was busy, the calls of canvases.
  noted.measure = (count, step) => new Promise((resolve) => {
    const frames = []
    let last = 0
    const channel = new MessageChannel()
    let open = null
    channel.port1.onmessage = () => {
      open.busy = performance.now() - open.begin
      open.calls = calls - open.calls
    }
    const frame = (time) => {
      if (frames.length > count) {
        resolve(frames.slice(1).map(({ interval, busy, calls }) => ({ interval, busy: busy ?? 0, calls })))
        return
      }
      open = { interval: last ? time - last : 0, begin: performance.now(), calls }
      last = time
      frames.push(open)
      request(frame) // before the frame that the step asks for, so that all of a frame is within it
      if (frames.length <= count) step(frames.length)
      channel.port2.postMessage(0)
    }
    request(frame)
  })
})()
