// Finds the block that a claim holds or waits for, from the objects that its page reads.

import { ADDRESS, isOurs, reasonOf } from './claims';
import {
  type AddressClaimObject,
  type AllocationObject,
  type Candidate,
  type ClaimObject,
  CLUSTER_API_GROUP,
  GROUP,
  type PoolReference,
} from './objects';
import { poolIdOf } from './pools';

/** The claim of a page. */
export type Claim =
  | { kind: 'IPClaim'; object: ClaimObject }
  | { kind: 'IPAddressClaim'; object: AddressClaimObject };

/** Returns the claim that an object is; null if Cadastre does not serve it. */
export function claimOf(object: unknown): Claim | null {
  const { kind, apiVersion = '' } = (object ?? {}) as { kind?: string; apiVersion?: string };
  const group = apiVersion.split('/')[0];
  if (kind === 'IPClaim' && group === GROUP) return { kind, object: object as ClaimObject };
  if (kind !== 'IPAddressClaim' || group !== CLUSTER_API_GROUP) return null;
  return isOurs(object as AddressClaimObject)
    ? { kind, object: object as AddressClaimObject }
    : null;
}

/** Holds the result of a claim so far. */
export interface Standing {
  /** The held block; empty while the claim waits. */
  cidr: string;
  /** The record of the block; null if the user cannot read it, or it does not exist. */
  record: AllocationObject | null;
  /** The pool of the block, or the first candidate of a claim that waits. */
  pool: PoolReference | null;
  /** The exact block that a waiting claim asks for; empty if it takes any. */
  asked: string;
  reason: string;
  message: string;
  candidates: Candidate[];
  /** The number of candidates that are not listed. */
  omitted: number;
}

/**
 * Returns the result of a claim so far, by its own object and by its records, as far as they are
 * read.
 */
export function standingOf(claim: Claim, records: AllocationObject[]): Standing {
  const record = records.find(one => isHeldBy(one, claim)) ?? null;
  return claim.kind === 'IPClaim'
    ? standingOfClaim(claim.object, record)
    : standingOfAddressClaim(claim.object, record);
}

function isHeldBy({ metadata, spec }: AllocationObject, { kind, object }: Claim): boolean {
  const { claimRef } = spec;
  return (
    spec.purpose !== 'Pool' &&
    claimRef.kind === kind &&
    claimRef.name === object.metadata.name &&
    metadata.namespace === object.metadata.namespace
  );
}

function standingOfClaim({ spec, status }: ClaimObject, record: AllocationObject | null): Standing {
  const isBound = status?.phase === 'Bound';
  const candidates = status?.candidates ?? [];
  const pools = [
    isBound ? record?.spec.poolRef : undefined,
    status?.poolRef,
    spec.poolRef,
    candidates[0]?.poolRef,
  ];
  return {
    cidr: isBound ? status?.allocatedCIDR ?? record?.spec.cidr ?? '' : '',
    record: isBound ? record : null,
    pool: pools.find(pool => pool !== undefined) ?? null,
    asked: isBound ? '' : spec.cidr ?? '',
    ...reasonOf(status?.conditions),
    candidates,
    omitted: status?.candidatesOmitted ?? 0,
  };
}

function standingOfAddressClaim(
  claim: AddressClaimObject,
  record: AllocationObject | null
): Standing {
  const { metadata, spec, status } = claim;
  const { kind, name } = spec.poolRef;
  const isBound = !!status?.addressRef?.name;
  const asked = metadata.annotations?.[ADDRESS] ?? '';
  const named = kind === 'IPClass' ? null : { kind, name };
  return {
    cidr: isBound ? record?.spec.cidr ?? '' : '',
    record: isBound ? record : null,
    pool: (isBound && record?.spec.poolRef) || named,
    asked: isBound ? '' : asked,
    ...reasonOf(status?.conditions),
    candidates: [],
    omitted: 0,
  };
}

/** Reports whether a claim holds a block, according to its own object. */
export function isHolding({ kind, object }: Claim): boolean {
  return kind === 'IPClaim' ? object.status?.phase === 'Bound' : !!object.status?.addressRef?.name;
}

/** Returns the id of a pool that a claim names. */
export function poolIdFor(pool: PoolReference, { object }: Claim): string {
  return poolIdOf(pool, object.metadata.namespace);
}
