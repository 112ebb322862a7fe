// The rules for every file of the page: text from the cluster is data, and never becomes markup or
// code; and every file that the page loads is beside it.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const web = fileURLToPath(new URL('../../', import.meta.url))
const files = ['page', 'map'].flatMap((folder) => readdirSync(join(web, folder)).map((name) => join(folder, name)))
  .filter((name) => /\.(js|html|css|svg)$/.test(name))

const FORBIDDEN = {
  'markup from text': /\b(innerHTML|outerHTML|insertAdjacentHTML|setHTMLUnsafe|createContextualFragment|DOMParser|srcdoc)\b|document\.write/,
  'code from text': /\beval\s*\(|\bnew\s+Function\b|\bFunction\s*\(|set(Timeout|Interval)\s*\(\s*['"`]|javascript:/,
  'an inline handler': /\son[a-z]+\s*=\s*["']|setAttribute\(\s*['"`]on/,
}

test('there are files', () => {
  for (const name of ['page/index.html', 'page/style.css', 'page/main.js', 'page/store.js', 'map/store.js']) assert.ok(files.includes(name), name)
})

for (const [what, pattern] of Object.entries(FORBIDDEN)) {
  test(`no file has ${what}`, () => {
    for (const name of files) {
      const line = readFileSync(join(web, name), 'utf8').split('\n').findIndex((text) => pattern.test(text))
      assert.equal(line, -1, `${name}:${line + 1} matches ${pattern}`)
    }
  })
}

test('the patterns find their targets', () => {
  const bad = {
    'markup from text': ['x.innerHTML = y', 'document.write(x)', 'x.insertAdjacentHTML("a", b)'],
    'code from text': ['eval(x)', 'new Function("x")', 'setTimeout("x()")', '<a href="javascript:x">'],
    'an inline handler': ['<b onclick="x()">', "x.setAttribute('onclick', y)"],
  }
  for (const [what, texts] of Object.entries(bad)) for (const text of texts) assert.match(text, FORBIDDEN[what])
})

test('the page has no inline script or style, and loads from itself alone', () => {
  const html = readFileSync(join(web, 'page/index.html'), 'utf8')
  assert.doesNotMatch(html, /<style|\sstyle=/)
  for (const [, attributes, body] of html.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)) {
    assert.match(attributes, /\ssrc="/)
    assert.equal(body.trim(), '')
  }
  for (const name of files) {
    const text = readFileSync(join(web, name), 'utf8').replaceAll('http://www.w3.org/2000/svg', '')
    assert.doesNotMatch(text, /\b(https?:)?\/\/[a-z0-9-]+\.[a-z]/i, name)
    assert.doesNotMatch(text, /@import|url\((?!["']?data:)/, name)
  }
})

test('modules import from beside them, by names that exist', () => {
  for (const name of files.filter((file) => file.endsWith('.js'))) {
    for (const [, from] of readFileSync(join(web, name), 'utf8').matchAll(/^(?:import|export)[^'"]*?from '([^']+)'/gm)) {
      assert.match(from, /^\.\.?\//, `${name} imports ${from}`)
      const path = join(name, '..', from)
      assert.ok(files.includes(path), `${name} imports ${from}, which is not there`)
      if (name.startsWith('map/')) assert.match(path, /^map\//, `${name} imports ${from}: the map imports from its folder only`)
    }
  }
})

test('files and functions are short', () => {
  for (const name of files.filter((file) => file.endsWith('.js'))) {
    const lines = readFileSync(join(web, name), 'utf8').split('\n')
    assert.ok(lines.length <= 400, `${name} has ${lines.length} lines`)
  }
})
