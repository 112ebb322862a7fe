import { addressClaim, carved, held, inClusterPool, pool } from '../test/fakes/objects';
import { objects, registerOf, stripsOf } from '../test/fakes/registers';

const spec = {
  addresses: ['10.0.0.30-10.0.0.39', '10.0.0.16/29', '10.0.0.5'],
  excludedAddresses: ['10.0.0.34', '10.0.0.200'],
  prefix: 24,
  gateway: '10.0.0.16',
};
const status = {
  ipAddresses: { total: 17, free: 16, used: 2, outOfRange: 1 },
  conditions: [{ type: 'Ready', status: 'True', reason: 'Ready' }],
};
const vms = inClusterPool('team-a/vms', spec, status);
const poolRef = { kind: 'InClusterIPPool', name: 'vms' };

it('holds its addresses that are not excluded', () => {
  const register = registerOf({
    inClusterPools: [vms],
    allocations: [
      held('team-a/vm', 'vms', '10.0.0.17/32', { poolRef }),
      held('team-a/beside', 'vms', '10.0.0.34/32', { poolRef }),
    ],
  });
  expect(register.store.pools.get('InClusterIPPool/team-a/vms')).toMatchObject({
    kind: 'InClusterIPPool',
    known: true,
    domain: 'team-a/default',
    cidr: '10.0.0.0/24',
    first: '10.0.0.5',
    last: '10.0.0.39',
    phase: 'Ready',
    usage: { total: '18', free: '16', held: '2', drained: '1', withheld: '1', blocks: 2 },
  });
  const spans = [...stripsOf(register).values()].filter(strip => strip.kind === 'span');
  expect(spans.map(({ from, to, label }) => `${from & 0xffn}-${to & 0xffn} ${label}`)).toEqual([
    '6-15 not of this pool',
    '24-29 not of this pool',
    '34-34 not of this pool',
    '16-16 gateway',
  ]);
});

it('has the usage of its status if not all records can be read', () => {
  const { store } = registerOf({ inClusterPools: [vms], hasAllRecords: false });
  expect(store.pools.get('InClusterIPPool/team-a/vms')).toMatchObject({
    usageFrom: 'status',
    usage: { total: '17', free: '16', held: '2', withheld: '0', drained: '1', blocks: 2 },
  });
});

it('lies in the routing domain that its annotation names', () => {
  const metadata = { name: 'all', annotations: { 'ipam.cadastre.dev/routing-domain': 'lab' } };
  const register = registerOf({
    inClusterPools: [{ metadata, spec: { addresses: ['2001:db8::10/126'], prefix: 64 }, status }],
    allocations: [
      carved({ kind: 'GlobalInClusterIPPool', name: 'all' }, '2001:db8::10/126', {
        routingDomain: 'lab',
      }),
    ],
  });
  expect(register.spaces.map(space => space.id)).toEqual(['lab/6']);
  expect(register.store.pools.get('GlobalInClusterIPPool/all')).toMatchObject({
    cidr: '2001:db8::/64',
    visibility: 'Shared',
    usage: { total: '4', free: '4' },
  });
});

it('is not shown while Cadastre does not serve it', () => {
  const register = registerOf({ inClusterPools: [inClusterPool('team-a/vms', spec)] });
  expect(register.store.pools.size).toBe(0);
  expect(register.take(objects({ inClusterPools: [vms] }))).toBe(true);
  expect([...register.store.pools.keys()]).toEqual(['InClusterIPPool/team-a/vms']);
});

it.each([
  ['Ready', 'Ready'],
  ['Full', 'Exhausted'],
  ['Paused', 'Paused'],
  ['ProviderRunning', 'Paused'],
  ['Terminating', 'Terminating'],
  ['InvalidSpec', 'Pending'],
])('with the reason %s has the phase %s', (reason, phase) => {
  const conditions = [{ type: 'Ready', status: 'False', reason, message: 'why' }];
  const { store } = registerOf({
    inClusterPools: [inClusterPool('team-a/vms', spec, { conditions })],
  });
  expect(store.pools.get('InClusterIPPool/team-a/vms')).toMatchObject({ phase, message: 'why' });
});

describe('claims that wait', () => {
  const asks = (name: string, kind = 'InClusterIPPool', poolName = 'vms') => {
    const asked = addressClaim(`team-a/${name}`, kind, poolName);
    asked.spec.poolRef.apiGroup = 'ipam.cluster.x-k8s.io';
    return asked;
  };
  const paused = (reason: string) => {
    const conditions = [{ type: 'Ready', status: 'False', reason }];
    return inClusterPool('team-a/vms', spec, { conditions });
  };

  it.each([
    ['are shown at the pool that they name', [vms], ['waits']],
    ['are shown while the pool is paused', [paused('Paused')], ['waits']],
    ['are left to the provider while it runs', [paused('ProviderRunning')], []],
    ['are left to the provider if Cadastre does not serve the pool', [], []],
  ])('%s', (_, inClusterPools, names) => {
    const { store } = registerOf({
      pools: [pool('vms', { cidr: '10.0.0.0/24' })],
      inClusterPools,
      addressClaims: [
        asks('waits'),
        { ...asks('has'), status: { addressRef: { name: 'has' } } },
        asks('of-another-kind', 'IPPool'),
        addressClaim('team-a/of-another-group', 'InClusterIPPool', 'vms'),
      ],
    });
    const waiting = [...store.waiting.values()];
    expect(waiting.map(claim => claim.name)).toEqual(names);
    for (const claim of waiting) {
      expect(claim).toMatchObject({ length: 32, pools: ['InClusterIPPool/team-a/vms'] });
    }
  });
});
