import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { STATES } from '../page/words.js';
import { Cluster } from '../test/fakes/cluster';
import {
  addressClaim,
  carved,
  claim,
  held,
  inClusterPool,
  pool,
  waits,
} from '../test/fakes/objects';
import { CLUSTER, installBrowser, show } from '../test/fakes/render';
import { AddressesPage } from './AddressesPage';

let cluster: Cluster;

beforeEach(() => {
  installBrowser();
  cluster = new Cluster();
  cluster.install();
  cluster.add(
    pool('core', { cidr: '10.0.0.0/16', classNames: ['nets'] }),
    pool('six', { cidr: '2001:db8::/48', routingDomain: 'lab' }),
    pool('yard', {
      cidr: '198.51.100.0/24',
      network: { prefixLength: 24, gateway: '198.51.100.1' },
    }),
    carved({ kind: 'IPPool', name: 'core' }, '10.0.0.0/16', { routingDomain: 'default' }),
    held('team-a/web', 'core', '10.0.1.0/24', { className: 'nets', project: 'shop' }),
    held('team-b/db', 'core', '10.0.2.0/24', { state: 'Retained' }),
    claim(
      'team-b/late',
      { poolRef: { name: 'core' }, prefixLength: 16 },
      { phase: 'Exhausted', conditions: waits('PoolExhausted', 'no free /16') }
    ),
    claim(
      'team-b/fine',
      { poolRef: { name: 'core' } },
      { phase: 'Bound', allocatedCIDR: '10.0.3.0/24' }
    ),
    addressClaim('team-a/machine-1', 'IPPool', 'yard')
  );
});

/** The cells of the rows of the table, without its head. */
function rows(): string[][] {
  return screen
    .getAllByRole('row')
    .slice(1)
    .map(row =>
      within(row)
        .getAllByRole('cell')
        .map(cell => cell.textContent ?? '')
    );
}

function choose(label: string, option: string) {
  fireEvent.mouseDown(screen.getByRole('combobox', { name: new RegExp(`^${label}`) }));
  fireEvent.click(screen.getByRole('option', { name: option }));
}

async function shown(text: string | RegExp) {
  await screen.findAllByText(text);
}

it('draws a map, and shows the same in a table', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  expect(screen.getByRole('application', { name: /^Map of default · IPv4/ })).toBeInstanceOf(
    HTMLCanvasElement
  );
  await waitFor(() => expect(rows().some(cells => cells[1] === STATES.free)).toBe(true));
  const found = rows();
  expect(found).toContainEqual(
    expect.arrayContaining(['10.0.1.0/24', 'held', 'core', 'IPClaim team-a/web', 'shop', 'nets'])
  );
  expect(found).toContainEqual(expect.arrayContaining(['10.0.2.0/24', 'retained']));
  expect(screen.queryByRole('alert')).toBeNull();
  expect(within(screen.getByRole('list', { name: 'Legend' })).getByText('held')).toBeTruthy();
});

it('asks for the claims that are not bound alone', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  const asked = cluster.requests.filter(url => url.includes('/ipclaims'));
  expect(asked).toEqual([
    `/clusters/${CLUSTER}/apis/ipam.cadastre.dev/v1alpha1/ipclaims?fieldSelector=status.phase%21%3DBound`,
  ]);
});

it('lists the claims that wait, of Cluster API too', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  choose('Table', 'Claims that wait');
  expect(rows().map(cells => [cells[1], cells[3]])).toEqual([
    ['waiting: PoolExhausted', 'IPClaim team-b/late'],
    ['waiting: NoAnswer', 'IPAddressClaim team-a/machine-1'],
  ]);
});

it('searches', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  choose('Table', 'Blocks of claims');
  fireEvent.change(screen.getByRole('searchbox', { name: 'Search' }), {
    target: { value: 'project:shop' },
  });
  expect(rows().map(cells => cells[0])).toEqual(['10.0.1.0/24']);
  expect(screen.getByText('1 thing found')).toBeTruthy();
  fireEvent.change(screen.getByRole('searchbox', { name: 'Search' }), {
    target: { value: '192.0.2.1' },
  });
  expect(screen.getByText('No row matches the search.')).toBeTruthy();
});

it('leads from a search to the found block', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  fireEvent.change(screen.getByRole('searchbox', { name: 'Search' }), {
    target: { value: 'team-b/db' },
  });
  fireEvent.submit(screen.getByRole('search'));
  expect(await screen.findByRole('region', { name: 'Block 10.0.2.0/24' })).toBeTruthy();
});

it('lists a pool of ranges, and each block of its record', async () => {
  const ranges = ['10.0.9.10-10.0.9.19'];
  cluster.add(
    pool('vips', { parentRef: { name: 'core' }, cidr: '10.0.9.0/24', occupies: 'Ranges', ranges }),
    carved({ kind: 'IPPool', name: 'vips' }, '10.0.9.10/31', {
      poolRef: { kind: 'IPPool', name: 'core' },
      additionalCIDRs: ['10.0.9.12/30', '10.0.9.16/30'],
    })
  );
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  choose('Table', 'Pools');
  fireEvent.click(within(screen.getByRole('table')).getByRole('button', { name: '10.0.9.0/24' }));
  const details = within(await screen.findByRole('region', { name: /^Pool vips/ }));
  expect(details.getByText('ranges of 10.0.9.0/24')).toBeTruthy();
  expect(details.getByText(/^0% of 10 addresses used in 0 blocks; 10 free/)).toBeTruthy();
  fireEvent.click(screen.getByRole('button', { name: '10.0.0.0/16' }));
  const parent = within(await screen.findByRole('region', { name: /^Pool core/ }));
  expect(parent.getByText(/^0.7% of 65,536 addresses used in 3 blocks; 65,014 free/)).toBeTruthy();
});

it('shows the pools of the in-cluster provider that Cadastre serves', async () => {
  const spec = { addresses: ['10.9.0.10-10.9.0.19'], prefix: 24 };
  const conditions = [{ type: 'Ready', status: 'True', reason: 'Ready' }];
  cluster.add(
    inClusterPool('vms', { ...spec, addresses: ['10.8.0.10'] }, { conditions }),
    inClusterPool('team-a/vms', spec, { conditions }),
    inClusterPool('team-b/theirs', spec)
  );
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  choose('Table', 'Pools');
  await shown('10.9.0.0/24');
  fireEvent.click(await screen.findByRole('button', { name: '10.8.0.0/24' }));
  const link = await screen.findByRole('link', { name: 'GlobalInClusterIPPool vms' });
  expect(link.getAttribute('href')).toContain(
    '/globalinclusterippools.ipam.cluster.x-k8s.io/-/vms'
  );
  expect(rows().filter(cells => cells[0] === '10.9.0.0/24')).toHaveLength(1);
});

it('needs no in-cluster provider', async () => {
  cluster.missing.add('inclusterippools').add('globalinclusterippools');
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  expect(screen.queryByRole('alert')).toBeNull();
});

it('describes the selected block, with links to the objects', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  fireEvent.click(screen.getByRole('button', { name: '10.0.1.0/24' }));
  const panel = await screen.findByRole('region', { name: 'Block 10.0.1.0/24' });
  const links = within(panel)
    .getAllByRole('link')
    .map(link => link.getAttribute('href'));
  expect(links).toEqual([
    `/c/${CLUSTER}/customresources/ipclaims.ipam.cadastre.dev/team-a/web`,
    `/c/${CLUSTER}/customresources/ipallocations.ipam.cadastre.dev/team-a/web-x1`,
  ]);
  fireEvent.click(within(panel).getByRole('button', { name: 'core' }));
  expect(await screen.findByRole('region', { name: 'Pool core' })).toBeTruthy();
  expect(screen.getByText(/0.7% of 65,536 addresses used in 2 blocks/)).toBeTruthy();
});

it('shows another routing domain', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  choose('Routing domain', 'lab · IPv6');
  await shown('2001:db8::/48');
  expect(screen.getByRole('application', { name: /^Map of lab · IPv6/ })).toBeTruthy();
});

it('colors by project', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  choose('Color by', 'Project');
  await waitFor(() =>
    expect(within(screen.getByRole('list', { name: 'Legend' })).getByText('shop')).toBeTruthy()
  );
});

it('follows the cluster', async () => {
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  cluster.event('ADDED', held('team-a/new', 'core', '10.0.7.0/24'));
  await shown('10.0.7.0/24');
  const gone = cluster.objects.find(object => object.metadata.name === 'web-x1')!;
  cluster.event('DELETED', gone);
  await waitFor(() => expect(screen.queryByText('10.0.1.0/24')).toBeNull());
});

describe('an unreadable resource', () => {
  it('is said in words, and the rest is shown', async () => {
    cluster.allowed.set('ippools', []);
    show(<AddressesPage />);
    await shown('10.0.1.0/24');
    expect(screen.getByRole('alert').textContent).toContain(
      'You may not list ippools in all namespaces, so pools are not shown.'
    );
    expect(screen.getByRole('application', { name: /^Map of default · IPv4/ })).toBeTruthy();
  });

  it('leaves space without a seen holder as not known', async () => {
    cluster.allowed.set('ipallocations', []);
    show(<AddressesPage />);
    await shown('10.0.0.0/16');
    expect(screen.getByRole('alert').textContent).toContain(
      'Space without a block is not known to be free.'
    );
    await waitFor(() => expect(rows().some(cells => cells[1] === STATES.unknown)).toBe(true));
    expect(rows().some(cells => cells[1] === 'free')).toBe(false);
  });

  it('leaves a page with nothing but words where nothing may be read', async () => {
    for (const resource of [
      'ippools',
      'localippools',
      'ipallocations',
      'ipclaims',
      'ipaddressclaims',
    ])
      cluster.allowed.set(resource, []);
    show(<AddressesPage />);
    await shown('There is no pool that you may read, and no block of one.');
    expect(screen.getByRole('alert').textContent).toContain(
      'You may not list ippools, localippools, ipallocations, ipclaims and ipaddressclaims'
    );
  });

  it('lies outside of the allowed namespaces of the cluster', async () => {
    cluster.allowed.set('ipallocations', ['team-a']);
    localStorage.setItem(
      `cluster_settings.${CLUSTER}`,
      JSON.stringify({ allowedNamespaces: ['team-a'] })
    );
    try {
      show(<AddressesPage />);
      await shown('10.0.1.0/24');
      expect(screen.getByRole('alert').textContent).toMatch(
        /Of localippools, ipallocations.* only those of some namespaces are read/
      );
      expect(screen.queryByText('10.0.2.0/24')).toBeNull();
    } finally {
      localStorage.clear();
    }
  });
});

it('does without Cluster API', async () => {
  cluster.missing.add('ipaddressclaims');
  show(<AddressesPage />);
  await shown('10.0.1.0/24');
  expect(screen.queryByRole('alert')).toBeNull();
});

it('states that Cadastre is not installed', async () => {
  for (const resource of [
    'ippools',
    'localippools',
    'ipallocations',
    'ipclaims',
    'ipaddressclaims',
  ])
    cluster.missing.add(resource);
  show(<AddressesPage />);
  await shown(/install Cadastre/);
});

it('names the resources that are still being read, and draws the rest', async () => {
  cluster.hanging.add('ipallocations');
  show(<AddressesPage />);
  await shown('10.0.0.0/16');
  expect(screen.getByTitle(/^Reading ipallocations/)).toBeTruthy();
});

it('shows one of several clusters', async () => {
  show(<AddressesPage />, { clusters: [CLUSTER, 'east'] });
  await shown('10.0.1.0/24');
  choose('Cluster', 'east');
  await waitFor(() =>
    expect(cluster.requests.some(url => url.startsWith('/clusters/east/'))).toBe(true)
  );
});
