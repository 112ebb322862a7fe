// Describes the selection, and names its objects of the API.

import { describe as describeKey } from '../page/facts.js';
import type { Store } from '../page/store.js';
import type { ObjectName } from './ObjectLink';

/** A text, with a link to the object with a key, or to the rows that a filter finds. */
export type Part = string | { text: string; to?: string; filter?: string };

export interface Description {
  kind: string;
  title: string;
  stateText: string;
  facts: [string, Part[], string | undefined][];
  notes: string[];
  usage: { text: string } | null;
  commands: string[];
}

/** Describes the object with a key, or returns null if it is gone. */
export function describe(store: Store, key: string, now: number): Description | null {
  return describeKey(store, key, now) as Description | null;
}

/** Returns the API objects behind a key: holder and record of a block, a pool, a claim. */
export function objectsAt(store: Store, key: string): ObjectName[] {
  const id = key.slice(2);
  if (key.startsWith('b:')) {
    const block = store.blocks.get(id);
    if (!block) return [];
    const [namespace, name] = block.allocation.split('/');
    // A retained or cooling block has no claim any more.
    const isHeld = block.state === 'Bound';
    const holder = {
      kind: block.holderKind,
      namespace: block.holderNamespace,
      name: block.holderName,
    };
    return [...(isHeld ? [holder] : []), { kind: 'IPAllocation', namespace, name }];
  }
  if (key.startsWith('p:')) {
    const pool = store.pools.get(id);
    return pool?.known ? [{ kind: pool.kind, namespace: pool.namespace, name: pool.name }] : [];
  }
  if (key.startsWith('w:')) {
    const claim = store.waiting.get(id);
    return claim ? [{ kind: claim.kind, namespace: claim.namespace, name: claim.name }] : [];
  }
  return [];
}
