// Runs the output of `npm run build` as Headlamp runs it: by its own loader, with the modules of
// Headlamp that the loader finds in pluginLib.

import * as lib from '@kinvolk/headlamp-plugin/lib';
import * as CommonComponents from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import * as Crd from '@kinvolk/headlamp-plugin/lib/Crd';
import { runPlugin } from '@kinvolk/headlamp-plugin/lib/plugin/runPlugin';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import * as MuiMaterial from '@mui/material';
import { screen } from '@testing-library/react';
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import * as React from 'react';
import * as ReactJSX from 'react/jsx-runtime';
import { Cluster } from '../test/fakes/cluster';
import { claim, held, pool } from '../test/fakes/objects';
import { CLUSTER, installBrowser, show } from '../test/fakes/render';

const BUILT = 'dist/main.js';
/** A plug-in is loaded with every page of Headlamp. */
const MOST_BYTES = 200_000;

let source: string;

beforeAll(() => {
  if (!existsSync(BUILT)) throw new Error(`${BUILT} is missing: run \`npm run build\` first`);
  source = readFileSync(BUILT, 'utf8');
  // As in lib/plugin/index.js of Headlamp, which cannot be imported without its editor.
  Object.assign(globalThis, {
    pluginLib: { ...lib, CommonComponents, Crd, MuiMaterial, React, ReactJSX },
  });
  runPlugin(
    source,
    'cadastre',
    '0.1.0',
    (error: unknown) => {
      throw error;
    },
    Function,
    [],
    []
  );
});

interface State {
  routes: { routes: Record<string, { sidebar: string; component: () => JSX.Element }> };
  sidebar: { entries: Record<string, { label: string; url: string; parent: string | null }> };
  detailsViewSection: {
    detailsViewSections: { section: (props: { resource: object }) => JSX.Element }[];
  };
}

const state = () => store.getState() as unknown as State;

it('is small, and has no path of the machine that built it', () => {
  expect(source.length).toBeLessThan(MOST_BYTES);
  expect(source).not.toContain(resolve('.'));
  expect(source).not.toContain(homedir());
  expect(source).not.toContain('node_modules');
});

it('registers the page in the sidebar', () => {
  const entry = state().sidebar.entries['cadastre-addresses'];
  expect(entry).toMatchObject({ label: 'Addresses', url: '/cadastre/addresses' });
  expect(state().routes.routes['/cadastre/addresses'].sidebar).toBe('cadastre-addresses');
});

describe('on a cluster', () => {
  beforeEach(() => {
    installBrowser();
    const cluster = new Cluster();
    cluster.install();
    cluster.add(pool('core', { cidr: '10.0.0.0/16' }), held('team-a/web', 'core', '10.0.1.0/24'));
  });

  it('shows the page', async () => {
    const Page = state().routes.routes['/cadastre/addresses'].component;
    show(<Page />);
    await screen.findAllByText('10.0.1.0/24');
    expect(screen.getByRole('application', { name: /^Map of default · IPv4/ })).toBeTruthy();
  });

  it('shows the section of a claim', async () => {
    const Section = state().detailsViewSection.detailsViewSections.at(-1)!.section;
    const status = { phase: 'Bound', allocatedCIDR: '10.0.1.0/24' };
    const object = claim('team-a/web', { poolRef: { name: 'core' } }, status);
    show(<Section resource={{ jsonData: object, cluster: CLUSTER }} />);
    expect(await screen.findByRole('application', { name: /^Map of pool core/ })).toBeTruthy();
  });
});
