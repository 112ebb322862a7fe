// Reads addresses as BigInt, writes them according to RFC 5952, and splits ranges into prefixes.
// Every function here depends on its arguments alone.

/** @typedef {4|6} Family */

/** Returns the number of bits of an address. */
export function bitsOf(family) {
  return family === 4 ? 32 : 128
}

/** Returns the last address of a family. */
export function lastOf(family) {
  return (1n << BigInt(bitsOf(family))) - 1n
}

/** Returns the family of a text that is an address, a CIDR, or the beginning of one. */
export function family(text) {
  return text.includes(':') ? 6 : 4
}

/**
 * Reads an address, a CIDR, or a range such as 10.0.0.1-10.0.0.9. For a CIDR with host bits it
 * returns the network.
 * @returns {{family: Family, from: bigint, to: bigint, length: number}} length is that of the
 *   prefix, and -1 for a range that is no prefix
 */
export function parse(text) {
  const trimmed = text.trim()
  const ends = trimmed.split('-')
  if (ends.length === 2) return parseRange(trimmed, ends)
  const [address, length, more] = trimmed.split('/')
  const of = family(address)
  const value = parseAddress(address)
  const bits = bitsOf(of)
  if (length === undefined) return { family: of, from: value, to: value, length: bits }
  if (!/^(0|[1-9]\d{0,2})$/.test(length) || Number(length) > bits || more !== undefined) {
    throw new SyntaxError(`${trimmed} has no prefix length from 0 to ${bits}: write for example ${address}/${bits}`)
  }
  const host = (1n << BigInt(bits - Number(length))) - 1n
  return { family: of, from: value & ~host, to: value | host, length: Number(length) }
}

function parseRange(text, ends) {
  const [from, to] = ends.map((end) => parse(end))
  if (from.family !== to.family || from.to !== from.from || to.to !== to.from || to.from < from.from) {
    throw new SyntaxError(`${text} is not a range: write the first and the last address, such as 10.0.0.1-10.0.0.9`)
  }
  const prefixes = prefixesOf(from.from, to.from, from.family, 2)
  return { family: from.family, from: from.from, to: to.from, length: prefixes.length === 1 ? prefixes[0].length : -1 }
}

/** Reads one address. */
export function parseAddress(text) {
  const value = family(text) === 4 ? parseIPv4(text) : parseIPv6(text)
  if (value === null) {
    throw new SyntaxError(`${text} is not an address: write one such as 10.0.0.1 or 2001:db8::1`)
  }
  return value
}

function parseIPv4(text) {
  const parts = text.split('.')
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) <= 255)) return null
  return parts.reduce((value, part) => (value << 8n) | BigInt(part), 0n)
}

function parseIPv6(text) {
  const halves = text.split('::')
  if (halves.length > 2) return null
  const groups = halves.map((half, k) => groupsOf(half, k === halves.length - 1))
  if (groups.includes(null)) return null
  const count = groups.reduce((sum, half) => sum + half.length, 0)
  if (halves.length === 1 ? count !== 8 : count > 7) return null
  if (halves.length === 1 && halves[0] === '') return null
  const zeros = new Array(8 - count).fill(0)
  return [...groups[0], ...zeros, ...(groups[1] ?? [])].reduce((value, group) => (value << 16n) | BigInt(group), 0n)
}

/** Returns the groups of one side of "::"; the last one may end with an IPv4 address. */
function groupsOf(half, mayEndDotted) {
  if (half === '') return []
  const parts = half.split(':')
  const last = parts[parts.length - 1]
  const tail = []
  if (mayEndDotted && last.includes('.')) {
    const value = parseIPv4(last)
    if (value === null) return null
    tail.push(Number(value >> 16n), Number(value & 0xffffn))
    parts.pop()
  }
  if (!parts.every((part) => /^[0-9a-fA-F]{1,4}$/.test(part))) return null
  return [...parts.map((part) => parseInt(part, 16)), ...tail]
}

/**
 * Writes an address. IPv6 follows RFC 5952: lower case, no leading zeros, and the first of the
 * longest runs of two or more zero groups as "::".
 */
export function format(value, of) {
  if (of === 4) {
    const v = Number(value)
    return `${v >>> 24}.${(v >>> 16) & 255}.${(v >>> 8) & 255}.${v & 255}`
  }
  const groups = []
  for (let shift = 112n; shift >= 0n; shift -= 16n) groups.push(Number((value >> shift) & 0xffffn))
  if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff) {
    return `::ffff:${format(value & 0xffffffffn, 4)}`
  }
  const run = longestZeros(groups)
  const hex = groups.map((group) => group.toString(16))
  if (run.length < 2) return hex.join(':')
  return `${hex.slice(0, run.start).join(':')}::${hex.slice(run.start + run.length).join(':')}`
}

function longestZeros(groups) {
  let best = { start: 0, length: 0 }
  let length = 0
  groups.forEach((group, i) => {
    length = group === 0 ? length + 1 : 0
    if (length > best.length) best = { start: i - length + 1, length }
  })
  return best
}

/**
 * Returns the fewest prefixes that a range consists of, in order.
 * @param {bigint} to inclusive
 * @param {number} [most] stops after this number
 * @returns {{from: bigint, length: number}[]}
 */
export function prefixesOf(from, to, of, most = Infinity) {
  const bits = bitsOf(of)
  const prefixes = []
  for (let at = from; at <= to && prefixes.length < most; ) {
    let host = 0
    while (host < bits) {
      const mask = (1n << BigInt(host + 1)) - 1n
      if ((at & mask) !== 0n || at + mask > to) break
      host++
    }
    prefixes.push({ from: at, length: bits - host })
    at += 1n << BigInt(host)
  }
  return prefixes
}

/**
 * Writes a range: as an address or a CIDR if it is one, and else as first–last.
 * @param {bigint} to inclusive
 */
export function formatRange(from, to, of) {
  if (from === to) return format(from, of)
  const [first, second] = prefixesOf(from, to, of, 2)
  if (second === undefined) return `${format(first.from, of)}/${first.length}`
  return `${format(from, of)}–${format(to, of)}`
}

/**
 * Writes a number of addresses: in full below 2^24, and above as a power of two, with "about" if
 * it is not exactly one.
 */
export function formatCount(count) {
  if (count < 1n << 24n) return count.toLocaleString('en-US')
  const bits = count.toString(2).length - 1
  if (count === 1n << BigInt(bits)) return `2^${bits}`
  const scaled = Number((count * 100n) >> BigInt(bits)) / 100
  return `about ${scaled.toFixed(1)} × 2^${bits}`
}
