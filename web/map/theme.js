// Holds colors as data: one entry for each color key and theme. Text and ink of patterns follow
// from the fill, so that their contrast is checked in one place.

/** Returns the relative luminance as WCAG defines it. @param {string} color #rrggbb */
export function luminance(color) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const share = parseInt(color.slice(i, i + 2), 16) / 255
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

/** Returns the contrast of two colors, from 1 to 21. */
export function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b)
  return (light + 0.05) / (dark + 0.05)
}

function mix(one, other, share) {
  const part = (color, i) => parseInt(color.slice(i, i + 2), 16)
  return `#${[1, 3, 5].map((i) => Math.round(part(one, i) * (1 - share) + part(other, i) * share).toString(16).padStart(2, '0')).join('')}`
}

const DARK_TEXT = '#10151c'
const LIGHT_TEXT = '#ffffff'

/** Returns the colors on a fill: text, and the ink of patterns. */
function paintOf(fill, edge, strength) {
  const text = contrast(fill, LIGHT_TEXT) >= 4.5 ? LIGHT_TEXT : DARK_TEXT
  return { fill, edge, text, ink: edge === fill ? mix(fill, text, strength) : mix(fill, edge, strength) }
}

function themeOf(base, fills, strength) {
  const colors = {}
  for (const [key, value] of Object.entries(fills)) {
    const [fill, edge] = Array.isArray(value) ? value : [value, value]
    colors[key] = paintOf(fill, edge, strength)
  }
  return { ...base, colors }
}

/** The fills; a pair is a light fill and the edge that it is always drawn with. */
const LIGHT = {
  free: ['#f3f6f9', '#8592a3'],
  level: '#bccbde',
  levelTop: '#66788f',
  held: '#3a74b4',
  carved: ['#e2e9f2', '#66788f'],
  withheld: ['#d6dbe2', '#667180'],
  retained: '#b9801f',
  cooling: '#3d96a3',
  drained: '#a8323f',
  releasing: '#8059a8',
  waiting: '#de5f2c',
  unknown: '#6c6c79',
  none: '#7c8a9c',
  other: '#5c6673',
  facet0: '#3a74b4',
  facet1: '#cf6a2a',
  facet2: '#2f8f5b',
  facet3: '#b8404f',
  facet4: '#7a5bb5',
  facet5: '#96702a',
  facet6: '#b54a8f',
  facet7: '#2e8f97',
  facet8: '#6f8a1f',
  facet9: '#4d5bb8',
  facet10: '#8c4a3a',
  age0: '#b5893a',
  age1: '#4b9a86',
  age2: '#358a8c',
  age3: '#2d7790',
  age4: '#2c628d',
  age5: '#304c80',
  age6: '#33366a',
}

const DARK = {
  free: ['#161c25', '#66748a'],
  level: '#3f5067',
  levelTop: '#7f92ab',
  held: '#4d8fd6',
  carved: ['#232d3b', '#7f92ab'],
  withheld: ['#39424f', '#8b96a5'],
  retained: '#d6a03f',
  cooling: '#4fb3bf',
  drained: '#e0626c',
  releasing: '#a583d1',
  waiting: '#f08550',
  unknown: '#9a9aa8',
  none: '#8593a6',
  other: '#aab4c2',
  facet0: '#5797dc',
  facet1: '#e58a4e',
  facet2: '#4fb57d',
  facet3: '#e0707c',
  facet4: '#a78be0',
  facet5: '#c79d4d',
  facet6: '#dd82bb',
  facet7: '#4bb8c0',
  facet8: '#9cb84a',
  facet9: '#8b97ea',
  facet10: '#c98573',
  age0: '#ffe08a',
  age1: '#b8e3c9',
  age2: '#86d0c8',
  age3: '#5fb6c8',
  age4: '#5097c2',
  age5: '#5c84be',
  age6: '#6064a8',
}

export const THEMES = {
  light: themeOf(
    {
      background: '#ffffff', text: '#18202b', muted: '#566476', grid: '#eef1f5',
      accent: '#0b57d0', mark: '#c2185b', shade: 'rgba(11, 87, 208, 0.07)',
    },
    LIGHT,
    0.4,
  ),
  dark: themeOf(
    {
      background: '#0e131a', text: '#e6ebf2', muted: '#9aa8ba', grid: '#1a222c',
      accent: '#8ab4f8', mark: '#ff7eb6', shade: 'rgba(138, 180, 248, 0.10)',
    },
    DARK,
    0.42,
  ),
  print: themeOf(
    {
      background: '#ffffff', text: '#000000', muted: '#404040', grid: '#ececec',
      accent: '#000000', mark: '#000000', shade: 'rgba(0, 0, 0, 0.06)',
    },
    LIGHT,
    0.75,
  ),
}
