// Objects for tests, as the API server has them.

import { loadAll } from 'js-yaml';
import { readFileSync } from 'node:fs';
import type {
  AddressClaimObject,
  AllocationObject,
  ClaimObject,
  ClassObject,
  InClusterPoolObject,
  PoolObject,
} from '../../headlamp/objects';

const OURS = 'ipam.cadastre.dev/v1alpha1';
export const ROOT = '../';

type Kinded<T> = T & { kind: string; apiVersion: string };

/** The pools of config/samples, which have no status. */
export function samples<T>(file: string): Kinded<T>[] {
  return loadAll(readFileSync(`${ROOT}config/samples/${file}`, 'utf8')) as Kinded<T>[];
}

export function pool(
  name: string,
  spec: PoolObject['spec'],
  status: PoolObject['status'] = {}
): Kinded<PoolObject> {
  return {
    kind: 'IPPool',
    apiVersion: OURS,
    metadata: { name },
    spec,
    status: { phase: 'Ready', ...status },
  };
}

export function localPool(
  namespace: string,
  name: string,
  spec: PoolObject['spec']
): Kinded<PoolObject> {
  return {
    kind: 'LocalIPPool',
    apiVersion: OURS,
    metadata: { namespace, name },
    spec,
    status: { phase: 'Ready' },
  };
}

/** A pool of the in-cluster provider's kinds: with a namespace, or for all of them. */
export function inClusterPool(
  full: string,
  spec: InClusterPoolObject['spec'],
  status?: InClusterPoolObject['status']
): Kinded<InClusterPoolObject> {
  const [name, namespace] = full.split('/').reverse();
  const kind = namespace ? 'InClusterIPPool' : 'GlobalInClusterIPPool';
  const apiVersion = 'ipam.cluster.x-k8s.io/v1alpha2';
  return { kind, apiVersion, metadata: { name, namespace }, spec, status };
}

export function ipClass(name: string, spec: ClassObject['spec']): Kinded<ClassObject> {
  return { kind: 'IPClass', apiVersion: OURS, metadata: { name }, spec };
}

/** The record of a claim's block. */
export function held(
  claim: string,
  poolName: string,
  cidr: string,
  spec: Partial<AllocationObject['spec']> & { claimKind?: string } = {}
): Kinded<AllocationObject> {
  const [namespace, name] = claim.split('/');
  const { claimKind = 'IPClaim', ...more } = spec;
  return {
    kind: 'IPAllocation',
    apiVersion: OURS,
    metadata: {
      namespace,
      name: `${name}-x1`,
      uid: `record ${claim}`,
      creationTimestamp: '2026-11-26T17:00:00Z',
    },
    spec: {
      cidr,
      poolRef: { kind: 'IPPool', name: poolName },
      claimRef: { apiGroup: 'ipam.cadastre.dev', kind: claimKind, name },
      purpose: 'Claim',
      state: 'Bound',
      project: namespace,
      ...more,
    },
  };
}

/** The record of what a pool holds: in its parent, or in its routing domain. */
export function carved(
  child: { kind: string; namespace?: string; name: string; uid?: string },
  cidr: string,
  spec: Partial<AllocationObject['spec']>
): Kinded<AllocationObject> {
  const full = `${child.kind.toLowerCase()}.${child.namespace ? `${child.namespace}.` : ''}${
    child.name
  }`;
  return {
    kind: 'IPAllocation',
    apiVersion: OURS,
    metadata: { namespace: 'cadastre-system', name: full, uid: `record ${full}` },
    spec: {
      cidr,
      claimRef: { apiGroup: 'ipam.cadastre.dev', ...child },
      purpose: 'Pool',
      state: 'Bound',
      ...spec,
    },
  };
}

export function claim(
  full: string,
  spec: ClaimObject['spec'],
  status: ClaimObject['status'] = { phase: 'Exhausted' }
): Kinded<ClaimObject> {
  const [namespace, name] = full.split('/');
  const metadata = {
    namespace,
    name,
    uid: `claim ${full}`,
    creationTimestamp: '2026-11-26T17:30:00Z',
  };
  return { kind: 'IPClaim', apiVersion: OURS, metadata, spec, status };
}

export function addressClaim(
  full: string,
  kind: string,
  poolName: string,
  status: AddressClaimObject['status'] = {}
): Kinded<AddressClaimObject> {
  const [namespace, name] = full.split('/');
  return {
    kind: 'IPAddressClaim',
    apiVersion: 'ipam.cluster.x-k8s.io/v1beta2',
    metadata: { namespace, name, uid: `address claim ${full}` },
    spec: { poolRef: { apiGroup: 'ipam.cadastre.dev', kind, name: poolName } },
    status,
  };
}

/** The condition Ready of something that waits. */
export function waits(reason: string, message: string) {
  return [{ type: 'Ready', status: 'False', reason, message }];
}
