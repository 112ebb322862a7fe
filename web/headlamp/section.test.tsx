import { screen, waitFor, within } from '@testing-library/react';
import { STATES } from '../page/words.js';
import { Cluster } from '../test/fakes/cluster';
import { addressClaim, claim, held, localPool, pool, waits } from '../test/fakes/objects';
import { CLUSTER, installBrowser, show } from '../test/fakes/render';
import { ClaimSection } from './ClaimSection';

const NO_BLOCK = 'no free /31 in pool vips: the claim is bound as soon as one is released';

let cluster: Cluster;

beforeEach(() => {
  installBrowser();
  cluster = new Cluster();
  cluster.install();
  cluster.add(
    pool('vips', { cidr: '192.0.2.0/29', parentRef: { name: 'core' }, reserved: ['192.0.2.0/30'] }),
    localPool('team-a', 'lab', { cidr: '10.7.0.0/24' }),
    held('team-a/vip', 'vips', '192.0.2.4/31', {
      className: 'vips',
      project: 'shop',
      requestedBy: 'ann',
    }),
    held('team-b/vip', 'vips', '192.0.2.6/31'),
    held('team-a/machine', 'vips', '192.0.2.3/32', { claimKind: 'IPAddressClaim' }),
    held('team-a/bench', 'lab', '10.7.0.0/26', { poolRef: { kind: 'LocalIPPool', name: 'lab' } })
  );
});

const bound = {
  phase: 'Bound',
  allocatedCIDR: '192.0.2.4/31',
  poolRef: { kind: 'IPPool', name: 'vips' },
};

function showSection(object: object) {
  return show(<ClaimSection resource={{ jsonData: object, cluster: CLUSTER }} />);
}

function factsShown(): Record<string, string> {
  const names = screen.getAllByRole('term').map(element => element.textContent!);
  const values = screen.getAllByRole('definition').map(element => element.textContent!);
  return Object.fromEntries(names.map((name, i) => [name, values[i]]));
}

/** The rows of the table below the map, when a block is among them. */
async function rowsAround(name: string, block: string): Promise<string[][]> {
  const table = await screen.findByRole('table', { name: `Blocks of pool ${name} around it` });
  await within(table).findAllByText(block);
  const rows = within(table).getAllByRole('row').slice(1);
  return rows.map(row =>
    within(row)
      .getAllByRole('cell')
      .map(cell => cell.textContent ?? '')
  );
}

it('shows the block of an IPClaim, its pool and the blocks around it', async () => {
  showSection(claim('team-a/vip', { poolRef: { name: 'vips' } }, bound));
  const rows = await rowsAround('vips', '192.0.2.6/31');
  expect(rows.map(cells => [cells[0], cells[1], cells[3]])).toEqual(
    expect.arrayContaining([
      ['192.0.2.4/31', 'held', 'IPClaim team-a/vip'],
      ['192.0.2.6/31', 'held', 'IPClaim team-b/vip'],
    ])
  );
  expect(factsShown()).toEqual({
    Block: '192.0.2.4/31',
    Pool: 'IPPool vips',
    Class: 'vips',
    Project: 'shop',
    'Requested by': 'ann',
    Record: 'IPAllocation team-a/vip-x1',
  });
  expect(screen.getByRole('link', { name: 'IPPool vips' }).getAttribute('href')).toBe(
    `/c/${CLUSTER}/customresources/ippools.ipam.cadastre.dev/-/vips`
  );
  expect(screen.getByRole('application', { name: /^Map of pool vips/ })).toBeTruthy();
  expect(screen.queryByRole('alert')).toBeNull();
  const selected = screen.getAllByRole('row', { selected: true });
  expect(selected).toHaveLength(1);
  expect(selected[0].textContent).toContain('team-a/vip');
});

it('reads the blocks of the pool alone', async () => {
  showSection(claim('team-a/vip', { poolRef: { name: 'vips' } }, bound));
  await rowsAround('vips', '192.0.2.6/31');
  const lists = cluster.requests.filter(url => url.includes('/ipallocations'));
  expect(lists.length).toBeGreaterThan(0);
  for (const url of lists)
    expect(url).toMatch(/fieldSelector=spec\.(poolRef\.name%3Dvips|claimRef\.name%3Dvip)$/);
});

it('shows the address of an IPAddressClaim', async () => {
  showSection(
    addressClaim('team-a/machine', 'IPClass', 'machines', { addressRef: { name: 'machine' } })
  );
  await rowsAround('vips', '192.0.2.6/31');
  expect(factsShown()).toMatchObject({ Block: '192.0.2.3/32', Pool: 'IPPool vips' });
});

it('takes the record of the claim of that kind, where another has its name', async () => {
  cluster.add(held('team-a/both', 'vips', '192.0.2.2/32'));
  const other = held('team-a/both', 'vips', '192.0.2.1/32', { claimKind: 'IPAddressClaim' });
  other.metadata.uid = 'record of the other';
  cluster.add(other);
  showSection(addressClaim('team-a/both', 'IPPool', 'vips', { addressRef: { name: 'both' } }));
  await rowsAround('vips', '192.0.2.6/31');
  expect(factsShown()).toMatchObject({ Block: '192.0.2.1/32' });
});

it('shows a claim of a LocalIPPool', async () => {
  const status = {
    phase: 'Bound',
    allocatedCIDR: '10.7.0.0/26',
    poolRef: { kind: 'LocalIPPool', name: 'lab' },
  };
  showSection(claim('team-a/bench', { poolRef: { kind: 'LocalIPPool', name: 'lab' } }, status));
  await rowsAround('lab', '10.7.0.0/26');
  expect(screen.getByRole('link', { name: 'LocalIPPool team-a/lab' }).getAttribute('href')).toBe(
    `/c/${CLUSTER}/customresources/localippools.ipam.cadastre.dev/team-a/lab`
  );
});

it('states why a claim waits, for each pool that could serve it', async () => {
  const candidates = [
    { poolRef: { kind: 'IPPool', name: 'vips' }, reason: 'NoFreeBlock', message: NO_BLOCK },
  ];
  const status = {
    phase: 'Exhausted',
    conditions: waits('PoolExhausted', NO_BLOCK),
    candidates,
    candidatesOmitted: 3,
  };
  showSection(claim('team-b/vip-2', { className: 'vips', prefixLength: 31 }, status));
  const table = await screen.findByRole('table', { name: 'Pools that could serve it' });
  expect(
    within(table)
      .getAllByRole('cell')
      .map(cell => cell.textContent)
  ).toEqual(['IPPool vips', 'NoFreeBlock', NO_BLOCK]);
  expect(screen.getByText('PoolExhausted')).toBeTruthy();
  expect(screen.getByText('3 more are not listed.')).toBeTruthy();
  await rowsAround('vips', '192.0.2.6/31');
});

it('shows the block that a claim waits for, and its holder', async () => {
  const status = {
    phase: 'Exhausted',
    conditions: waits('InUse', '192.0.2.6/31 is held by IPClaim team-b/vip'),
  };
  showSection(claim('team-a/wants', { poolRef: { name: 'vips' }, cidr: '192.0.2.6/31' }, status));
  const rows = await rowsAround('vips', '192.0.2.6/31');
  expect(rows.map(cells => [cells[0], cells[1]])).toContainEqual([
    '192.0.2.6/31',
    'waiting: InUse',
  ]);
  expect(screen.getByText(/It waits for exactly 192.0.2.6\/31/)).toBeTruthy();
});

it('shows an IPAddressClaim without answer', async () => {
  showSection(addressClaim('team-a/new', 'IPPool', 'vips'));
  expect(await screen.findByText('NoAnswer')).toBeTruthy();
});

describe('an unreadable resource', () => {
  it('leaves the blocks of the namespace, where others may not be listed', async () => {
    cluster.allowed.set('ipallocations', ['team-a']);
    showSection(claim('team-a/vip', { poolRef: { name: 'vips' } }, bound));
    const rows = await rowsAround('vips', '192.0.2.6/31');
    const blocks = rows.filter(cells => cells[1].startsWith('held')).map(cells => cells[3]);
    expect(blocks).toEqual(['IPAddressClaim team-a/machine', 'IPClaim team-a/vip']);
    expect(rows.some(cells => cells[1] === STATES.unknown)).toBe(true);
    expect(screen.getByRole('alert').textContent).toContain(
      'You may not list the blocks of all namespaces.'
    );
  });

  it('leaves the status of the claim, if no record can be read', async () => {
    cluster.allowed.set('ipallocations', []);
    cluster.allowed.set('ippools', []);
    showSection(claim('team-a/vip', { poolRef: { name: 'vips' } }, bound));
    await screen.findByText('No block of this pool can be shown.');
    expect(factsShown()).toEqual({ Block: '192.0.2.4/31', Pool: 'IPPool vips' });
    const alerts = screen.getAllByRole('alert').map(alert => alert.textContent);
    expect(alerts[0]).toContain('You may not list IPAllocations in namespace team-a');
    expect(alerts[1]).toContain('Pool vips does not exist, or you may not read it: ');
  });

  it('leaves the blocks of a pool that may not be read', async () => {
    cluster.allowed.set('ippools', []);
    showSection(claim('team-a/vip', { poolRef: { name: 'vips' } }, bound));
    const rows = await rowsAround('vips', '192.0.2.6/31');
    expect(rows.map(cells => cells[0])).toContain('192.0.2.6/31');
  });
});

it('states that a record is missing', async () => {
  showSection(
    claim('team-a/lost', { poolRef: { name: 'vips' } }, { ...bound, allocatedCIDR: '192.0.2.2/31' })
  );
  await waitFor(() =>
    expect(screen.getByText(/No IPAllocation of this claim is found/)).toBeTruthy()
  );
});

it.each([
  ['a pod', { kind: 'Pod', apiVersion: 'v1', metadata: { name: 'x' } }],
  [
    'an IPClaim of another group',
    { kind: 'IPClaim', apiVersion: 'example.com/v1', metadata: { name: 'x' }, spec: {} },
  ],
  [
    'an IPAddressClaim of another provider',
    {
      ...addressClaim('a/b', 'InClusterIPPool', 'p'),
      spec: { poolRef: { apiGroup: 'ipam.cluster.x-k8s.io', kind: 'InClusterIPPool', name: 'p' } },
    },
  ],
  ['nothing', undefined],
])('is empty for %s', (_, object) => {
  const { container } = show(
    <ClaimSection resource={object ? { jsonData: object, cluster: CLUSTER } : null} />
  );
  expect(container.textContent).toBe('');
  expect(cluster.requests).toEqual([]);
});
