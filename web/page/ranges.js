// Reads addresses and CIDRs for the page: text that is none gives null, not an error.

import { format, formatRange as formatOf, parse as read, parseAddress, prefixesOf } from '../map/address.js'

/** @typedef {{from: bigint, to: bigint}} Span */

/**
 * @typedef {object} Range
 * @property {4|6} family
 * @property {bigint} from
 * @property {bigint} to the last address
 * @property {number} length of the prefix; -1: the range is no block
 * @property {boolean} hostBits whether a CIDR was written with the address of a host
 * @property {string} text as it was written
 */

/**
 * Reads an address, a CIDR, or two addresses with "-" between them.
 * @returns {Range|null}
 */
export function parse(text) {
  const trimmed = text.trim()
  try {
    const range = read(trimmed)
    const slash = trimmed.indexOf('/')
    const hostBits = slash > 0 && parseAddress(trimmed.slice(0, slash)) !== range.from
    return { ...unmapped(range), hostBits, text: trimmed }
  } catch {
    return null
  }
}

// Turns an IPv4 address that is written as IPv6, ::ffff:10.0.0.1, into the IPv4 address.
function unmapped(range) {
  if (range.family !== 6 || range.length !== 128 || range.from >> 32n !== 0xffffn) return range
  const address = range.from & 0xffffffffn
  return { family: 4, from: address, to: address, length: 32 }
}

/**
 * Reads the range of a CIDR, or the range from one address to another.
 * @returns {{family: 4|6, from: bigint, to: bigint, length: number}|null}
 */
export function rangeOf(from, to) {
  try {
    return read(to === undefined ? from : `${from}-${to}`)
  } catch {
    return null
  }
}

/** Writes a range: an address, a CIDR, or two addresses with "-" between them. */
export function formatRange(from, to, family) {
  return formatOf(from, to, family).replace('–', '-')
}

/** Orders ranges by their first address. */
export function byFrom(a, b) {
  return a.from === b.from ? 0 : a.from < b.from ? -1 : 1
}

/**
 * Returns the parts of a range that none of the others covers, in the order of the addresses.
 * @param {Span} range
 * @param {Span[]} others in any order
 * @returns {Span[]}
 */
export function gapsIn({ from, to }, others) {
  const gaps = []
  let next = from
  for (const other of [...others].sort(byFrom)) {
    if (other.from > to) break
    if (other.from > next) gaps.push({ from: next, to: other.from - 1n })
    if (other.to >= next) next = other.to + 1n
  }
  if (next <= to) gaps.push({ from: next, to })
  return gaps
}

export { format, prefixesOf }
