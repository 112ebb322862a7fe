// The rows of the table beside the map.

import { arrange, COLUMNS, SHOWN, thingsOf } from '../page/list.js';
import { formatRange } from '../page/ranges.js';
import type { Store } from '../page/store.js';
import { keyOf } from '../page/strips.js';
import { counted } from '../page/words.js';
import type { Row } from './AddressMap';
import type { Space } from './strips';

/** What the table may show: see SHOWN. */
export type Shown = keyof typeof SHOWN;

export interface TableRow {
  /** The key of what it is of, as strips have it; a range that has no strip is r: with a CIDR. */
  key: string;
  cells: string[];
}

/** A pool, a block, a waiting claim, or a range of the map, as the page's modules have them. */
export type Thing = object;

export { COLUMNS, SHOWN };

/** How the table is sorted and narrowed. */
export interface Arrangement {
  filter: string;
  /** The id of a column, with "-" before it for the other direction. */
  sort: string;
}

/** The things that a table shows, in their order. */
export function thingsShown(
  store: Store,
  show: Shown,
  visible: Thing[],
  how: Arrangement
): Thing[] {
  const things: Thing[] = show === 'map' ? visible : thingsOf(store, show);
  return arrange(things, how);
}

/** The cells of a thing. */
export function rowOf(thing: Thing): TableRow {
  const { key } = thing as { key?: string };
  return { key: key ?? keyOf(thing), cells: COLUMNS.map(column => column.value(thing)) };
}

/** What a map shows, as things: those that are known, free space, and strips that are in one place. */
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

/** The key of the strips that a filter finds. */
export function keysFound(store: Store, filter: string): string[] {
  if (filter.trim() === '') return [];
  return arrange(thingsOf(store, 'all'), { filter, sort: 'address' }).map((thing: Thing) =>
    keyOf(thing)
  );
}

/** A root pool of a routing domain, as strips have it. */
export interface Root {
  key: string;
  from: bigint;
  to: bigint;
}

/**
 * The root pool that is shown first: the largest one where root pools are so far apart that all
 * of them would be dots; null: all of them are.
 */
export function homeOf(roots: Root[]): string | null {
  if (roots.length < 2) return null;
  const size = ({ from, to }: { from: bigint; to: bigint }) => to - from + 1n;
  const to = roots.reduce((last, root) => (root.to > last ? root.to : last), 0n);
  const pools = roots.reduce((sum, root) => sum + size(root), 0n);
  if (pools * 3n >= size({ from: roots[0].from, to })) return null;
  return roots.reduce((best, root) => (size(root) > size(best) ? root : best)).key;
}
