// Makes the rows of the table beside the map.

import { arrange, COLUMNS as ALL_COLUMNS, SHOWN, thingsOf } from '../page/list.js';
import type { Store } from '../page/store.js';
import { keyOf } from '../page/strips.js';
import type { ObjectName } from './ObjectLink';

/** The choices for the table: see SHOWN. */
export type Shown = keyof typeof SHOWN;

export interface TableRow {
  /** The key of a strip; a range that has no strip is r: with a CIDR. */
  key: string;
  cells: string[];
}

/** A pool, a block, a waiting claim, or a range of the map, in the form of the page's modules. */
export type Thing = object;

export { SHOWN };

/** The columns of the table. The plug-in does not know the Clusters that have networks. */
export const COLUMNS = ALL_COLUMNS.filter(column => column.id !== 'cluster');

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
  return { key: keyOf(thing), cells: COLUMNS.map(column => column.value(thing)) };
}

/** Returns the keys of the strips that a filter finds. */
export function keysFound(store: Store, filter: string): string[] {
  if (filter.trim() === '') return [];
  return arrange(thingsOf(store, 'all'), { filter, sort: 'address' }).map((thing: Thing) =>
    keyOf(thing)
  );
}

/** Returns the API objects behind a key: holder and record of a block, a pool, a claim. */
export function objectsAt(store: Store, key: string): ObjectName[] {
  const thing = store.at(key);
  if (!thing || thing.known === false) return [];
  if (!key.startsWith('b:')) {
    return [{ kind: thing.kind, namespace: thing.namespace, name: thing.name }];
  }
  const [namespace, name] = thing.allocation.split('/');
  const record = { kind: 'IPAllocation', namespace, name };
  const { holderKind: kind, holderNamespace, holderName } = thing;
  // A retained or cooling block has no claim any more.
  if (thing.state !== 'Bound') return [record];
  return [{ kind, namespace: holderNamespace, name: holderName }, record];
}
