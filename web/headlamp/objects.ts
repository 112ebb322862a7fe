// The objects of the API, as far as the plug-in reads them.

export interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
}

export interface PoolReference {
  kind?: string;
  name: string;
}

/** An IPPool or a LocalIPPool, or another pool in that form. */
export interface PoolObject {
  kind?: string;
  metadata: Metadata;
  spec: {
    cidr?: string;
    parentRef?: PoolReference;
    prefixLength?: number;
    ipFamily?: string;
    routingDomain?: string;
    classNames?: string[];
    occupies?: string;
    ranges?: string[];
    reserved?: string[];
    network?: { prefixLength: number; gateway?: string; allocateEdgeAddresses?: boolean };
    allocation?: { minPrefixLength?: number; maxPrefixLength?: number; strategy?: string };
    onExhaustion?: string;
    reuseDelay?: string;
    limits?: { perProject?: { addresses?: number | string; blocks?: number } };
    visibility?: string;
    project?: string;
  };
  status?: {
    phase?: string;
    ipFamily?: string;
    allocatedCIDR?: string;
    capacity?: {
      total?: string;
      allocated?: string;
      available?: string;
      withheld?: string;
      outOfRange?: string;
    };
    allocations?: number;
    largestFreePrefix?: string;
    formerGateways?: string[];
    conditions?: Condition[];
  };
}

/** An InClusterIPPool or a GlobalInClusterIPPool of the in-cluster provider. */
export interface InClusterPoolObject {
  metadata: Metadata;
  spec: {
    addresses: string[];
    excludedAddresses?: string[];
    prefix: number;
    gateway?: string;
    allocateReservedIPAddresses?: boolean;
  };
  status?: {
    ipAddresses?: { total: number; free: number; used: number; outOfRange: number };
    conditions?: Condition[];
  };
}

/** An IPClass. */
export interface ClassObject {
  metadata: Metadata;
  spec: { ipFamily: string; allowLocalPools?: boolean };
}

/** An IPAllocation. */
export interface AllocationObject {
  metadata: Metadata;
  spec: {
    cidr: string;
    additionalCIDRs?: string[];
    ipFamily?: string;
    poolRef?: PoolReference;
    routingDomain?: string;
    className?: string;
    claimRef: { apiGroup: string; kind: string; name: string; namespace?: string; uid?: string };
    purpose: string;
    state?: string;
    releaseAfter?: string;
    project?: string;
    requestedBy?: string;
  };
}

export interface Candidate {
  poolRef: PoolReference;
  reason: string;
  message?: string;
}

/** An IPClaim. */
export interface ClaimObject {
  metadata: Metadata;
  spec: {
    className?: string;
    poolRef?: PoolReference;
    poolSelector?: object;
    ipFamily?: string;
    prefixLength?: number;
    cidr?: string;
  };
  status?: {
    phase?: string;
    allocatedCIDR?: string;
    poolRef?: PoolReference;
    candidates?: Candidate[];
    candidatesOmitted?: number;
    conditions?: Condition[];
  };
}

/** An IPAddressClaim of Cluster API. */
export interface AddressClaimObject {
  metadata: Metadata;
  spec: { poolRef: { apiGroup?: string; kind: string; name: string } };
  status?: { addressRef?: { name?: string }; conditions?: Condition[] };
}

export const GROUP = 'ipam.cadastre.dev';
export const CLUSTER_API_GROUP = 'ipam.cluster.x-k8s.io';
