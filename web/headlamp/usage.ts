// Computes the usage of a pool: counted from its blocks if all of them are known, else as counted
// by the operator.

import { gapsIn, type Span } from '../page/ranges.js';
import type { PoolObject } from './objects';
import { joined, type PoolSpace, sizeIn, sizeOf } from './space';

/** Counts are decimal; an empty one is not known. */
export type Usage = ReturnType<typeof countUsage>;

/** Represents a block of a pool, in the form of the page's store. */
export interface Counted extends Span {
  state: string;
  child: string;
  /** The record, which can have several blocks. */
  allocation: string;
}

/** Counts the blocks of a pool, without the usage of the pools below it. */
export function countUsage(
  { cidr, held, outside, withheld }: PoolSpace,
  blocks: Iterable<Counted>
) {
  const counts = { held: 0n, carved: 0n, retained: 0n, cooling: 0n, drained: 0n };
  const records = new Set<string>();
  const taken: Span[] = [];
  const children = new Map<string, Span[]>();
  for (const block of blocks) {
    records.add(block.allocation);
    taken.push(block);
    if (block.child) {
      const blocks = children.get(block.child);
      if (blocks) blocks.push(block);
      else children.set(block.child, [block]);
      continue;
    }
    counts.drained += sizeIn(block, withheld);
    counts.held += sizeOf([block]);
    if (block.state === 'Retained') counts.retained += sizeOf([block]);
    if (block.state === 'Cooling') counts.cooling += sizeOf([block]);
  }
  // While the ranges of a pool are edited, two of its records can hold the same addresses.
  for (const span of [...children.values()].flatMap(joined)) {
    counts.carved += sizeOf([span]);
    counts.drained += sizeIn(span, withheld);
  }
  const blocked = joined(taken);
  const free = sizeOf(gapsIn(cidr, [...withheld, ...blocked]));
  const unheld = sizeOf(gapsIn(cidr, [...outside, ...blocked]));
  const text = (count: bigint) => String(count);
  return {
    total: text(sizeOf(held)),
    free: text(free),
    withheld: text(unheld - free),
    held: text(counts.held),
    carved: text(counts.carved),
    retained: text(counts.retained),
    cooling: text(counts.cooling),
    drained: text(counts.drained),
    used: text(counts.held),
    blocks: records.size,
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
