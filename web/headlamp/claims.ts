// Turns claims and IPAllocations into the messages of the stream of `kubectl ipam ui` for blocks
// and for claims that wait.

import {
  type AddressClaimObject,
  type AllocationObject,
  type ClaimObject,
  type ClassObject,
  type Condition,
  GROUP,
} from './objects';
import { familyOf, poolIdOf, type PoolMessage } from './pools';

export const ADDRESS = 'ipam.cadastre.dev/address';

/** Returns the key of an object: its UID, or its name if it has none. */
export function uidOf({ metadata }: { metadata: AllocationObject['metadata'] }): string {
  return metadata.uid ?? `${metadata.namespace ?? ''}/${metadata.name}`;
}

/**
 * Returns a record once for each of its blocks, each of which is its cidr then. The record itself
 * is the first of them.
 */
export function partsOf(record: AllocationObject): AllocationObject[] {
  const { metadata, spec } = record;
  const others = (spec.additionalCIDRs ?? []).map(cidr => ({
    metadata: { ...metadata, uid: `${uidOf(record)}/${cidr}` },
    spec: { ...spec, cidr },
  }));
  return [record, ...others];
}

/** Returns the pool whose space a record is; empty for the record of a claim. */
export function childOf({ spec }: AllocationObject): string {
  if (spec.purpose !== 'Pool') return '';
  return poolIdOf({ kind: spec.claimRef.kind, name: spec.claimRef.name }, spec.claimRef.namespace);
}

/** Returns the pool of a record; empty for the record of a root pool. */
export function poolOf({ metadata, spec }: AllocationObject): string {
  if (!spec.poolRef) return '';
  // The record of a LocalIPPool's space may be in another namespace than that pool.
  return poolIdOf(spec.poolRef, spec.claimRef.namespace ?? metadata.namespace);
}

/** Returns the message of a record's first block. Whether it is drained depends on its pool. */
export function blockMessage(record: AllocationObject, domain: string, drained: boolean) {
  const { metadata, spec } = record;
  const child = childOf(record);
  const state = spec.state || 'Bound';
  const isClaim = spec.purpose !== 'Pool';
  return {
    id: uidOf(record),
    pool: poolOf(record),
    domain: spec.poolRef ? domain : domainOfRecord(record),
    cidr: spec.cidr,
    state: child && state === 'Bound' ? 'Carved' : state,
    child,
    drained,
    terminating: metadata.deletionTimestamp !== undefined,
    holder: {
      kind: spec.claimRef.kind,
      namespace: isClaim ? metadata.namespace ?? '' : spec.claimRef.namespace ?? '',
      name: spec.claimRef.name,
    },
    allocation: `${metadata.namespace ?? ''}/${metadata.name}`,
    project: spec.project ?? '',
    class: spec.className ?? '',
    requestedBy: spec.requestedBy ?? '',
    since: metadata.creationTimestamp ?? '',
    releaseAfter: spec.releaseAfter ?? '',
  };
}

/** Returns the routing domain of the record of a root pool; empty for other records. */
export function domainOfRecord({ spec }: AllocationObject): string {
  const domain = spec.routingDomain ?? '';
  return domain && spec.claimRef.namespace ? `${spec.claimRef.namespace}/${domain}` : domain;
}

/** Reports whether an IPClaim holds no block. */
export function claimWaits(claim: ClaimObject): boolean {
  return claim.status?.phase !== 'Bound';
}

/** Reports whether an IPAddressClaim names a pool or a class of Cadastre. */
export function isOurs({ spec }: AddressClaimObject): boolean {
  const kinds = ['IPPool', 'LocalIPPool', 'IPClass'];
  return spec.poolRef?.apiGroup === GROUP && kinds.includes(spec.poolRef.kind);
}

/** Reports whether an IPAddressClaim has no address. */
export function addressClaimWaits(claim: AddressClaimObject): boolean {
  return !claim.status?.addressRef?.name;
}

/** Returns the message of an IPClaim that waits. Its pools are the known ones. */
export function waitingClaim(
  claim: ClaimObject,
  pools: Map<string, PoolMessage>,
  classes: ClassObject[]
) {
  const { metadata, spec, status } = claim;
  const named = [spec.poolRef, ...(status?.candidates ?? []).map(candidate => candidate.poolRef)]
    .filter(ref => ref !== undefined)
    .map(ref => poolIdOf(ref, metadata.namespace));
  const serving =
    named.length > 0 ? named : backing(spec.className, metadata.namespace, pools, classes);
  const ids = [...new Set(serving)].filter(id => pools.has(id));
  return {
    id: uidOf(claim),
    kind: 'IPClaim',
    namespace: metadata.namespace ?? '',
    name: metadata.name,
    family: familyOfWaiting(spec.cidr ?? spec.ipFamily, ids, pools),
    cidr: spec.cidr ?? '',
    length: spec.prefixLength ?? -1,
    pools: ids,
    class: spec.className ?? '',
    ...reasonOf(status?.conditions),
    since: metadata.creationTimestamp ?? '',
  };
}

/** Returns the message of an IPAddressClaim that waits: always for one address. */
export function waitingAddressClaim(
  claim: AddressClaimObject,
  pools: Map<string, PoolMessage>,
  classes: ClassObject[]
) {
  const { metadata, spec, status } = claim;
  const { kind, name } = spec.poolRef;
  const address = metadata.annotations?.[ADDRESS] ?? '';
  const isClass = kind === 'IPClass';
  const serving = isClass
    ? backing(name, metadata.namespace, pools, classes)
    : [poolIdOf({ kind, name }, metadata.namespace)];
  const ids = serving.filter(id => pools.has(id));
  const family = familyOfWaiting(address || undefined, ids, pools);
  const bits = family === 6 ? 128 : 32;
  return {
    id: uidOf(claim),
    kind: 'IPAddressClaim',
    namespace: metadata.namespace ?? '',
    name: metadata.name,
    family,
    cidr: address ? `${address}/${bits}` : '',
    length: bits,
    pools: ids,
    class: isClass ? name : '',
    ...reasonOf(status?.conditions),
    since: metadata.creationTimestamp ?? '',
  };
}

/**
 * Returns the pools that back a class, and that all namespaces or this one can use. A class that
 * is not known counts as one that allows no LocalIPPools, which is the default.
 */
function backing(
  className: string | undefined,
  namespace: string | undefined,
  pools: Map<string, PoolMessage>,
  classes: ClassObject[]
): string[] {
  if (!className) return [];
  const spec = classes.find(({ metadata }) => metadata.name === className)?.spec;
  const isUsable = (pool: PoolMessage) =>
    pool.namespace
      ? pool.namespace === namespace && spec?.allowLocalPools === true
      : pool.visibility === 'Shared';
  const serves = (pool: PoolMessage) =>
    pool.classes?.includes(className) &&
    isUsable(pool) &&
    (!spec || familyOf(spec.ipFamily) === pool.family);
  return [...pools.values()].filter(serves).map(pool => pool.id);
}

function familyOfWaiting(
  text: string | undefined,
  ids: string[],
  pools: Map<string, PoolMessage>
): 4 | 6 {
  if (text) return familyOf(text);
  return ids.length > 0 ? pools.get(ids[0])!.family : 4;
}

/** Returns reason and message of the condition Ready. */
export function reasonOf(conditions: Condition[] | undefined): { reason: string; message: string } {
  const ready = conditions?.find(condition => condition.type === 'Ready');
  if (!ready) {
    return {
      reason: 'NoAnswer',
      message: 'no operator has answered it: see whether Cadastre runs',
    };
  }
  return { reason: ready.reason ?? '', message: ready.message ?? '' };
}
