// The colors of the style sheet: text is readable on every background, in both themes, and the
// edges of controls can be seen (WCAG 2.2, 1.4.3 and 1.4.11).

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { contrast, THEMES } from '../../map/theme.js'

const css = readFileSync(new URL('../../page/style.css', import.meta.url), 'utf8')
const colors = Object.fromEntries([...css.matchAll(/--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);/g)].map(([, name, light, dark]) => [name, { light, dark }]))

const GROUNDS = ['ground', 'surface', 'raised', 'code', 'accent-ground']
const PAIRS = [
  ...['text', 'quiet', 'accent'].flatMap((text) => GROUNDS.map((ground) => [text, ground, 4.5])),
  ['text', 'warn-ground', 4.5], ['text', 'bad-ground', 4.5], ['bad', 'raised', 4.5],
  ...['edge', 'good', 'warn', 'bad'].flatMap((mark) => ['surface', 'raised'].map((ground) => [mark, ground, 3])),
]

test('the style sheet has the colors', () => {
  for (const name of PAIRS.flat().filter((one) => typeof one === 'string')) assert.ok(colors[name], name)
})

for (const theme of ['light', 'dark']) {
  test(`contrast: ${theme}`, () => {
    for (const [text, ground, least] of PAIRS) {
      const ratio = contrast(colors[text][theme], colors[ground][theme])
      assert.ok(ratio >= least, `${text} on ${ground}: ${ratio.toFixed(2)}, needs ${least}`)
    }
    const [, light, dark] = /button\.primary \{[^}]*color: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/.exec(css)
    assert.ok(contrast({ light, dark }[theme], colors.accent[theme]) >= 4.5, 'the main button')
  })

  test(`the map lies on its own color: ${theme}`, () => {
    const [, light, dark] = /\.pane \{ background: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/.exec(css)
    assert.equal({ light, dark }[theme], THEMES[theme].background)
  })
}
