import { carved, held, pool } from '../test/fakes/objects';
import { objects, registerOf } from '../test/fakes/registers';
import type { AllocationObject } from './objects';

const root = pool('root', { cidr: '10.0.0.0/24' });
const inRoot = { poolRef: { kind: 'IPPool', name: 'root' } };

/** The record of pool a, whose blocks are the addresses 10.0.0.10 to 10.0.0.19. */
const ofA = carved({ kind: 'IPPool', name: 'a' }, '10.0.0.10/31', {
  ...inRoot,
  additionalCIDRs: ['10.0.0.12/30', '10.0.0.16/30'],
});

/** Returns another record of the same pool. */
function anotherOf(record: AllocationObject, cidr: string): AllocationObject {
  const { metadata, spec } = record;
  return {
    metadata: { ...metadata, name: `${metadata.name}-2`, uid: `${metadata.uid}-2` },
    spec: { ...spec, cidr, additionalCIDRs: undefined },
  };
}

describe('a record of several blocks', () => {
  it('holds each of them, and counts once', () => {
    const register = registerOf({
      pools: [root],
      allocations: [ofA, held('team-a/web', 'root', '10.0.0.0/32')],
    });
    const blocks = [...register.store.blocksOf('IPPool/root')].map(({ id, cidr }) => [id, cidr]);
    expect(blocks).toEqual([
      ['record ippool.a', '10.0.0.10/31'],
      ['record ippool.a/10.0.0.12/30', '10.0.0.12/30'],
      ['record ippool.a/10.0.0.16/30', '10.0.0.16/30'],
      ['record team-a/web', '10.0.0.0/32'],
    ]);
    expect(register.store.pools.get('IPPool/root').usage).toMatchObject({
      carved: '10',
      held: '1',
      free: '245',
      blocks: 2,
    });
  });

  it('names a pool that cannot be read', () => {
    const { store } = registerOf({ pools: [root], allocations: [ofA] });
    expect(store.pools.get('IPPool/a')).toMatchObject({ known: false, parent: 'IPPool/root' });
  });

  it('is removed with all of them', () => {
    const register = registerOf({ pools: [root], allocations: [ofA] });
    register.take(objects({ pools: [root] }));
    expect(register.store.blocks.size).toBe(0);
    expect(register.store.pools.get('IPPool/root').usage).toMatchObject({ free: '256', blocks: 0 });
  });

  it('counts addresses once that it shares with another record of the pool', () => {
    const edited = pool('root', { cidr: '10.0.0.0/24', reserved: ['10.0.0.19', '10.0.0.10'] });
    const allocations = [ofA, anotherOf(ofA, '10.0.0.16/28')];
    const { store } = registerOf({ pools: [edited], allocations });
    expect(store.pools.get('IPPool/root').usage).toMatchObject({
      carved: '22',
      drained: '2',
      withheld: '0',
      free: '234',
      blocks: 2,
    });
  });

  it('is drained block by block', () => {
    const edited = pool('root', { cidr: '10.0.0.0/24', reserved: ['10.0.0.19'] });
    const { store } = registerOf({ pools: [edited], allocations: [ofA] });
    const drained = [...store.blocks.values()].filter(block => block.drained);
    expect(drained.map(block => block.cidr)).toEqual(['10.0.0.16/30']);
  });
});
