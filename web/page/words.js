// Writes states, numbers and times in words.

/** The names of the states of blocks, by the state of a strip. */
export const STATES = {
  held: 'held',
  carved: 'carved into a child pool',
  free: 'free',
  withheld: 'withheld',
  retained: 'retained',
  cooling: 'cooling',
  drained: 'out of range',
  releasing: 'releasing',
  waiting: 'waiting',
  unknown: 'unknown',
}

const GROUPS = /\B(?=(\d{3})+(?!\d))/g
const EXACT_DIGITS = 12

/**
 * Returns a number for people, with commas between thousands. A number of more than twelve digits
 * becomes a power of two, or is rounded.
 */
export function count(value) {
  const digits = String(value)
  if (!/^\d+$/.test(digits)) return digits
  if (digits.length <= EXACT_DIGITS) return digits.replace(GROUPS, ',')
  const number = BigInt(digits)
  const power = number.toString(2).length - 1
  if (number === 1n << BigInt(power)) return `2^${power}`
  return Number(number).toExponential(1).replace('e+', 'e')
}

/** Returns a number with its noun: "1 block", "2 blocks". */
export function counted(value, noun, plural = `${noun}s`) {
  return `${count(value)} ${String(value) === '1' ? noun : plural}`
}

/** Returns a share in percent. It is 0% only if there is nothing, and 100% only if there is all. */
export function percent(part, whole) {
  if (part === 0n || whole === 0n) return '0%'
  if (part >= whole) return '100%'
  const tenths = Number((part * 1000n) / whole)
  if (tenths < 1) return '<0.1%'
  if (part * 1000n > whole * 999n) return '>99.9%'
  return tenths < 100 ? `${(tenths / 10).toFixed(1)}%` : `${Math.min(99, Math.round(tenths / 10))}%`
}

const STEPS = [
  [365 * 86400, 'y', 86400, 'd'],
  [8 * 86400, 'd', 0, ''],
  [2 * 86400, 'd', 3600, 'h'],
  [8 * 3600, 'h', 0, ''],
  [3 * 3600, 'h', 60, 'm'],
  [10 * 60, 'm', 0, ''],
  [2 * 60, 'm', 1, 's'],
]
const UNITS = { y: 365 * 86400, d: 86400, h: 3600, m: 60 }

/** Returns a length of time in the form of an age in kubectl: 40s, 5m10s, 3h20m, 4d. */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000))
  for (const [from, unit, small, smallUnit] of STEPS) {
    if (seconds < from) continue
    const whole = Math.floor(seconds / UNITS[unit])
    const rest = small ? Math.floor((seconds - whole * UNITS[unit]) / small) : 0
    return rest > 0 ? `${whole}${unit}${rest}${smallUnit}` : `${whole}${unit}`
  }
  return `${seconds}s`
}

/**
 * Returns a moment and the time since then: "2026-11-26 18:00:00 (4d ago)". Local time.
 * @param {number} time milliseconds, 0 if it is not known
 */
export function moment(time, now) {
  if (!time) return ''
  return time <= now ? `${date(time)} (${duration(now - time)} ago)` : `${date(time)} (in ${duration(time - now)})`
}

/** Returns a date and a time, in local time. @param {number} time milliseconds */
export function date(time) {
  const d = new Date(time)
  const two = (n) => String(n).padStart(2, '0')
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(time)}`
}

/** Returns a time of day, in local time. @param {number} time milliseconds */
export function clock(time) {
  const d = new Date(time)
  const two = (n) => String(n).padStart(2, '0')
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`
}

/**
 * Returns the name of a pool from its id: "core", "team-a/lab", or "InClusterIPPool team-a/vms", as the pools
 * of the in-cluster provider can have the name of another one.
 * @param {string} id such as "IPPool/core" or "LocalIPPool/team-a/lab"
 */
export function poolName(id) {
  const slash = id.indexOf('/')
  const name = id.slice(slash + 1)
  return isInCluster(id.slice(0, slash)) ? `${id.slice(0, slash)} ${name}` : name
}

/** Reports whether a kind is one of the in-cluster provider. @param {string} kind of a pool */
export function isInCluster(kind) {
  return kind === 'InClusterIPPool' || kind === 'GlobalInClusterIPPool'
}

/**
 * Returns the name of an object with its kind: "IPClaim team-a/web".
 * @param {{kind: string, namespace?: string, name: string}} object
 */
export function objectName(object) {
  return `${object.kind} ${object.namespace ? `${object.namespace}/` : ''}${object.name}`
}

/** Returns the name of the holder of a block, with its kind. */
export function holderName({ holderKind, holderNamespace, holderName: name }) {
  return objectName({ kind: holderKind, namespace: holderNamespace, name })
}

/** Returns a text as a sentence: a capital letter at its beginning, and a full stop. */
export function sentence(text) {
  const trimmed = text.trim()
  return trimmed === '' ? '' : `${trimmed.charAt(0).toUpperCase()}${trimmed.slice(1)}${/[.!?]$/.test(trimmed) ? '' : '.'}`
}

/** Returns the name of a routing domain. @param {string} domain empty if it is not known */
export function domainName(domain) {
  return domain || 'routing domain not known'
}

/**
 * Returns the name of a space of the map: "default · IPv4".
 * @param {{name: string, family: number}} space
 */
export function spaceName(space) {
  return `${space.name} · IPv${space.family}`
}
