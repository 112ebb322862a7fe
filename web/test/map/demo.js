// demo.html?count=1000&theme=dark&by=project&space=default&from=10.0.0.0&to=10.0.255.255: the map with generated data, for development.
import { address, createMap } from '../../map/index.js'
import { everyState, large } from './generate.js'

const asked = new URLSearchParams(location.search)
const map = createMap(document.getElementById('map'), { theme: asked.get('theme') ?? 'light', now: () => new Date(Date.UTC(2026, 10, 26)) })
document.body.style.background = asked.get('theme') === 'dark' ? '#0e131a' : '#fff'
const data = asked.has('states') ? everyState() : large(Number(asked.get('count') ?? 1000))
if (asked.has('space')) {
  data.spaces = data.spaces.filter(({ id }) => id === asked.get('space'))
}
map.set(data)
if (asked.has('by')) map.colorBy(asked.get('by'))
if (asked.has('from')) {
  map.view = { space: asked.get('space') ?? 'default', from: address.parseAddress(asked.get('from')), to: address.parseAddress(asked.get('to')) }
}
if (asked.has('selected')) map.select(asked.get('selected'))
if (asked.has('lit')) map.highlight(data.strips.filter((strip) => strip.facets.project === asked.get('lit')).map((strip) => strip.id))
if (asked.has('print')) {
  const canvas = document.createElement('canvas')
  canvas.width = innerWidth
  canvas.height = innerHeight
  map.paintTo(canvas.getContext('2d'), innerWidth, innerHeight, 1)
  map.destroy()
  document.body.style = 'background: #fff; filter: grayscale(1)'
  document.getElementById('map').append(canvas)
}
globalThis.map = map
