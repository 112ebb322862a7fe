import assert from 'node:assert/strict'
import test from 'node:test'

import { AGES, FACETS, PATTERNS, coloringOf } from '../../map/coloring.js'
import { NAMES, Patterns, drawTile } from '../../map/patterns.js'
import { THEMES, contrast, luminance } from '../../map/theme.js'
import { FakeContext, FakeWindow } from '../fakes/canvas.js'
import { strip } from './generate.js'

const STATES = Object.keys(PATTERNS)

test('contrast is that of WCAG', () => {
  assert.equal(contrast('#000000', '#ffffff'), 21)
  assert.ok(Math.abs(contrast('#767676', '#ffffff') - 4.54) < 0.01)
})

for (const [name, theme] of Object.entries(THEMES)) {
  test(`text is legible on every fill, ${name}`, () => {
    for (const [key, color] of Object.entries(theme.colors)) {
      const text = key === 'level' || key === 'levelTop' ? theme.colors.carved.text : color.text
      if (key !== 'levelTop') assert.ok(contrast(color.fill, text) >= 4.5, `${key}: ${contrast(color.fill, text)}`)
    }
    assert.ok(contrast(theme.background, theme.text) >= 7)
    assert.ok(contrast(theme.background, theme.muted) >= 4.5)
    assert.ok(contrast(theme.colors.free.fill, theme.muted) >= 4.5, 'labels of free space')
    assert.ok(contrast(theme.grid, theme.muted) >= 4.5, 'the ribbon of a space')
  })

  test(`fills, or the edges that they have, stand out from the background, ${name}`, () => {
    for (const [key, color] of Object.entries(theme.colors)) {
      if (key === 'level') continue // it has levelTop as its edge
      assert.ok(contrast(theme.background, color.edge) >= 3, `${key}: ${contrast(theme.background, color.edge)}`)
    }
    for (const key of ['accent', 'mark']) assert.ok(contrast(theme.background, theme[key]) >= 3, key)
    assert.ok(contrast(theme.colors.levelTop.fill, theme.colors.carved.fill) >= 3)
    assert.ok(contrast(theme.colors.levelTop.fill, theme.colors.level.fill) >= 2)
  })

  test(`patterns can be seen on their fills, ${name}`, () => {
    for (const [key, color] of Object.entries(theme.colors)) {
      if (PATTERNS[key] === 'solid' || key === 'free' || key.startsWith('level')) continue
      assert.ok(contrast(color.fill, color.ink) >= 1.5, `${key}: ${contrast(color.fill, color.ink)}`)
    }
  })

  test(`every state, facet and age has another color, ${name}`, () => {
    const keys = [...STATES, 'none', 'other']
    for (const group of [STATES, ['none', 'other', ...Array.from({ length: FACETS }, (_, k) => `facet${k}`)], AGES.map((_, k) => `age${k}`)]) {
      const fills = group.map((key) => theme.colors[key].fill)
      assert.equal(new Set(fills).size, group.length)
      assert.ok(!fills.includes(undefined), keys)
    }
  })

  test(`ages are a sequence from young to old, ${name}`, () => {
    const light = AGES.map((_, k) => luminance(theme.colors[`age${k}`].fill))
    for (let k = 1; k < light.length; k++) assert.ok(light[k] < light[k - 1], `age${k}`)
  })
}

test('states differ without colors: no two have the same pattern', () => {
  const drawn = STATES.map((state) => {
    const ctx = new FakeContext()
    const lines = []
    ctx.moveTo = (x, y) => lines.push(['from', x, y])
    ctx.lineTo = (x, y) => lines.push(['to', x, y])
    drawTile(ctx, PATTERNS[state], { fill: '#ffffff', ink: '#000000' })
    return JSON.stringify([ctx.rectangles.map(({ x, y, width, height }) => [x, y, width, height]), lines, ctx.lineWidth])
  })
  // Free and held are both plain: they differ as white and dark do, and free space has an edge.
  const apart = drawn.filter((_, k) => STATES[k] !== 'free')
  assert.equal(new Set(apart).size, STATES.length - 1)
  for (const theme of Object.values(THEMES)) assert.ok(contrast(theme.colors.free.fill, theme.colors.held.fill) >= 3)
  for (const pattern of Object.values(PATTERNS)) assert.ok(NAMES.includes(pattern))
})

test('a pattern is made once for a color', () => {
  let made = 0
  const window = new FakeWindow()
  const patterns = new Patterns(() => {
    made++
    return window.document.createElement('canvas')
  })
  const ctx = new FakeContext()
  const first = patterns.style(ctx, THEMES.light, 'cooling', 'dots')
  assert.equal(patterns.style(ctx, THEMES.light, 'cooling', 'dots'), first)
  assert.notEqual(patterns.style(ctx, THEMES.dark, 'cooling', 'dots'), first)
  assert.equal(patterns.style(ctx, THEMES.light, 'held', 'solid'), THEMES.light.colors.held.fill)
  assert.equal(made, 2)
})

function facets(counts) {
  const coloring = coloringOf('project', () => 0)
  const add = (value, by) => coloring.count(strip('x', 's', null, 0n, 0n, { facets: { project: value } }), by)
  for (const [value, count] of Object.entries(counts)) for (let k = 0; k < count; k++) add(value, 1)
  coloring.prepare()
  return { coloring, add, of: (value) => coloring.of(strip('x', 's', null, 0n, 0n, { facets: { project: value } })) }
}

test('a value of a facet has the same color, with any other values', () => {
  const alone = facets({ payments: 3 }).of('payments')
  assert.equal(facets({ payments: 3, search: 3 }).of('search') !== alone, true)
  const { coloring, add, of } = facets({ payments: 3, search: 5 })
  const before = of('payments')
  add('web', 1)
  coloring.prepare()
  assert.equal(of('payments'), before)
  const eight = facets(Object.fromEntries(Array.from({ length: 8 }, (_, k) => [`n${k}`, 10])))
  const slots = Array.from({ length: 8 }, (_, k) => eight.of(`n${k}`))
  for (const value of ['a', 'b', 'c']) eight.add(value, 1)
  eight.coloring.prepare()
  assert.deepEqual(Array.from({ length: 8 }, (_, k) => eight.of(`n${k}`)), slots)
  assert.equal(new Set([...slots, ...['a', 'b', 'c'].map(eight.of)]).size, 11)
})

test('values have the colors that they are given, and the rest is other', () => {
  const coloring = coloringOf('project', () => 0, new Map([['web', 3], ['gone', 4]]))
  const of = (value) => strip('x', 's', null, 0n, 0n, { facets: { project: value } })
  for (const value of ['web', 'web', 'payments', '']) coloring.count(of(value), 1)
  coloring.prepare()
  assert.equal(coloring.categories[coloring.of(of('web'))].color, 'facet3')
  assert.equal(coloring.categories[coloring.of(of('payments'))].label, 'other')
  assert.deepEqual(coloring.legend().map(({ label, count }) => [label, count]), [['web', 2], ['other', 1], ['no project', 1]])
  coloring.reset()
  assert.equal(coloring.categories[coloring.of(of('web'))].color, 'facet3')
})

test('the eleven most frequent values have colors, and the rest is other', () => {
  const counts = Object.fromEntries(Array.from({ length: 15 }, (_, k) => [`p${k}`, 20 - k]))
  const { coloring, of } = facets({ ...counts, '': 4 })
  const own = Object.keys(counts).map(of)
  assert.equal(new Set(own.slice(0, 11)).size, 11)
  assert.deepEqual(new Set(own.slice(11)), new Set([1]))
  const legend = coloring.legend()
  assert.deepEqual(legend.slice(0, 11).map(({ label }) => label), Object.keys(counts).slice(0, 11))
  assert.deepEqual(legend.slice(11).map(({ label, count }) => [label, count]), [['other', 9 + 8 + 7 + 6], ['no project', 4]])
})

test('a value that is gone leaves its color to another', () => {
  const counts = Object.fromEntries(Array.from({ length: 12 }, (_, k) => [`p${k}`, 20 - k]))
  const { coloring, add, of } = facets(counts)
  assert.equal(of('p11'), 1)
  for (let k = 0; k < 20; k++) add('p0', -1)
  assert.equal(coloring.prepare(), true)
  assert.notEqual(of('p11'), 1)
})

test('ages are by the time that is given, and grow stale', () => {
  let now = 1e12
  const coloring = coloringOf('age', () => now)
  const of = (since, more) => coloring.categories[coloring.of(strip('x', 's', null, 0n, 0n, { since, ...more }))].label
  assert.equal(of(now - 1000), 'up to 1 hour')
  assert.equal(of(now + 5000), 'up to 1 hour')
  assert.equal(of(now - 2 * 86400e3), 'up to 7 days')
  assert.equal(of(1), 'older than 1 year')
  assert.equal(of(0), 'no date')
  assert.equal(of(5, { kind: 'span' }), 'withheld')
  assert.equal(coloring.isStale(), false)
  now += 61e3
  assert.equal(coloring.isStale(), true)
})
