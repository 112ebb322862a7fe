// Makes the rows of the table beside the map.

import { arrange, COLUMNS, SHOWN, thingsOf } from '../page/list.js';
import { formatRange } from '../page/ranges.js';
import type { Store } from '../page/store.js';
import { keyOf } from '../page/strips.js';
import { counted } from '../page/words.js';
import type { Row } from './AddressMap';
import type { Space } from './strips';

/** The choices for the table: see SHOWN. */
export type Shown = keyof typeof SHOWN;

export interface TableRow {
  /** The key of a strip; a range that has no strip is r: with a CIDR. */
  key: string;
  cells: string[];
}

/** A pool, a block, a waiting claim, or a range of the map, in the form of the page's modules. */
export type Thing = object;

export { COLUMNS, SHOWN };

/** Holds the order and the filter of the table. */
export interface Arrangement {
  filter: string;
  /** The id of a column, with "-" before it for the other direction. */
  sort: string;
}

/** Returns the things that a table shows, in their order. */
export function thingsShown(
  store: Store,
  show: Shown,
  visible: Thing[],
  how: Arrangement
): Thing[] {
  const things: Thing[] = show === 'map' ? visible : thingsOf(store, show);
  return arrange(things, how);
}

/** Returns the row of a thing. */
export function rowOf(thing: Thing): TableRow {
  const { key } = thing as { key?: string };
  return { key: key ?? keyOf(thing), cells: COLUMNS.map(column => column.value(thing)) };
}

/**
 * Returns the visible things of a map: known ones, free space, and strips that are in one place.
 */
export function thingsOnMap(store: Store, rows: Row[], { family }: Space): Thing[] {
  return rows.map(row => {
    const known = row.id && ofKey(store, row.id);
    return known || rangeOnMap(row, family);
  });
}

function ofKey(store: Store, key: string): Thing | undefined {
  const id = key.slice(2);
  if (key.startsWith('b:')) return store.blocks.get(id);
  if (key.startsWith('p:')) return store.pools.get(id);
  return key.startsWith('w:') ? store.waiting.get(id) : undefined;
}

function rangeOnMap(row: Row, family: 4 | 6): Thing {
  const cidr = formatRange(row.from, row.to, family);
  const isSeveral = row.state === 'several';
  return {
    key: row.id ?? `r:${cidr}`,
    level: row.level,
    cidr,
    from: row.from,
    to: row.to,
    family,
    pool: '',
    state: isSeveral ? row.sub : row.state,
    label: isSeveral ? counted(row.count, 'strip') : row.state === 'free' ? '' : row.label,
    since: 0,
  };
}

/** Returns the keys of the strips that a filter finds. */
export function keysFound(store: Store, filter: string): string[] {
  if (filter.trim() === '') return [];
  return arrange(thingsOf(store, 'all'), { filter, sort: 'address' }).map((thing: Thing) =>
    keyOf(thing)
  );
}

/** Represents a root pool of a routing domain, in the form of strips. */
export interface Root {
  key: string;
  from: bigint;
  to: bigint;
}

/**
 * Returns the root pool to show first: the largest one if root pools are so far apart that all of
 * them would be dots; null: show all of them.
 */
export function homeOf(roots: Root[]): string | null {
  if (roots.length < 2) return null;
  const size = ({ from, to }: { from: bigint; to: bigint }) => to - from + 1n;
  const to = roots.reduce((last, root) => (root.to > last ? root.to : last), 0n);
  const pools = roots.reduce((sum, root) => sum + size(root), 0n);
  if (pools * 3n >= size({ from: roots[0].from, to })) return null;
  return roots.reduce((best, root) => (size(root) > size(best) ? root : best)).key;
}
