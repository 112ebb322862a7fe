// Computes the usage of a pool: counted from its blocks if all of them are known, else as counted
// by the operator.

import { firstIndex } from '../map/lane.js';
import { byFrom, gapsIn, type Span } from '../page/ranges.js';
import type { PoolObject } from './objects';

/** Counts are decimal; an empty one is not known. */
export type Usage = ReturnType<typeof countUsage>;

/** Represents a block of a pool, in the form of the page's store. */
export interface Counted extends Span {
  state: string;
  child: string;
}

const size = (range: Span) => range.to - range.from + 1n;

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

/** Returns the number of addresses of a range that are in others, which must be joined. */
function sizeIn(range: Span, others: Span[]): bigint {
  let sum = 0n;
  let at = firstIndex(0, others.length, (i: number) => others[i].to >= range.from);
  for (; at < others.length && others[at].from <= range.to; at++) {
    const from = others[at].from > range.from ? others[at].from : range.from;
    const to = others[at].to < range.to ? others[at].to : range.to;
    sum += to - from + 1n;
  }
  return sum;
}

/** Reports whether a pool would not hand out the block any more. */
export function isDrained(block: Span, withheld: Span[]): boolean {
  return sizeIn(block, withheld) > 0n;
}

/**
 * Counts the blocks of a pool, without the usage of the pools below it. The withheld ranges must
 * be joined.
 */
export function countUsage(cidr: Span, withheld: Span[], blocks: Iterable<Counted>) {
  const counts = { held: 0n, carved: 0n, retained: 0n, cooling: 0n, drained: 0n };
  const taken: Span[] = [...withheld];
  let number = 0;
  for (const block of blocks) {
    number++;
    taken.push(block);
    counts.drained += sizeIn(block, withheld);
    if (block.child) {
      counts.carved += size(block);
      continue;
    }
    counts.held += size(block);
    if (block.state === 'Retained') counts.retained += size(block);
    if (block.state === 'Cooling') counts.cooling += size(block);
  }
  const outside = (ranges: Span[]) =>
    gapsIn(cidr, ranges).reduce((sum, gap) => sum + size(gap), 0n);
  const text = (count: bigint) => String(count);
  return {
    total: text(size(cidr)),
    free: text(outside(taken)),
    withheld: text(size(cidr) - outside(withheld) - counts.drained),
    held: text(counts.held),
    carved: text(counts.carved),
    retained: text(counts.retained),
    cooling: text(counts.cooling),
    drained: text(counts.drained),
    used: text(counts.held),
    blocks: number,
    largestFree: -1,
  };
}

/** Returns the usage in the status of a pool, or null if the operator has not written it yet. */
export function usageOfStatus({ status }: PoolObject): Usage | null {
  const capacity = status?.capacity;
  if (!capacity?.total) return null;
  const count = (text: string | undefined) => BigInt(text || 0);
  const largest = Number(status?.largestFreePrefix?.slice(1) ?? -1);
  return {
    total: capacity.total,
    free: capacity.available || '0',
    withheld: String(count(capacity.withheld) - count(capacity.outOfRange)),
    held: capacity.allocated || '0',
    carved: '',
    retained: '',
    cooling: '',
    drained: capacity.outOfRange || '0',
    used: capacity.allocated || '0',
    blocks: status?.allocations ?? 0,
    largestFree: largest,
  };
}
