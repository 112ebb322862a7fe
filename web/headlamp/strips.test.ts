import { readFileSync } from 'node:fs';
import {
  addressClaim,
  carved,
  claim,
  held,
  ipClass,
  localPool,
  pool,
  ROOT,
  samples,
  waits,
} from '../test/fakes/objects';
import { objects, registerOf, stripsOf } from '../test/fakes/registers';
import type { PoolObject } from './objects';
import { type Change, Register } from './strips';

function statesOf(register: Register): Record<string, string> {
  const strips = register.whole(register.spaces).strips.filter(strip => strip.kind !== 'pool');
  return Object.fromEntries(strips.map(strip => [strip.label, strip.state]));
}

/** The pool of test/e2e/plugin that has a block of each state. */
const yard = pool('yard', {
  cidr: '198.51.100.0/24',
  routingDomain: 'yard',
  network: { prefixLength: 24, gateway: '198.51.100.1' },
  reserved: ['198.51.100.248/29', '198.51.100.3'],
});
const yardBlocks = [
  carved({ kind: 'IPPool', name: 'yard' }, '198.51.100.0/24', { routingDomain: 'yard' }),
  held('team-b/used', 'yard', '198.51.100.2/32'),
  held('team-b/drained', 'yard', '198.51.100.3/32'),
  held('team-b/kept', 'yard', '198.51.100.4/32', { state: 'Retained' }),
  held('team-b/cooled', 'yard', '198.51.100.5/32', { state: 'Cooling' }),
];

describe('pools of config/samples', () => {
  const pools = [
    ...samples<PoolObject>('20-pools.yaml'),
    ...samples<PoolObject>('21-child-pool.yaml'),
    ...samples<PoolObject>('25-local-pool.yaml'),
  ];
  const west = carved({ kind: 'IPPool', name: 'region-west' }, '10.1.0.0/16', {
    poolRef: { kind: 'IPPool', name: 'corporate' },
  });
  const lab = carved(
    { kind: 'LocalIPPool', namespace: 'default', name: 'team-lab' },
    '10.2.0.0/20',
    { poolRef: { kind: 'IPPool', name: 'corporate' } }
  );

  it('lie in their routing domain, child pools in their parents', () => {
    const register = registerOf({ pools, allocations: [west, lab] });
    expect(register.spaces.map(space => space.id)).toEqual(['default/4', 'default/6']);
    const strips = stripsOf(register);
    expect(strips.get('p:IPPool/corporate')).toMatchObject({
      space: 'default/4',
      parent: null,
      from: 10n << 24n,
    });
    expect(strips.get('p:IPPool/region-west')).toMatchObject({
      parent: 'p:IPPool/corporate',
      sub: '10.1.0.0/16',
      label: 'region-west',
    });
    expect(strips.get('p:LocalIPPool/default/team-lab')).toMatchObject({
      parent: 'p:IPPool/corporate',
      sub: '10.2.0.0/20',
      label: 'default/team-lab',
    });
    expect(strips.get('p:IPPool/corporate-v6')).toMatchObject({
      space: 'default/6',
      from: 0x20010db8n << 96n,
    });
  });

  it('are not drawn while they have no block of their parent', () => {
    const strips = stripsOf(registerOf({ pools }));
    expect(strips.has('p:IPPool/corporate')).toBe(true);
    expect(strips.has('p:IPPool/region-west')).toBe(false);
  });

  it('withhold the addresses that their specs exclude', () => {
    const register = registerOf({ pools });
    const withheld = (id: string) =>
      register.store.pools.get(id).spans.map((span: { reason: string }) => span.reason);
    expect(withheld('IPPool/corporate')).toEqual(['reserved']);
    expect(withheld('IPPool/machines')).toEqual([
      'network address',
      'outside of ranges',
      'gateway',
      'outside of ranges',
      'broadcast address',
    ]);
  });
});

describe('blocks of every state', () => {
  it('have the states that kubectl ipam map prints', () => {
    const states = statesOf(registerOf({ pools: [yard], allocations: yardBlocks }));
    expect(states).toMatchObject({
      used: 'held',
      drained: 'drained',
      kept: 'retained',
      cooled: 'cooling',
      gateway: 'withheld',
    });
  });

  it('are counted as kubectl ipam map counts them', () => {
    const usage = registerOf({ pools: [yard], allocations: yardBlocks }).store.pools.get(
      'IPPool/yard'
    ).usage;
    const golden = readFileSync(`${ROOT}test/e2e/plugin/testdata/map.golden`, 'utf8');
    const printed = golden.split('$ kubectl ipam map yard\n')[1].split('$ kubectl')[0];
    const count = (character: string) =>
      Number(new RegExp(`^[${character}]  .* (\\d+)$`, 'm').exec(printed)![1]);
    expect(Number(usage.free)).toBe(count('.'));
    expect(Number(usage.withheld)).toBe(count('x'));
    expect(Number(usage.retained)).toBe(count('R'));
    expect(Number(usage.cooling)).toBe(count('C'));
    expect(Number(usage.drained)).toBe(count('D'));
    expect(Number(usage.held)).toBe(count('#') + count('R') + count('C') + count('D'));
    expect(Number(usage.total)).toBe(256);
  });

  it('count the blocks of claims in child pools', () => {
    const core = pool('core', { cidr: '10.0.0.0/8' });
    const west = pool('west', { cidr: '10.1.0.0/16', parentRef: { name: 'core' } });
    const register = registerOf({
      pools: [core, west],
      allocations: [
        carved({ kind: 'IPPool', name: 'west' }, '10.1.0.0/16', {
          poolRef: { kind: 'IPPool', name: 'core' },
        }),
        held('team-a/web', 'west', '10.1.4.0/24'),
        held('team-a/own', 'core', '10.9.0.0/24'),
      ],
    });
    expect(register.store.pools.get('IPPool/core').usage).toMatchObject({
      held: '256',
      carved: '65536',
      used: '512',
    });
  });

  it('lie where two routing domains have the same addresses', () => {
    const blue = pool('blue', { cidr: '10.0.0.0/24', routingDomain: 'blue' });
    const own = localPool('team-a', 'own', { cidr: '10.0.0.0/24' });
    const record = held('team-a/x', 'own', '10.0.0.0/28', {
      poolRef: { kind: 'LocalIPPool', name: 'own' },
    });
    const register = registerOf({ pools: [blue, own], allocations: [record] });
    expect(register.spaces.map(space => space.id)).toEqual(['blue/4', 'team-a/default/4']);
    expect(stripsOf(register).get('b:record team-a/x')).toMatchObject({
      space: 'team-a/default/4',
      parent: 'p:LocalIPPool/team-a/own',
    });
  });
});

describe('an unreadable resource', () => {
  it('a pool is shown by its blocks, as not known', () => {
    const register = registerOf({
      allocations: [held('team-a/web', 'core', '10.1.0.0/24')],
      hasAllRecords: false,
    });
    expect(register.store.pools.get('IPPool/core')).toMatchObject({ known: false, domain: '' });
    expect(register.spaces).toMatchObject([{ id: '?/4' }]);
    expect(stripsOf(register).get('b:record team-a/web')).toMatchObject({
      state: 'held',
      parent: null,
    });
  });

  it('space without a drawn block is not known to be free', () => {
    const core = pool(
      'core',
      { cidr: '10.0.0.0/24' },
      { capacity: { total: '256', allocated: '64', available: '192', withheld: '0' } }
    );
    const register = registerOf({
      pools: [core],
      allocations: [held('team-a/web', 'core', '10.0.0.0/26')],
      hasAllRecords: false,
    });
    const unknown = [...stripsOf(register).values()].filter(strip => strip.state === 'unknown');
    expect(unknown).toMatchObject([{ from: (10n << 24n) + 64n, to: (10n << 24n) + 255n }]);
    expect(register.store.pools.get('IPPool/core')).toMatchObject({
      usageFrom: 'status',
      usage: { free: '192' },
    });
  });

  it('nothing is unknown while the lists are still being read', () => {
    const core = pool('core', { cidr: '10.0.0.0/24' });
    const register = registerOf({ pools: [core], isRead: false, hasAllRecords: false });
    expect([...stripsOf(register).values()].map(strip => strip.state)).toEqual(['carved']);
  });
});

describe('claims that wait', () => {
  const vips = pool('vips', {
    cidr: '192.0.2.0/29',
    reserved: ['192.0.2.0/30'],
    classNames: ['vips'],
  });
  const message = 'no free /31 in pool vips: the claim is bound as soon as one is released';

  it('are on the map where they ask for exactly one block', () => {
    const shut = claim('team-b/waits', { poolRef: { name: 'vips' }, cidr: '192.0.2.4/30' });
    const strips = stripsOf(registerOf({ pools: [vips], claims: [shut] }));
    expect(strips.get('w:claim team-b/waits')).toMatchObject({
      state: 'waiting',
      parent: 'p:IPPool/vips',
    });
  });

  it('state the reason, and name the pools of their candidates', () => {
    const status = {
      phase: 'Exhausted',
      conditions: waits('PoolExhausted', message),
      candidates: [{ poolRef: { kind: 'IPPool', name: 'vips' }, reason: 'NoFreeBlock', message }],
    };
    const register = registerOf({
      pools: [vips],
      claims: [claim('team-b/vip-2', { className: 'other', prefixLength: 31 }, status)],
    });
    expect(register.store.waiting.get('claim team-b/vip-2')).toMatchObject({
      reason: 'PoolExhausted',
      message,
      pools: ['IPPool/vips'],
      length: 31,
      family: 4,
    });
  });

  it.each([
    [
      'allows LocalIPPools',
      { ipFamily: 'IPv4', allowLocalPools: true },
      ['IPPool/vips', 'LocalIPPool/team-b/own'],
    ],
    ['allows none', { ipFamily: 'IPv4', allowLocalPools: false }, ['IPPool/vips']],
    ['does not say', { ipFamily: 'IPv4' }, ['IPPool/vips']],
    ['is not known', undefined, ['IPPool/vips']],
    ['is of the other family', { ipFamily: 'IPv6', allowLocalPools: true }, []],
  ])('wait at the pools that back their class, which %s', (_, spec, pools) => {
    const own = { cidr: '10.9.0.0/24', classNames: ['vips'] };
    const register = registerOf({
      pools: [vips, localPool('team-b', 'own', own), localPool('team-a', 'own', own)],
      classes: spec ? [ipClass('vips', spec)] : [],
      claims: [claim('team-b/vip', { className: 'vips', prefixLength: 31 })],
      addressClaims: [addressClaim('team-b/m1', 'IPClass', 'vips')],
    });
    expect([...register.store.waiting.values()].map(claim => claim.pools)).toEqual([pools, pools]);
  });

  it('that are bound do not wait', () => {
    const bound = claim(
      'team-a/vip',
      { poolRef: { name: 'vips' } },
      { phase: 'Bound', allocatedCIDR: '192.0.2.4/31' }
    );
    expect(registerOf({ pools: [vips], claims: [bound] }).store.waiting.size).toBe(0);
  });

  it('of Cluster API ask for one address, by a pool or by a class', () => {
    const asked = { ...addressClaim('team-a/m1', 'IPClass', 'vips') };
    asked.metadata.annotations = { 'ipam.cadastre.dev/address': '192.0.2.7' };
    const other = addressClaim('team-a/theirs', 'InClusterIPPool', 'p');
    other.spec.poolRef.apiGroup = 'ipam.cluster.x-k8s.io';
    const has = addressClaim('team-a/has', 'IPPool', 'vips', { addressRef: { name: 'has' } });
    const register = registerOf({ pools: [vips], addressClaims: [asked, other, has] });
    expect([...register.store.waiting.values()]).toMatchObject([
      {
        kind: 'IPAddressClaim',
        name: 'm1',
        cidr: '192.0.2.7/32',
        length: 32,
        pools: ['IPPool/vips'],
        reason: 'NoAnswer',
      },
    ]);
    expect(stripsOf(register).get('w:address claim team-a/m1')).toMatchObject({ state: 'waiting' });
  });
});

describe('changes', () => {
  it('concern only changed objects', () => {
    const register = new Register();
    const first = held('team-b/used', 'yard', '198.51.100.2/32');
    first.metadata.resourceVersion = '1';
    register.take(objects({ pools: [yard], allocations: [first] }));
    const changes: Change[] = [];
    register.listen(change => changes.push(change));
    const again = structuredClone(first); // listed again
    const second = held('team-b/more', 'yard', '198.51.100.8/32');
    expect(register.take(objects({ pools: [yard], allocations: [again, second] }))).toBe(true);
    const put = changes.flatMap(change => change.put.strips.map(strip => strip.id));
    expect(put).toContain('b:record team-b/more');
    expect(put).not.toContain('b:record team-b/used');
    expect(register.take(objects({ pools: [yard], allocations: [again, second] }))).toBe(false);
  });

  it('remove deleted objects', () => {
    const register = registerOf({
      pools: [yard],
      allocations: yardBlocks,
      claims: [claim('team-b/waits', { poolRef: { name: 'yard' }, cidr: '198.51.100.9/32' })],
    });
    const removed: string[] = [];
    register.listen(change => removed.push(...change.remove));
    register.take(objects({ pools: [yard], allocations: yardBlocks.slice(0, 2) }));
    expect(removed).toEqual(
      expect.arrayContaining(['b:record team-b/kept', 'w:claim team-b/waits'])
    );
    expect(register.store.pools.get('IPPool/yard').usage).toMatchObject({ held: '1', blocks: 1 });
    register.take(objects({}));
    expect(register.spaces).toEqual([]);
  });

  it('drain blocks that a pool withholds from then on', () => {
    const allocations = [held('team-b/used', 'yard', '198.51.100.2/32')];
    const register = registerOf({ pools: [yard], allocations });
    const edited = structuredClone(yard);
    edited.spec.reserved!.push('198.51.100.2');
    register.take(objects({ pools: [edited], allocations }));
    expect(statesOf(register).used).toBe('drained');
    expect(register.store.pools.get('IPPool/yard').usage.drained).toBe('1');
  });
});

describe('blocks of pools of the in-cluster provider', () => {
  it('are not those of an IPPool of the same name', () => {
    const poolRef = { kind: 'InClusterIPPool', name: 'yard' };
    const allocations = [held('team-b/vm', 'yard', '198.51.100.2/32', { poolRef })];
    const { store } = registerOf({ pools: [yard], allocations });
    expect(store.pools.get('IPPool/yard').usage).toMatchObject({ held: '0' });
    expect([...store.blocksOf('InClusterIPPool/team-b/yard')]).toHaveLength(1);
  });
});
