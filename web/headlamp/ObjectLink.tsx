import { Link } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { CLUSTER_API_GROUP, GROUP } from './objects';

const CRDS: Record<string, string> = {
  IPPool: `ippools.${GROUP}`,
  LocalIPPool: `localippools.${GROUP}`,
  InClusterIPPool: `inclusterippools.${CLUSTER_API_GROUP}`,
  GlobalInClusterIPPool: `globalinclusterippools.${CLUSTER_API_GROUP}`,
  IPClaim: `ipclaims.${GROUP}`,
  IPAllocation: `ipallocations.${GROUP}`,
  IPAddressClaim: `ipaddressclaims.${CLUSTER_API_GROUP}`,
};

export interface ObjectName {
  kind: string;
  namespace?: string;
  name: string;
}

/** Renders a link to an object's page in Headlamp, or its name if it has no page. */
export function ObjectLink({ object, cluster }: { object: ObjectName; cluster: string }) {
  const { kind, namespace, name } = object;
  const text = `${kind} ${namespace ? `${namespace}/` : ''}${name}`;
  const crd = CRDS[kind];
  if (!crd) return <>{text}</>;
  // Headlamp has "-" for the namespace of objects without one.
  const params = { crd, namespace: namespace || '-', crName: name };
  return (
    <Link routeName="customresource" params={params} activeCluster={cluster}>
      {text}
    </Link>
  );
}
