// Turns the objects of the API into the strips of the map. Nothing here knows Headlamp, React or a
// browser. The objects become the messages of the stream of `kubectl ipam ui`; its page makes a
// register and strips from them, and this plug-in gets the same from the same code.

import type { Space, Strip } from '../map/store.js';
import { rangeOf } from '../page/ranges.js';
import { Store } from '../page/store.js';
import { Strips } from '../page/strips.js';
import { isInCluster } from '../page/words.js';
import {
  addressClaimWaits,
  blockMessage,
  childOf,
  claimWaits,
  domainOfRecord,
  isOurs,
  partsOf,
  poolOf,
  uidOf,
  waitingAddressClaim,
  waitingClaim,
} from './claims';
import { isProviderRunning, servedPools } from './incluster';
import {
  type AddressClaimObject,
  type AllocationObject,
  type ClaimObject,
  type ClassObject,
  CLUSTER_API_GROUP,
  type InClusterPoolObject,
  type Metadata,
  type PoolObject,
} from './objects';
import {
  cidrOf,
  familyOf,
  idOfPool,
  mentionedPool,
  poolIdOf,
  type PoolMessage,
  poolMessage,
} from './pools';
import { overlaps, type PoolSpace, spaceOf } from './space';
import { type Counted, countUsage, type Usage, usageOfStatus } from './usage';

/** Holds the objects that have been read so far. */
export interface Objects {
  pools: PoolObject[];
  inClusterPools: InClusterPoolObject[];
  allocations: AllocationObject[];
  claims: ClaimObject[];
  addressClaims: AddressClaimObject[];
  classes: ClassObject[];
  /** Whether every list has been read, or has failed. */
  isRead: boolean;
  /** Whether the allocations are complete: then addresses without a holder are free. */
  hasAllRecords: boolean;
}

export type { Space, Strip };

/** Holds a change of the map. */
export type Change = ReturnType<Strips['take']>;

/** Holds a pool's object, and its message except for its domain and usage. */
interface Read {
  object: PoolObject;
  /** The records of its space. */
  own: AllocationObject[];
  message: PoolMessage;
  /** Null if the pool has no CIDR yet. */
  space: PoolSpace | null;
}

/**
 * Holds the address space as the objects show it. take() costs a look at each object, and work for
 * each change.
 */
export class Register {
  readonly store = new Store();
  readonly strips = new Strips(this.store);
  #records = new Map<string, AllocationObject>(); // by UID: one for each block
  #ownRecords = new Map<string, Map<string, AllocationObject>>(); // of its space, by pool and UID
  #read = new Map<string, Read>(); // by pool
  #pools = new Map<string, PoolMessage>();
  #counts = new Map<string, Usage>(); // by pool, without the usage below it
  #said = new Map<string, string>(); // the last message of a pool or a claim, by its key
  #last: Objects | null = null;
  #isChanged = false;
  #listeners = new Set<(change: Change) => void>();

  constructor() {
    this.store.apply({ type: 'hello' });
    this.store.listen(delta => {
      this.#isChanged = true;
      const change = this.strips.take(delta);
      for (const listener of this.#listeners) listener(change);
    });
  }

  /** Calls a function with each change of the map; the result stops that. */
  listen(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Returns the routing domains and families that have strips on the map. */
  get spaces(): Space[] {
    return this.strips.spaces;
  }

  /** Returns everything that is on the map of some spaces. */
  whole(spaces: Space[]): Change['put'] {
    const parts = spaces.map(space => this.strips.whole(space.id));
    return {
      spaces: parts.flatMap(part => part.spaces),
      strips: parts.flatMap(part => part.strips),
    };
  }

  /** Takes the objects that have been read. Reports whether anything has changed. */
  take(objects: Objects): boolean {
    if (this.#last && isUnchanged(this.#last, objects)) return false;
    this.#last = objects;
    this.#isChanged = false;
    const { changed, touched } = this.#takeRecords(objects.allocations.flatMap(partsOf));
    const pools = [...objects.pools, ...servedPools(objects.inClusterPools)];
    for (const id of this.#readPools(pools)) {
      touched.add(id);
      for (const block of this.store.blocksOf(id))
        if (this.#records.has(block.id)) changed.add(block.id);
    }
    this.#placePools();
    this.#say('pools', 'pools', this.#newPools());
    const blocks = [...changed].map(id => this.#block(id));
    this.#say('blocks', 'blocks', blocks);
    const waiting = this.#waiting(objects);
    this.#forget(waiting);
    this.#measure(objects, touched);
    this.#say('pools', 'pools', this.#newPools());
    const news = waiting.filter(claim => this.#isNew(`claim ${claim.id}`, claim));
    this.#say('waiting', 'claims', news);
    if (objects.isRead && !this.store.complete) this.store.apply({ type: 'ready' });
    return this.#isChanged;
  }

  #say(type: string, field: string, about: unknown[]) {
    if (about.length > 0) this.store.apply({ type, [field]: about });
  }

  /** Keeps the last message of something, and reports whether it is new. */
  #isNew(key: string, message: object): boolean {
    const text = JSON.stringify(message);
    if (this.#said.get(key) === text) return false;
    this.#said.set(key, text);
    return true;
  }

  /** Finds the new, changed and removed records, and their pools. */
  #takeRecords(records: AllocationObject[]) {
    const changed = new Set<string>();
    const touched = new Set<string>();
    const listed = new Set<string>();
    for (const record of records) {
      const uid = uidOf(record);
      listed.add(uid);
      const before = this.#records.get(uid);
      if (before && isSame(before, record)) continue;
      this.#records.set(uid, record);
      changed.add(uid);
      touched.add(poolOf(record));
      const child = childOf(record);
      if (child && !this.#ownRecords.has(child)) this.#ownRecords.set(child, new Map());
      if (child) this.#ownRecords.get(child)!.set(uid, record);
    }
    for (const [uid, record] of this.#records) {
      if (listed.has(uid)) continue;
      this.#records.delete(uid);
      touched.add(poolOf(record));
      this.#ownRecords.get(childOf(record))?.delete(uid);
    }
    return { changed, touched };
  }

  /** Reads the changed pools. Returns the pools whose addresses have changed. */
  #readPools(objects: PoolObject[]): string[] {
    const others: string[] = [];
    const listed = new Set<string>();
    for (const object of objects) {
      const id = idOfPool(object);
      listed.add(id);
      const own = this.#ownRecordsOf(id);
      const before = this.#read.get(id);
      if (before && isSame(before.object, object) && isSameList(before.own, own)) continue;
      const cidr = cidrOf(object, own[0]?.spec.cidr ?? '');
      const space = spaceOf(object, cidr, own);
      const message = poolMessage(object, cidr, space);
      this.#read.set(id, { object, own, message, space });
      if (!before || textOf(before.space) !== textOf(space)) others.push(id);
    }
    for (const id of this.#read.keys()) {
      if (listed.has(id)) continue;
      this.#read.delete(id);
      this.#counts.delete(id);
      others.push(id);
    }
    return others;
  }

  /** Joins the pools that were read and the mentioned ones, with their domains. */
  #placePools() {
    const pools = new Map<string, PoolMessage>();
    for (const [id, { message }] of this.#read) {
      const { usage, usageFrom } = this.#pools.get(id) ?? message;
      pools.set(id, { ...message, usage, usageFrom });
    }
    const mention = (id: string, family: 4 | 6) => {
      if (!id || pools.has(id)) return;
      const [own] = this.#ownRecordsOf(id);
      pools.set(
        id,
        mentionedPool(id, family, own && { parent: poolOf(own), domain: domainOfRecord(own) })
      );
    };
    for (const { message } of this.#read.values()) mention(message.parent, message.family);
    for (const record of this.#records.values()) {
      mention(poolOf(record), familyOf(record.spec.cidr));
      mention(childOf(record), familyOf(record.spec.cidr));
    }
    for (const pool of pools.values()) pool.domain = domainOf(pool, pools);
    this.#pools = pools;
  }

  /** Returns the records of a pool's space. */
  #ownRecordsOf(id: string): AllocationObject[] {
    return [...(this.#ownRecords.get(id)?.values() ?? [])];
  }

  #newPools(): PoolMessage[] {
    return [...this.#pools.values()].filter(pool => this.#isNew(`pool ${pool.id}`, pool));
  }

  #block(uid: string) {
    const record = this.#records.get(uid)!;
    const withheld = this.#read.get(poolOf(record))?.space?.withheld ?? [];
    const range = rangeOf(record.spec.cidr);
    const drained = range !== null && overlaps(range, withheld);
    return blockMessage(record, this.#pools.get(poolOf(record))?.domain ?? '', drained);
  }

  /** Adds the usage of each pool. The store has its blocks already. */
  #measure({ hasAllRecords, isRead }: Objects, touched: Set<string>) {
    const isCounted = hasAllRecords && isRead;
    if (isCounted) this.#count(touched);
    const used = this.#used();
    for (const [id, { object }] of this.#read) {
      const pool = this.#pools.get(id)!;
      const counts = isCounted ? this.#counts.get(id) : undefined;
      const status = usageOfStatus(object);
      if (counts) {
        pool.usage = {
          ...counts,
          used: String(used.get(id) ?? 0n),
          largestFree: status?.largestFree ?? -1,
        };
      } else {
        pool.usage = isCounted ? null : status;
      }
      pool.usageFrom = counts ? 'records' : pool.usage ? 'status' : '';
    }
  }

  #count(touched: Set<string>) {
    for (const [id, { space }] of this.#read) {
      if (!space) continue;
      if (!touched.has(id) && this.#counts.has(id)) continue;
      this.#counts.set(id, countUsage(space, this.store.blocksOf(id) as Iterable<Counted>));
    }
  }

  /** Returns the addresses that claims hold of each pool and of the pools below it. */
  #used(): Map<string, bigint> {
    const used = new Map<string, bigint>();
    for (const [id, { held }] of this.#counts) {
      const seen = new Set<string>();
      for (let at = id; at && !seen.has(at); at = this.#pools.get(at)?.parent ?? '') {
        seen.add(at);
        used.set(at, (used.get(at) ?? 0n) + BigInt(held));
      }
    }
    return used;
  }

  #waiting({ claims, addressClaims, classes }: Objects) {
    return [
      ...claims.filter(claimWaits).map(claim => waitingClaim(claim, this.#pools, classes)),
      ...addressClaims
        .filter(claim => addressClaimWaits(claim) && this.#serves(claim))
        .map(claim => waitingAddressClaim(claim, this.#pools, classes)),
    ];
  }

  /** Reports whether Cadastre serves an IPAddressClaim. */
  #serves(claim: AddressClaimObject): boolean {
    const { poolRef } = claim.spec;
    const isOfProvider = poolRef.apiGroup === CLUSTER_API_GROUP && isInCluster(poolRef.kind);
    if (!isOfProvider) return isOurs(claim);
    const pool = this.#read.get(poolIdOf(poolRef, claim.metadata.namespace));
    return pool !== undefined && !isProviderRunning(pool.object);
  }

  /** Removes the pools, blocks and claims that are gone. */
  #forget(waiting: { id: string }[]) {
    const claims = new Set(waiting.map(claim => claim.id));
    const gone = {
      pools: [...this.store.pools.keys()].filter(id => !this.#pools.has(id)),
      blocks: [...this.store.blocks.keys()].filter(id => !this.#records.has(id)),
      claims: [...this.store.waiting.keys()].filter(id => !claims.has(id)),
    };
    for (const id of gone.pools) this.#said.delete(`pool ${id}`);
    for (const id of gone.claims) this.#said.delete(`claim ${id}`);
    if (Object.values(gone).some(ids => ids.length > 0))
      this.store.apply({ type: 'gone', ...gone });
  }
}

/** Reports whether two objects are the same version of one object. */
function isSame(a: { metadata: Metadata }, b: { metadata: Metadata }): boolean {
  if (a === b) return true;
  const { uid, resourceVersion } = b.metadata;
  return (
    resourceVersion !== undefined &&
    resourceVersion === a.metadata.resourceVersion &&
    uid === a.metadata.uid
  );
}

/** Returns the routing domain of the root pool above a pool; empty if it is not known. */
function domainOf(pool: PoolMessage, pools: Map<string, PoolMessage>): string {
  const seen = new Set<string>();
  let at: PoolMessage | undefined = pool;
  while (at?.parent && !seen.has(at.id)) {
    seen.add(at.id);
    at = pools.get(at.parent);
  }
  return at?.domain ?? '';
}

/** Reports whether nothing has changed since. */
function isUnchanged(before: Objects, now: Objects): boolean {
  if (before.isRead !== now.isRead || before.hasAllRecords !== now.hasAllRecords) return false;
  const lists = [
    'pools',
    'inClusterPools',
    'allocations',
    'claims',
    'addressClaims',
    'classes',
  ] as const;
  return lists.every(name => {
    const [a, b] = [before[name], now[name]];
    return isSameList<object>(a, b);
  });
}

function isSameList<T>(a: T[], b: T[]): boolean {
  return a.length === b.length && a.every((item, i) => item === b[i]);
}

/** Returns a text that differs for spaces that differ. */
function textOf(space: PoolSpace | null): string {
  return JSON.stringify(space, (_, value) => (typeof value === 'bigint' ? String(value) : value));
}
