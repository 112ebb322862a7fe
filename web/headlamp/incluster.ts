// Turns the pools of the in-cluster provider into the form of an IPPool that occupies its ranges.

import { format } from '../map/address.js';
import { gapsIn, rangeOf } from '../page/ranges.js';
import type { Condition, InClusterPoolObject, PoolObject } from './objects';
import { spansOf } from './space';

const ROUTING_DOMAIN = 'ipam.cadastre.dev/routing-domain';

const PROVIDER_RUNNING = 'ProviderRunning';

/** The phases of a pool, by the reason of its condition Ready. */
const PHASES: Record<string, string> = {
  Ready: 'Ready',
  Full: 'Exhausted',
  Paused: 'Paused',
  [PROVIDER_RUNNING]: 'Paused',
  Terminating: 'Terminating',
};

/**
 * Returns the pools that Cadastre serves: those with the condition Ready, which the in-cluster
 * provider does not write.
 */
export function servedPools(pools: InClusterPoolObject[]): PoolObject[] {
  return pools.flatMap(pool => {
    const ready = pool.status?.conditions?.find(condition => condition.type === 'Ready');
    return ready ? [asPool(pool, ready)] : [];
  });
}

/** Reports whether the in-cluster provider hands out the addresses of a pool. */
export function isProviderRunning({ status }: PoolObject): boolean {
  const conditions = status?.conditions ?? [];
  return conditions.some(({ type, reason }) => type === 'Ready' && reason === PROVIDER_RUNNING);
}

function asPool({ metadata, spec, status }: InClusterPoolObject, ready: Condition): PoolObject {
  const { total, free, used, outOfRange } = status?.ipAddresses ?? {};
  return {
    kind: metadata.namespace ? 'InClusterIPPool' : 'GlobalInClusterIPPool',
    metadata,
    spec: {
      ...addressesOf(spec),
      occupies: 'Ranges',
      routingDomain: metadata.annotations?.[ROUTING_DOMAIN],
      network: {
        prefixLength: spec.prefix,
        gateway: spec.gateway,
        allocateEdgeAddresses: spec.allocateReservedIPAddresses,
      },
    },
    status: {
      phase: PHASES[ready.reason ?? ''] ?? 'Pending',
      conditions: status?.conditions,
      allocations: used,
      capacity: status?.ipAddresses && {
        total: String(total),
        available: String(free),
        allocated: String(used),
        withheld: String(outOfRange), // the status does not count the others
        outOfRange: String(outOfRange),
      },
    },
  };
}

/** Returns the subnet of a pool, in which all of its addresses lie, and what it holds of it. */
function addressesOf({ addresses, excludedAddresses, prefix }: InClusterPoolObject['spec']) {
  const spans = spansOf(addresses);
  if (spans.length === 0) return {};
  const family = addresses[0].includes(':') ? 6 : 4;
  const subnet = rangeOf(`${format(spans[0].from, family)}/${prefix}`);
  if (!subnet) return {};
  const outside = [...gapsIn(subnet, spans), ...spansOf(excludedAddresses)];
  return {
    cidr: `${format(subnet.from, family)}/${prefix}`,
    ranges: gapsIn(subnet, outside).map(
      ({ from, to }) => `${format(from, family)}-${format(to, family)}`
    ),
  };
}
