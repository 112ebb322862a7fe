// Registers for tests, which have taken some objects.

import { type Objects, Register, type Strip } from '../../headlamp/strips';

export function objects(parts: Partial<Objects>): Objects {
  return {
    pools: [],
    inClusterPools: [],
    allocations: [],
    claims: [],
    addressClaims: [],
    classes: [],
    isRead: true,
    hasAllRecords: true,
    ...parts,
  };
}

export function registerOf(parts: Partial<Objects>): Register {
  const register = new Register();
  register.take(objects(parts));
  return register;
}

export function stripsOf(register: Register): Map<string, Strip> {
  return new Map(register.whole(register.spaces).strips.map(strip => [strip.id, strip]));
}
