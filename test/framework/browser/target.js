// Finds where to press an element: waits for up to 60 frames until it is seen, is at the same
// place in two of them, and nothing covers it. If the page moves after that and the press hits
// something else, the events of the press are stopped before the page gets them. __landed reports
// whether the element was hit, and ends that.
(async selector => {
  const frame = () => new Promise(done => requestAnimationFrame(done))
  const name = e => e ? e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') : 'nothing'
  const spot = element => {
    const box = element.getClientRects()[0]
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 }
  }
  const guard = element => {
    const events = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click']
    let landed = null
    const judge = event => {
      landed ??= event.composedPath().includes(element)
      if (landed) return // the page handles the click
      event.preventDefault()
      event.stopImmediatePropagation()
    }
    for (const event of events) addEventListener(event, judge, { capture: true })
    globalThis.__landed = () => {
      for (const event of events) removeEventListener(event, judge, { capture: true })
      return landed !== false
    }
  }
  let why = 'it is not on the page', before = null
  for (let frames = 0; frames < 60; frames++, await frame()) {
    const element = document.querySelector(selector)
    if (!element) { why = 'it is not on the page'; before = null; continue }
    if (!element.checkVisibility({ visibilityProperty: true }) || element.getClientRects().length === 0) { why = 'it is not seen'; before = null; continue }
    if (before?.element !== element) element.scrollIntoViewIfNeeded()
    const at = spot(element), same = before?.element === element && before.x === at.x && before.y === at.y
    before = { element, ...at }
    if (!same) { why = 'it moves'; continue }
    const hit = document.elementFromPoint(at.x, at.y)
    if (!element.contains(hit)) {
      why = name(hit) + ' covers it'
      element.scrollIntoView({ block: 'center' })
      continue
    }
    guard(element)
    return { X: at.x, Y: at.y, Why: '' }
  }
  return { X: 0, Y: 0, Why: why }
})
