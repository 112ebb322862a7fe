import { Loader } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Alert, Box, Typography } from '@mui/material';
import { useEffect, useMemo, useRef, useState } from 'react';
import { arrange, thingOnMap } from '../page/list.js';
import { rangeOf } from '../page/ranges.js';
import { AddressMap, type Row, type TheMap } from './AddressMap';
import { type Claim, poolIdFor, type Standing } from './around';
import { BlocksTable } from './BlocksTable';
import { poolOf } from './claims';
import type { AllocationObject, PoolObject, PoolReference } from './objects';
import { isDecided, isWhole, type Listed, readingOf } from './readings';
import { IPAllocation, IPPool, LocalIPPool, objectsOf } from './resources';
import { Register } from './strips';

const MAP_HEIGHT = 180;
const ROWS = 50;

interface AroundProps {
  claim: Claim;
  standing: Standing;
  pool: PoolReference;
  cluster: string;
}

/**
 * Renders the pool of a claim on a small map, with the blocks around the one that it has or asks
 * for.
 */
export function AroundBlock(props: AroundProps) {
  const { pool, cluster } = props;
  const listed = IPAllocation.useList({ cluster, fieldSelector: `spec.poolRef.name=${pool.name}` });
  const { state } = readingOf('ipallocations', listed);
  if (state === 'forbidden') return <AroundInNamespace {...props} />;
  return <Around {...props} records={listed} />;
}

/**
 * Renders the same with the blocks of the claim's namespace alone, for users who can list no
 * others.
 */
function AroundInNamespace(props: AroundProps) {
  const { namespace } = props.claim.object.metadata;
  const { pool, cluster } = props;
  const listed = IPAllocation.useList({
    cluster,
    namespace,
    fieldSelector: `spec.poolRef.name=${pool.name}`,
  });
  return <Around {...props} records={listed} />;
}

function Around({
  claim,
  standing,
  pool,
  cluster,
  records,
}: AroundProps & { records: Listed<unknown> }) {
  const { namespace } = claim.object.metadata;
  const isLocal = pool.kind === 'LocalIPPool';
  const [found, error] = (isLocal ? LocalIPPool : IPPool).useGet(
    pool.name,
    isLocal ? namespace : undefined,
    {
      cluster,
    }
  );
  const id = poolIdFor(pool, claim);
  const reading = readingOf('ipallocations', records);
  const object = (found?.jsonData ?? null) as PoolObject | null;
  const isRead = isDecided(reading) && (object !== null || error !== null);
  const register = useMemo(() => new Register(), []);
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const waiting = standing.asked ? [claim] : [];
    const changed = register.take({
      pools: object ? [alone(object)] : [],
      inClusterPools: [],
      allocations: objectsOf<AllocationObject>(records).filter(record => poolOf(record) === id),
      claims: waiting.flatMap(one => (one.kind === 'IPClaim' ? [one.object] : [])),
      addressClaims: waiting.flatMap(one => (one.kind === 'IPAddressClaim' ? [one.object] : [])),
      classes: [],
      isRead,
      hasAllRecords: isWhole(reading),
    });
    if (changed) setVersion(before => before + 1);
  });
  if (!isRead) return <Loader title={`Reading pool ${pool.name}`} />;
  return (
    <Box sx={{ mt: 2 }}>
      {!object && (
        <Alert severity="info">{`Pool ${pool.name} does not exist, or you may not read it${
          error ? `: ${error.message}` : ''
        }. Its blocks are shown as far as you may read them.`}</Alert>
      )}
      {object && !isWhole(reading) && (
        <Alert severity="info">
          You may not list the blocks of all namespaces. What no block is drawn for is not known to
          be free.
        </Alert>
      )}
      <SmallMap
        register={register}
        version={version}
        pool={pool}
        standing={standing}
        claim={claim}
      />
    </Box>
  );
}

/** Returns a pool without its parent, which is not read here. */
function alone(pool: PoolObject): PoolObject {
  return pool.spec.parentRef ? { ...pool, spec: { ...pool.spec, parentRef: undefined } } : pool;
}

interface SmallMapProps {
  register: Register;
  version: number;
  pool: PoolReference;
  standing: Standing;
  claim: Claim;
}

function SmallMap({ register, version, pool, standing, claim }: SmallMapProps) {
  const [rows, setRows] = useState<Row[]>([]);
  const [sort, setSort] = useState('address');
  const [selected, setSelected] = useState<string | null>(null);
  const map = useRef<TheMap | null>(null);
  const [space] = register.spaces;
  const spaceId = space?.id;
  const target = standing.cidr || standing.asked;
  const { store } = register;
  const key = keyOfClaim(register, claim);
  const shown = useRef('');
  useEffect(() => {
    const range = target ? rangeOf(target) : null;
    const now = `${spaceId} ${target}`;
    // Once: after that the user moves the map.
    if (!range || !map.current || !spaceId || shown.current === now) return;
    shown.current = now;
    // The block, and seven times its size on either side.
    const around = (range.to - range.from + 1n) * 7n;
    map.current.view = { space: spaceId, from: range.from - around, to: range.to + around };
  }, [spaceId, target]);
  useEffect(() => setSelected(key), [key]);
  const things = useMemo(
    () =>
      space
        ? arrange(
            rows.map(row => thingOnMap(store, row, space.family)),
            { sort }
          )
        : [],
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [store, rows, spaceId, sort, version]
  );
  if (!space) return <Typography>No block of this pool can be shown.</Typography>;
  return (
    <>
      <AddressMap
        register={register}
        space={space}
        title={`Pool ${pool.name}`}
        label={`Map of pool ${pool.name}. The table below shows the same.`}
        height={MAP_HEIGHT}
        selected={selected}
        onSelect={setSelected}
        onMap={drawn => (map.current = drawn)}
        onView={drawn => setRows(drawn.visible(ROWS))}
      />
      <BlocksTable
        label={`Blocks of pool ${pool.name} around it`}
        things={things}
        sort={sort}
        onSort={setSort}
        selected={selected}
        onSelect={setSelected}
        empty="There is nothing to show."
      />
    </>
  );
}

/** Returns the key of the block of a claim, or of the waiting claim; null if neither is shown. */
function keyOfClaim({ store }: Register, { kind, object }: Claim): string | null {
  const { name, namespace } = object.metadata;
  for (const block of store.blocks.values()) {
    if (
      block.holderKind === kind &&
      block.holderName === name &&
      block.holderNamespace === namespace
    ) {
      return `b:${block.id}`;
    }
  }
  for (const claim of store.waiting.values()) {
    if (claim.kind === kind && claim.name === name && claim.namespace === namespace)
      return `w:${claim.id}`;
  }
  return null;
}
