// Makes elements. Text is always text: nothing here takes markup.

import { press } from './press.js'

/**
 * Makes an element.
 * @param {Object<string, unknown>} [props] attributes; `text` is its text, `on` its listeners,
 *   `class` its classes; true sets an empty attribute, and false, null and undefined none
 * @param {...(Node|string|null|undefined|false)} children
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue
    if (name === 'text') element.textContent = String(value)
    else if (name === 'on') for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener)
    else element.setAttribute(name, value === true ? '' : String(value))
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false))
  return element
}

/** Returns the element with an id. A missing element is an error of the page. */
export function byId(id) {
  const element = document.getElementById(id)
  if (!element) throw new Error(`the page has no element ${id}`)
  return element
}

/**
 * Makes a button.
 * @param {(event: Event) => void} onClick
 * @param {Object<string, unknown>} [props]
 */
export function button(text, onClick, props = {}) {
  return h('button', { type: 'button', text, on: { click: onClick }, ...props })
}

/**
 * Makes a button that copies a text, and reports it.
 * @param {string} what the name of the copied text, for the label
 * @param {string} [face] the words on it
 */
export function copyButton(text, what, say, face = 'Copy') {
  const made = button(face, async () => {
    const copied = await copyText(text)
    made.style.minWidth = `${made.offsetWidth}px` // so that buttons beside it do not move
    say(copied ? `Copied ${what}.` : `Could not copy ${what}: select the text and copy it.`)
    made.textContent = copied ? 'Copied' : 'Not copied'
    setTimeout(() => (made.textContent = face), 1500)
  }, { class: 'small', 'aria-label': `${face} ${what}` })
  return made
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return false
  }
}

/** Calls a function once after a burst of calls. */
export function afterBurst(work, milliseconds) {
  let timer = 0
  return () => {
    clearTimeout(timer)
    timer = setTimeout(work, milliseconds)
  }
}

/**
 * Calls a function at most once in `milliseconds`, and once after the last call, but not while a
 * pointer is pressed. It calls slow work less often, so that the work never takes more than a
 * tenth of the time.
 * @returns {{(): void, now: () => void}} now: does the due work at once
 */
export function atMostEvery(work, milliseconds) {
  let timer = 0
  let last = -Infinity
  let pause = milliseconds
  const due = () => {
    clearTimeout(timer)
    timer = 0
    const begin = performance.now()
    work()
    last = performance.now()
    pause = Math.max(milliseconds, 9 * (last - begin))
  }
  const soon = () => {
    timer ||= setTimeout(() => press.after(() => timer && due()), Math.max(0, last + pause - performance.now()))
  }
  return Object.assign(soon, { now: () => timer && due() })
}

/**
 * Replaces the children of an element. It does not touch children that stay: they keep the focus,
 * and the selection in them.
 */
export function place(parent, children) {
  const staying = new Set(children)
  for (const child of [...parent.children]) if (!staying.has(child)) child.remove()
  children.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null)
  })
}

/** Returns the nodes of the parts of a line, with links as buttons that look like links. */
export function partsOf(line, follow) {
  const nodes = []
  for (const part of line) {
    if (nodes.length > 0) nodes.push(document.createTextNode(' '))
    if (typeof part === 'string') nodes.push(document.createTextNode(part))
    else if (part.to || part.filter) nodes.push(button(part.text, () => follow(part), { class: 'link' }))
    else nodes.push(document.createTextNode(part.text))
  }
  return nodes
}
