// Defines the resources, as Headlamp's classes, and a register of them that follows the cluster.

import { K8s } from '@kinvolk/headlamp-plugin/lib';
import { makeCustomResourceClass } from '@kinvolk/headlamp-plugin/lib/Crd';
import { useEffect, useState } from 'react';
import {
  type AddressClaimObject,
  type AllocationObject,
  type ClaimObject,
  type ClassObject,
  CLUSTER_API_GROUP,
  GROUP,
  type InClusterPoolObject,
  type PoolObject,
} from './objects';
import { isDecided, isWhole, type Listed, type Reading, readingOf } from './readings';
import { Register } from './strips';

type KubeClass = ReturnType<typeof makeCustomResourceClass>;

function resource(group: string, version: string, kind: string, isNamespaced: boolean): KubeClass {
  const singularName = kind.toLowerCase();
  return makeCustomResourceClass({
    apiInfo: [{ group, version }],
    kind,
    singularName,
    pluralName: `${singularName}s`,
    isNamespaced,
  });
}

export const IPPool = resource(GROUP, 'v1alpha1', 'IPPool', false);
export const LocalIPPool = resource(GROUP, 'v1alpha1', 'LocalIPPool', true);
export const InClusterIPPool = resource(CLUSTER_API_GROUP, 'v1alpha2', 'InClusterIPPool', true);
export const GlobalInClusterIPPool = resource(
  CLUSTER_API_GROUP,
  'v1alpha2',
  'GlobalInClusterIPPool',
  false
);
export const IPClass = resource(GROUP, 'v1alpha1', 'IPClass', false);
export const IPAllocation = resource(GROUP, 'v1alpha1', 'IPAllocation', true);
export const IPClaim = resource(GROUP, 'v1alpha1', 'IPClaim', true);
export const IPAddressClaim = resource(CLUSTER_API_GROUP, 'v1beta2', 'IPAddressClaim', true);

interface Wrapped {
  jsonData: unknown;
}

/** Returns the objects of a list of Headlamp as the API server sent them. */
export function objectsOf<T>(listed: Listed<unknown>): T[] {
  return ((listed.items ?? []) as Wrapped[]).map(item => item.jsonData as T);
}

/** Holds a register that follows the cluster, and the readings for it. */
export interface Followed {
  register: Register;
  readings: Reading[];
  /** Grows with each change of the register. */
  version: number;
}

/** Follows everything of the address space that the user can read in a cluster. */
export function useRegister(cluster: string): Followed {
  const [register, setRegister] = useState(() => new Register());
  const [version, setVersion] = useState(0);
  const [of, setOf] = useState(cluster);
  const pools = IPPool.useList({ cluster });
  const localPools = LocalIPPool.useList({ cluster });
  const allocations = IPAllocation.useList({ cluster });
  const claims = IPClaim.useList({ cluster, fieldSelector: 'status.phase!=Bound' });
  const addressClaims = IPAddressClaim.useList({ cluster });
  // No readings of these: without them a little less is known, and a cluster need not have the pools.
  const classes = IPClass.useList({ cluster });
  const inCluster = InClusterIPPool.useList({ cluster });
  const globalInCluster = GlobalInClusterIPPool.useList({ cluster });
  const readings = [
    readingOf('ippools', pools),
    readingOf('localippools', localPools),
    readingOf('ipallocations', allocations),
    readingOf('ipclaims', claims),
    readingOf('ipaddressclaims', addressClaims),
  ];
  useEffect(() => {
    if (of !== cluster) {
      setOf(cluster);
      setRegister(new Register());
      return;
    }
    const changed = register.take({
      pools: [...objectsOf<PoolObject>(pools), ...objectsOf<PoolObject>(localPools)],
      inClusterPools: [
        ...objectsOf<InClusterPoolObject>(inCluster),
        ...objectsOf<InClusterPoolObject>(globalInCluster),
      ],
      allocations: objectsOf<AllocationObject>(allocations),
      claims: objectsOf<ClaimObject>(claims),
      addressClaims: objectsOf<AddressClaimObject>(addressClaims),
      classes: objectsOf<ClassObject>(classes),
      isRead: readings.slice(0, 3).every(isDecided),
      hasAllRecords: isWhole(readings[2]),
    });
    if (changed) setVersion(before => before + 1);
  });
  return { register, readings, version };
}

/** Returns the viewed clusters. */
export function useClusters(): string[] {
  const selected = K8s.useSelectedClusters();
  const cluster = K8s.useCluster();
  if (selected.length > 0) return selected;
  return [cluster ?? ''];
}
