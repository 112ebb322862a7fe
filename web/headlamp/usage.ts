// Computes the usage of a pool: counted from its blocks if all of them are known, else as counted
// by the operator.

import type { PoolObject } from './objects';
import type { Usage } from './pools';

interface Range {
  from: bigint;
  to: bigint;
}

/** Represents a block of a pool, in the form of the page's store. */
export interface Counted extends Range {
  state: string;
  child: string;
}

const size = (range: Range) => range.to - range.from + 1n;

/** Joins ranges that overlap or touch; the result is in the order of the addresses. */
export function joined(ranges: Range[]): Range[] {
  const sorted = [...ranges].sort((a, b) => (a.from === b.from ? 0 : a.from < b.from ? -1 : 1));
  const all: Range[] = [];
  for (const { from, to } of sorted) {
    const last = all[all.length - 1];
    if (!last || last.to + 1n < from) all.push({ from, to });
    else if (last.to < to) last.to = to;
  }
  return all;
}

/** Returns the number of addresses of a range that are in others, which must be joined. */
function sizeIn(range: Range, others: Range[]): bigint {
  let below = 0;
  let above = others.length;
  while (below < above) {
    const middle = (below + above) >> 1;
    if (others[middle].to < range.from) below = middle + 1;
    else above = middle;
  }
  let sum = 0n;
  for (; below < others.length && others[below].from <= range.to; below++) {
    const from = others[below].from > range.from ? others[below].from : range.from;
    const to = others[below].to < range.to ? others[below].to : range.to;
    sum += to - from + 1n;
  }
  return sum;
}

/** Reports whether a pool would not hand out the block any more. */
export function isDrained(block: Range, withheld: Range[]): boolean {
  return sizeIn(block, withheld) > 0n;
}

/**
 * Counts the blocks of a pool, without the usage of the pools below it. The withheld ranges must
 * be joined.
 */
export function countUsage(cidr: Range, withheld: Range[], blocks: Iterable<Counted>): Usage {
  const counts = { held: 0n, carved: 0n, retained: 0n, cooling: 0n, drained: 0n };
  const taken: Range[] = [...withheld];
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
  const inUse = joined(taken).reduce((sum, range) => sum + sizeIn(range, [cidr]), 0n);
  const withheldInUse = withheld.reduce((sum, range) => sum + sizeIn(range, [cidr]), 0n);
  const text = (count: bigint) => String(count);
  return {
    total: text(size(cidr)),
    free: text(size(cidr) - inUse),
    withheld: text(withheldInUse - counts.drained),
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
