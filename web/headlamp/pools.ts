// Turns a pool's object into the message of the stream of `kubectl ipam ui` for a pool.

import { bitsOf, format } from '../map/address.js';
import { byFrom, gapsIn, rangeOf, type Span } from '../page/ranges.js';
import type { PoolObject, PoolReference } from './objects';
import type { Usage } from './usage';

export type PoolMessage = ReturnType<typeof poolMessage>;

/** Returns the id of the pool that a reference names, from within a namespace. */
export function poolIdOf(ref: PoolReference, namespace: string | undefined): string {
  const kind = ref.kind || 'IPPool';
  const isNamespaced = kind === 'LocalIPPool' || kind === 'InClusterIPPool';
  return isNamespaced ? `${kind}/${namespace}/${ref.name}` : `${kind}/${ref.name}`;
}

/** Returns the id of a pool. A LocalIPPool has a namespace, an IPPool none. */
export function idOfPool(pool: PoolObject): string {
  const { namespace, name } = pool.metadata;
  return namespace ? `LocalIPPool/${namespace}/${name}` : `IPPool/${name}`;
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

/**
 * Returns the message of a pool's object. The register adds the data from its blocks: the CIDR of
 * a child whose spec has none yet, its routing domain, and its usage.
 */
export function poolMessage(pool: PoolObject, cidrOfRecord = '') {
  const { metadata, spec, status } = pool;
  const cidr = spec.cidr || cidrOfRecord || status?.allocatedCIDR || '';
  const family = cidr ? familyOf(cidr) : familyOf(spec.ipFamily ?? status?.ipFamily);
  const ready = status?.conditions?.find(condition => condition.type === 'Ready');
  const range = cidr ? rangeOf(cidr) : null;
  const limit = spec.limits?.perProject;
  return {
    id: idOfPool(pool),
    kind: metadata.namespace ? 'LocalIPPool' : 'IPPool',
    namespace: metadata.namespace ?? '',
    name: metadata.name,
    known: true,
    domain: domainOfRoot(pool),
    family,
    cidr,
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
    minLength: range ? spec.allocation?.minPrefixLength ?? range.length : -1,
    maxLength: range ? spec.allocation?.maxPrefixLength ?? bitsOf(family) : -1,
    labels: metadata.labels ?? {},
    usage: null as Usage | null,
    usageFrom: '' as 'records' | 'status' | '',
    withheld: range ? withheldOf(pool, { ...range, family }) : [],
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

/**
 * Returns the addresses that a pool never hands out, with the reasons, in the order of the
 * addresses. They can overlap: an address can be withheld for several reasons.
 */
function withheldOf(pool: PoolObject, cidr: Span & { family: 4 | 6 }) {
  const found: (Span & { reason: string })[] = [];
  const add = (reason: string, range: Span | null) => {
    if (range && range.from <= cidr.to && cidr.from <= range.to) {
      found.push({ from: range.from, to: range.to, reason });
    }
  };
  const { network, reserved = [], ranges = [] } = pool.spec;
  if (network?.gateway) add('gateway', rangeOf(network.gateway));
  if (network && !network.allocateEdgeAddresses) {
    for (const [reason, address] of edgesOf(cidr, network.prefixLength)) {
      add(reason, { from: address, to: address });
    }
  }
  for (const text of pool.status?.formerGateways ?? []) add('former gateway', rangeOf(text));
  for (const text of reserved) add('reserved', rangeOf(text));
  if (ranges.length > 0) {
    const inside = ranges.map(text => rangeOf(text)).filter(range => range !== null);
    for (const range of gapsIn(cidr, inside)) add('outside of ranges', range);
  }
  found.sort(byFrom);
  return found.map(({ from, to, reason }) => ({
    from: format(from, cidr.family),
    to: format(to, cidr.family),
    reason,
  }));
}

/**
 * Returns the addresses of a subnet that are not for hosts: see RFC 4291 section 2.6.1 for IPv6. A
 * subnet for the two ends of a link has none (RFC 3021, RFC 6164).
 */
function edgesOf(cidr: Span & { family: 4 | 6 }, length: number): [string, bigint][] {
  const hostBits = bitsOf(cidr.family) - length;
  if (hostBits <= 1) return [];
  const hosts = (1n << BigInt(hostBits)) - 1n;
  const first = cidr.from & ~hosts;
  if (cidr.family === 6) return [['subnet-router anycast address', first]];
  return [
    ['network address', first],
    ['broadcast address', first | hosts],
  ];
}
