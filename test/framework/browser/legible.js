// Finds the text of a page that cannot be read: text that is clipped, lies on other text, or is
// outside of the window. Returns a list of sentences.
(() => {
  const found = []
  const SLACK = 1.5 // pixels: letters lean out of their boxes
  const name = (e) => e.id ? `#${e.id}` : `${e.parentElement && e.parentElement !== document.body ? `${name(e.parentElement)} > ` : ''}${e.tagName.toLowerCase()}${e.className && typeof e.className === 'string' ? `.${e.className.split(' ').join('.')}` : ''}`
  const short = (text) => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text)
  const isForReaders = (e) => !!e.closest('.hidden') || getComputedStyle(e).clipPath !== 'none'
  const scrolls = (value) => value === 'auto' || value === 'scroll'

  // The part of a box that its ancestors leave, and which of them clips it.
  const cut = (box, element) => {
    let { left, right, top, bottom } = box
    let by = null
    let rolled = false
    for (let e = element; e && e !== document.documentElement; e = e.parentElement) {
      const style = getComputedStyle(e)
      if (style.display === 'inline' || style.display === 'contents') continue
      const b = e.getBoundingClientRect()
      for (const [axis, from, to] of [[style.overflowX, 'left', 'right'], [style.overflowY, 'top', 'bottom']]) {
        if (axis === 'visible') continue
        const beyond = from === 'left' ? left < b.left - SLACK || right > b.right + SLACK : top < b.top - SLACK || bottom > b.bottom + SLACK
        if (beyond && scrolls(axis)) rolled = true // it can be scrolled into view
        if (beyond && !scrolls(axis) && !rolled) by ??= [e, style]
        if (from === 'left') [left, right] = [Math.max(left, b.left), Math.min(right, b.right)]
        else [top, bottom] = [Math.max(top, b.top), Math.min(bottom, b.bottom)]
      }
      if (style.position === 'fixed') break
    }
    return { left, right, top, bottom, by, rolled }
  }

  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true })
  const texts = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement
    if (!node.data.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || isForReaders(element) || element.closest('script, style, noscript, option')) continue
    const range = document.createRange()
    range.selectNodeContents(node)
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue
      const seen = cut(box, element)
      const text = node.data.trim()
      const isShortened = seen.by && seen.by[1].textOverflow === 'ellipsis' && seen.by[0].title.includes(text)
      if (seen.by && !isShortened) found.push(`${short(text)} of ${name(element)} is clipped by ${name(seen.by[0])}`)
      const isFixed = (e) => e && e !== document.body && (getComputedStyle(e).position === 'fixed' || isFixed(e.parentElement))
      if ((box.left < -SLACK || box.right > innerWidth + SLACK) && !seen.rolled && !seen.by && !(isFixed(element) && box.bottom < 0)) found.push(`${short(text)} of ${name(element)} reaches from ${Math.round(box.left)} to ${Math.round(box.right)}, the window is ${innerWidth} wide`)
      if (seen.right - seen.left > 1 && seen.bottom - seen.top > 1) texts.push({ element, text, left: seen.left, right: seen.right, top: seen.top, bottom: seen.bottom })
    }
  }

  const isOpaque = (e) => {
    pen.clearRect(0, 0, 1, 1)
    pen.fillStyle = getComputedStyle(e).backgroundColor
    pen.fillRect(0, 0, 1, 1)
    return pen.getImageData(0, 0, 1, 1).data[3] > 200
  }
  // Text that is covered by something opaque, as by a menu that is open, does not lie on it.
  const isOnTop = ({ element, left, right, top, bottom }) => {
    const y = (top + bottom) / 2
    return [left + 1, (left + right) / 2, right - 1].every((x) => {
      if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return false
      for (let e = document.elementFromPoint(x, y); e && !e.contains(element); e = e.parentElement) if (isOpaque(e)) return false
      return true
    })
  }
  const top = texts.filter(isOnTop)
  top.sort((a, b) => a.top - b.top)
  top.forEach((a, i) => {
    for (let j = i + 1; j < top.length && top[j].top < a.bottom - SLACK; j++) {
      const b = top[j]
      if (a.element === b.element) continue
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > SLACK && Math.min(a.bottom, b.bottom) - b.top > 3) found.push(`${short(a.text)} of ${name(a.element)} and ${short(b.text)} of ${name(b.element)} lie on each other`)
    }
  })

  for (const field of document.querySelectorAll('input[type=text], input:not([type]), input[type=search], select')) {
    if (!field.checkVisibility({ visibilityProperty: true })) continue
    const style = getComputedStyle(field)
    const isSelect = field.tagName === 'SELECT'
    pen.font = style.font
    pen.letterSpacing = style.letterSpacing === 'normal' ? '0px' : style.letterSpacing
    pen.wordSpacing = style.wordSpacing
    const shown = isSelect ? field.selectedOptions[0]?.textContent ?? '' : field.value ? '' : field.placeholder
    const arrow = isSelect && style.appearance !== 'none' ? 16 : 0
    const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - arrow
    const needs = pen.measureText(shown).width
    const isShortened = style.textOverflow === 'ellipsis' && field.title.includes(shown)
    if (needs > room + SLACK && !isShortened) found.push(`${short(shown)} of ${name(field)} needs ${Math.ceil(needs)} pixels and has ${Math.floor(room)}`)
  }
  for (const e of document.querySelectorAll('button, th, label, h1, h2, h3')) {
    if (e.checkVisibility({ visibilityProperty: true }) && !isForReaders(e) && getComputedStyle(e).display !== 'inline' && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + SLACK && getComputedStyle(e).overflowX !== 'visible') {
      if (!e.querySelector('[title]')) found.push(`${short(e.innerText)} of ${name(e)} is ${e.scrollWidth} wide and has ${e.clientWidth}`)
    }
  }
  if (document.documentElement.scrollWidth > innerWidth + SLACK) found.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`)
  return [...new Set(found)]
})()
