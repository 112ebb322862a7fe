// Computes the addresses of a pool from its object, and those of them that it never hands out.

import { bitsOf } from '../map/address.js';
import { firstIndex } from '../map/lane.js';
import { byFrom, gapsIn, rangeOf, type Span } from '../page/ranges.js';
import { NOT_OF_POOL } from '../page/store.js';
import type { AllocationObject, PoolObject } from './objects';

type Family = 4 | 6;
type Reasoned = Span & { reason: string };

/** Holds the addresses of a pool. Each list is in the order of the addresses. */
export interface PoolSpace {
  cidr: Span & { family: Family; length: number };
  /** The addresses that the pool holds, joined: all of its CIDR, or its ranges. */
  held: Span[];
  /** From the first to the last of them, if the pool occupies ranges of its CIDR. */
  ends: Span | null;
  /** The other addresses of the CIDR, joined. */
  outside: Span[];
  /** The addresses that are never handed out, joined: those outside, and those of reasons. */
  withheld: Span[];
  /**
   * The runs of held addresses that are never handed out, with the reasons. They can overlap: an
   * address can be withheld for several reasons.
   */
  reasons: Reasoned[];
}

/**
 * Returns the addresses of a pool whose CIDR is known; null if the CIDR cannot be read. The own
 * records hold the addresses of the pool, one block each, as far as they were read.
 */
export function spaceOf(pool: PoolObject, text: string, own: AllocationObject[]): PoolSpace | null {
  const cidr = rangeOf(text);
  if (!cidr) return null;
  const occupiesRanges = pool.spec.occupies === 'Ranges';
  const outside = occupiesRanges ? gapsIn(cidr, spansOf(pool.spec.ranges)) : [];
  const held = gapsIn(cidr, outside);
  const last = held[held.length - 1];
  const ends = occupiesRanges && last ? { from: held[0].from, to: last.to } : null;
  const unrecorded = occupiesRanges ? unrecordedOf(cidr, outside, recordedOf(pool, own)) : [];
  const reasons = [...withheldOf(pool, cidr), ...unrecorded]
    .filter(span => overlaps(span, held))
    .sort(byFrom);
  return { cidr, held, ends, outside, withheld: joined([...outside, ...reasons]), reasons };
}

/** Returns the addresses between the first and the last one of a pool that it does not hold. */
export function betweenOf({ ends, outside }: PoolSpace): Reasoned[] {
  return outside
    .filter(({ from, to }) => ends && ends.from < from && to < ends.to)
    .map(span => ({ ...span, reason: NOT_OF_POOL }));
}

/**
 * Returns the addresses that are recorded for a pool. The record of an earlier pool of that name, or
 * one that is about to be released, records none.
 */
function recordedOf({ metadata }: PoolObject, own: AllocationObject[]): Span[] {
  const open = own.filter(
    ({ metadata: { deletionTimestamp }, spec: { state, claimRef } }) =>
      !deletionTimestamp &&
      (state || 'Bound') === 'Bound' &&
      (!claimRef.uid || claimRef.uid === metadata.uid)
  );
  return spansOf(open.map(({ spec }) => spec.cidr));
}

/**
 * Returns the addresses of a pool that are not recorded for it yet: the operator does not hand them
 * out before. If no own record was read, there are none.
 */
function unrecordedOf(cidr: Span, outside: Span[], recorded: Span[]): Reasoned[] {
  if (recorded.length === 0) return [];
  const reason = 'not recorded for the pool yet';
  return gapsIn(cidr, [...outside, ...recorded]).map(span => ({ ...span, reason }));
}

/** Returns the addresses that a pool never hands out, with the reasons. */
function withheldOf({ spec, status }: PoolObject, cidr: PoolSpace['cidr']): Reasoned[] {
  const found: Reasoned[] = [];
  const add = (reason: string, spans: Span[]) => {
    for (const { from, to } of spans) found.push({ from, to, reason });
  };
  const { network, reserved, ranges = [] } = spec;
  if (network?.gateway) add('gateway', spansOf([network.gateway]));
  if (network && !network.allocateEdgeAddresses) {
    for (const [reason, address] of edgesOf(cidr, network.prefixLength)) {
      add(reason, [{ from: address, to: address }]);
    }
  }
  add('former gateway', spansOf(status?.formerGateways));
  add('reserved', spansOf(reserved));
  if (ranges.length > 0) add('outside of ranges', gapsIn(cidr, spansOf(ranges)));
  return found;
}

/**
 * Returns the addresses of a subnet that are not for hosts: see RFC 4291 section 2.6.1 for IPv6. A
 * subnet for the two ends of a link has none (RFC 3021, RFC 6164).
 */
function edgesOf(cidr: PoolSpace['cidr'], length: number): [string, bigint][] {
  const hostBits = bitsOf(cidr.family) - length;
  if (hostBits <= 1) return [];
  const hosts = (1n << BigInt(hostBits)) - 1n;
  const first = cidr.from & ~hosts;
  if (cidr.family === 6) return [['subnet-router anycast address', first]];
  return [
    ['network address', first],
    ['broadcast address', first | hosts],
  ];
}

/** Returns the addresses that texts of the API name, except for texts that cannot be read. */
export function spansOf(texts: string[] = []): Span[] {
  return texts.map(text => rangeOf(text)).filter(range => range !== null);
}

/** Joins ranges that overlap or touch; the result is in the order of the addresses. */
export function joined(ranges: Span[]): Span[] {
  const all: Span[] = [];
  for (const { from, to } of [...ranges].sort(byFrom)) {
    const last = all[all.length - 1];
    if (!last || last.to + 1n < from) all.push({ from, to });
    else if (last.to < to) last.to = to;
  }
  return all;
}

/** Returns the number of addresses of ranges that do not overlap. */
export function sizeOf(ranges: Span[]): bigint {
  return ranges.reduce((sum, { from, to }) => sum + to - from + 1n, 0n);
}

/** Returns the number of addresses of a range that are in others, which must be joined. */
export function sizeIn(range: Span, others: Span[]): bigint {
  let sum = 0n;
  let at = firstIndex(0, others.length, (i: number) => others[i].to >= range.from);
  for (; at < others.length && others[at].from <= range.to; at++) {
    const from = others[at].from > range.from ? others[at].from : range.from;
    const to = others[at].to < range.to ? others[at].to : range.to;
    sum += to - from + 1n;
  }
  return sum;
}

/** Reports whether a range has an address of others, which must be joined. */
export function overlaps(range: Span, others: Span[]): boolean {
  return sizeIn(range, others) > 0n;
}
