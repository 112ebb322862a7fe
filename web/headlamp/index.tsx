import {
  registerDetailsViewSection,
  registerRoute,
  registerSidebarEntry,
} from '@kinvolk/headlamp-plugin/lib';
import { AddressesPage } from './AddressesPage';
import { ClaimSection } from './ClaimSection';

const NAME = 'cadastre-addresses';
const PATH = '/cadastre/addresses';

registerSidebarEntry({
  parent: null,
  name: NAME,
  label: 'Addresses',
  url: PATH,
  icon: 'mdi:ip-network-outline',
});

registerRoute({
  path: PATH,
  sidebar: NAME,
  name: 'Addresses',
  exact: true,
  component: () => <AddressesPage />,
});

registerDetailsViewSection(({ resource }) => <ClaimSection resource={resource} />);
