// Generated data for tests and for the page of development: the same for the same seed.

/** A generator of numbers from 0 to 1 (mulberry32). */
export function randomOf(seed) {
  let a = seed >>> 0
  return () => {
    a = (a + 0x6d2b79f5) | 0
    let t = Math.imul(a ^ (a >>> 15), 1 | a)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** A whole BigInt from 0 to below a limit. */
export function below(random, limit) {
  let value = 0n
  for (let bits = 0; bits < 160; bits += 32) value = (value << 32n) | BigInt(Math.floor(random() * 2 ** 32))
  return value % limit
}

const STATES = ['held', 'held', 'held', 'held', 'retained', 'cooling', 'drained', 'releasing']
const PROJECTS = ['payments', 'search', 'identity', 'web', 'batch', 'ml', 'edge', 'media', 'infra', 'qa', 'data', 'ops', 'labs', 'mail', 'legacy']
const CLASSES = ['small', 'medium', 'large']

export function strip(id, space, parent, from, to, more = {}) {
  return { id, space, parent, from, to, kind: 'block', state: 'held', label: id, sub: '', facets: {}, since: 0, ...more }
}

/** Blocks of a size in a pool, some of which are left out, until there are enough. */
function fill(strips, pool, size, count, random, now) {
  const room = (pool.to - pool.from + 1n) / size
  const stride = room / BigInt(Math.ceil(count)) || 1n
  for (let k = 0n; k < room && strips.length < pool.until; k += stride) {
    const n = strips.length
    const from = pool.from + k * size
    const region = Number((k * 16n) / room)
    if (region % 5 === 3 || random() < 0.12) continue
    const state = STATES[Math.floor(random() * random() * STATES.length)]
    strips.push(strip(`b${n}`, pool.space, pool.id, from, from + size - 1n, {
      state, label: `web-${n}`, sub: `team-${n % 7}`,
      facets: { project: PROJECTS[Math.floor(random() ** 2 * PROJECTS.length)], class: CLASSES[n % 3], holder: n % 4 ? 'IPClaim' : 'Machine' },
      since: now - Math.floor(random() ** 4 * 400 * 86400e3),
    }))
  }
}

/** Two routing domains with so many blocks together. */
export function large(count, seed = 1, now = Date.UTC(2026, 10, 26)) {
  const random = randomOf(seed)
  const strips = []
  const pool = (id, space, parent, from, bits, family = 32, more = {}) => {
    const to = from + (1n << BigInt(family - bits)) - 1n
    const made = strip(id, space, parent, from, to, { kind: 'pool', state: 'carved', label: id, sub: `/${bits}`, ...more })
    strips.push(made)
    return { ...made, until: Infinity }
  }
  const ip = (a, b = 0, c = 0, d = 0) => BigInt(a) * 16777216n + BigInt(b * 65536 + c * 256 + d)
  const core = pool('core', 'default', null, ip(10), 8)
  strips.push(strip('w0', 'default', 'core', ip(10), ip(10, 1, 255, 255), { kind: 'span', state: 'withheld', label: 'withheld', sub: 'reserved for routers' }))
  const each = Math.ceil(count / 12)
  for (let k = 0; k < 10; k++) {
    const child = pool(`nodes-${k}`, 'default', 'core', ip(10, 16 + k * 20), 12)
    strips.push(strip(`g${k}`, 'default', child.id, child.from, child.from + 4095n, { kind: 'span', state: 'withheld', label: 'withheld' }))
    let size = k % 3 === 0 ? 256n : 16n
    while (size > 1n && each * 1.4 > 2 ** 20 / Number(size)) size /= 2n
    fill(strips, { ...child, from: child.from + 4096n, until: strips.length + each }, size, each * 1.4, random, now)
  }
  fill(strips, { ...core, from: ip(10, 226), to: ip(10, 239, 255, 255), until: strips.length + each }, 1n << 14n, 40, random, now)
  strips.push(strip('wait1', 'default', 'core', ip(10, 245), ip(10, 245, 255, 255), { state: 'waiting', label: 'claim team-a/lab', sub: 'waits' }))
  const six = pool('v6', 'six', null, 0x20010db8n << 96n, 32, 128)
  for (let k = 0n; k < 4n; k++) {
    const child = pool(`site-${k}`, 'six', 'v6', six.from + (k * 5n << 92n), 36, 128)
    fill(strips, { ...child, until: strips.length + each / 2 }, 1n << 72n, Math.min(each, 250000), random, now)
  }
  return { spaces: [{ id: 'default', name: 'default', family: 4 }, { id: 'six', name: 'default', family: 6 }], strips }
}

/** A pool that has strips in each state, wide and narrow, and child pools that are used to different degrees. */
export function everyState() {
  const ip = (a, b = 0, c = 0, d = 0) => BigInt(a) * 16777216n + BigInt(b * 65536 + c * 256 + d)
  const strips = [strip('lab', 's', null, ip(10), ip(10, 0, 15, 255), { kind: 'pool', state: 'carved', label: 'lab', sub: '10.0.0.0/20' })]
  const states = ['held', 'retained', 'cooling', 'drained', 'releasing', 'unknown', 'withheld', 'waiting']
  states.forEach((state, k) => {
    const kind = state === 'withheld' ? 'span' : 'block'
    strips.push(strip(state, 's', 'lab', ip(10, 0, k), ip(10, 0, k, 191), { kind, state, label: `${state}-1`, sub: `10.0.${k}.0/25` }))
    for (let n = 0; n < 8; n++) {
      strips.push(strip(`${state}${n}`, 's', 'lab', ip(10, 0, k, 192 + n * 8), ip(10, 0, k, 195 + n * 8), { kind, state, label: 'x' }))
    }
  })
  for (let k = 0; k < 4; k++) {
    const id = `child-${k}`
    strips.push(strip(id, 's', 'lab', ip(10, 0, 8 + 2 * k), ip(10, 0, 9 + 2 * k, 255), { kind: 'pool', state: 'carved', label: id, sub: `${k * 30} % used` }))
    for (let n = 0; n < Math.floor(k * 0.3 * 512); n++) strips.push(strip(`${id}-${n}`, 's', id, ip(10, 0, 8 + 2 * k) + BigInt(n), ip(10, 0, 8 + 2 * k) + BigInt(n)))
  }
  return { spaces: [{ id: 's', name: 'team-a/default', family: 4 }], strips }
}
