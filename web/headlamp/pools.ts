// Turns a pool's object into the message of the stream of `kubectl ipam ui` for a pool.

import { bitsOf, format } from '../map/address.js';
import type { PoolObject, PoolReference } from './objects';
import { betweenOf, type PoolSpace } from './space';
import type { Usage } from './usage';

export type PoolMessage = ReturnType<typeof poolMessage>;

/** Returns the id of the pool that a reference names, from within a namespace. */
export function poolIdOf(ref: PoolReference, namespace: string | undefined): string {
  const kind = ref.kind || 'IPPool';
  const isNamespaced = kind === 'LocalIPPool' || kind === 'InClusterIPPool';
  return isNamespaced ? `${kind}/${namespace}/${ref.name}` : `${kind}/${ref.name}`;
}

/** Returns the kind of a pool. Objects of a list can be without it: a LocalIPPool has a namespace. */
function kindOf({ kind, metadata }: PoolObject): string {
  return kind ?? (metadata.namespace ? 'LocalIPPool' : 'IPPool');
}

export function idOfPool(pool: PoolObject): string {
  return poolIdOf({ kind: kindOf(pool), name: pool.metadata.name }, pool.metadata.namespace);
}

/** Returns a pool whose object is not known. Its place is known if the record of its space is. */
export function mentionedPool(
  id: string,
  family: 4 | 6,
  place = { parent: '', domain: '' }
): PoolMessage {
  const [kind, ...names] = id.split('/');
  const name = names[names.length - 1];
  const namespace = names.length > 1 ? names[0] : '';
  return { id, kind, namespace, name, known: false, family, cidr: '', ...place } as PoolMessage;
}

export function familyOf(text: string | undefined): 4 | 6 {
  return text === 'IPv6' || text?.includes(':') ? 6 : 4;
}

/** Returns the CIDR of a pool; empty if it has none yet. The spec of a child can be without it. */
export function cidrOf({ spec, status }: PoolObject, cidrOfRecord: string): string {
  return spec.cidr || cidrOfRecord || status?.allocatedCIDR || '';
}

/**
 * Returns the message of a pool's object. The register adds the data from the blocks: its routing
 * domain, and its usage.
 */
export function poolMessage(pool: PoolObject, cidr: string, space: PoolSpace | null) {
  const { metadata, spec, status } = pool;
  const family = cidr ? familyOf(cidr) : familyOf(spec.ipFamily ?? status?.ipFamily);
  const ready = status?.conditions?.find(condition => condition.type === 'Ready');
  const limit = spec.limits?.perProject;
  return {
    id: idOfPool(pool),
    kind: kindOf(pool),
    namespace: metadata.namespace ?? '',
    name: metadata.name,
    known: true,
    domain: domainOfRoot(pool),
    family,
    cidr,
    first: space?.ends ? format(space.ends.from, family) : '',
    last: space?.ends ? format(space.ends.to, family) : '',
    parent: spec.parentRef ? poolIdOf(spec.parentRef, metadata.namespace) : '',
    phase: metadata.deletionTimestamp ? 'Terminating' : status?.phase ?? '',
    message: ready && ready.status !== 'True' ? ready.message ?? '' : '',
    classes: spec.classNames ?? [],
    visibility: metadata.namespace ? '' : spec.visibility || 'Shared',
    project: spec.project ?? '',
    strategy: spec.allocation?.strategy || 'FirstFit',
    reuseDelay: spec.reuseDelay ?? '',
    onExhaustion: spec.onExhaustion || 'Wait',
    hostAddresses: spec.network !== undefined,
    minLength: space ? spec.allocation?.minPrefixLength ?? space.cidr.length : -1,
    maxLength: space ? spec.allocation?.maxPrefixLength ?? bitsOf(family) : -1,
    labels: metadata.labels ?? {},
    usage: null as Usage | null,
    usageFrom: '' as 'records' | 'status' | '',
    withheld: (space ? [...betweenOf(space), ...space.reasons] : []).map(
      ({ from, to, reason }) => ({ from: format(from, family), to: format(to, family), reason })
    ),
    limits: limit
      ? {
          addresses: limit.addresses === undefined ? '' : String(limit.addresses),
          blocks: limit.blocks ?? null,
        }
      : null,
  };
}

/** Returns the routing domain of a root pool; empty for a child, which is in its parent's. */
function domainOfRoot({ metadata, spec }: PoolObject): string {
  if (spec.parentRef) return '';
  const domain = spec.routingDomain || 'default';
  return metadata.namespace ? `${metadata.namespace}/${domain}` : domain;
}
