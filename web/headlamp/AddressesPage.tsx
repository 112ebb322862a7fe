import { SectionBox } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Box, Button, MenuItem, TextField, Typography } from '@mui/material';
import { useCallback, useEffect, useId, useMemo, useRef, useState } from 'react';
import { thingOnMap } from '../page/list.js';
import { parse } from '../page/ranges.js';
import { homeOf } from '../page/strips.js';
import { counted, poolName, spaceName } from '../page/words.js';
import { AddressMap, type Row, type TheMap } from './AddressMap';
import { BlocksTable } from './BlocksTable';
import { Legend, type LegendEntry } from './Legend';
import { isDecided } from './readings';
import { useClusters, useRegister } from './resources';
import { keysFound, SHOWN, type Shown, thingsShown } from './rows';
import { Selected } from './Selected';
import type { Register, Space } from './strips';
import { Unread } from './Unread';

const COLOURS = {
  state: 'State',
  project: 'Project',
  holder: "Holder's kind",
  class: 'Class',
  age: 'Age',
};
const MAP_HEIGHT = 420;
/** The milliseconds without a change after which the table follows the map. */
const STILL = 150;
const ROWS = 1000;

/** Renders the page "Addresses". */
export function AddressesPage() {
  const clusters = useClusters();
  const [chosen, setChosen] = useState('');
  const cluster = clusters.includes(chosen) ? chosen : clusters[0];
  return (
    <SectionBox title="Addresses">
      {clusters.length > 1 && (
        <Choose
          label="Cluster"
          value={cluster}
          options={clusters.map(name => [name, name])}
          onChoose={setChosen}
        />
      )}
      <Addresses key={cluster} cluster={cluster} />
    </SectionBox>
  );
}

function Addresses({ cluster }: { cluster: string }) {
  const { register, readings, version } = useRegister(cluster);
  const [spaceId, setSpaceId] = useState('');
  const { spaces } = register;
  const space = spaces.find(({ id }) => id === spaceId) ?? spaces[0];
  const isRead = readings.slice(0, 3).every(isDecided);
  return (
    <>
      <Unread readings={readings} />
      {isRead && !space && (
        <Typography>There is no pool that you may read, and no block of one.</Typography>
      )}
      {space && (
        <Domain
          register={register}
          version={version}
          cluster={cluster}
          space={space}
          onSpace={setSpaceId}
        />
      )}
    </>
  );
}

interface DomainProps {
  register: Register;
  version: number;
  cluster: string;
  space: Space;
  onSpace: (id: string) => void;
}

/** Renders a routing domain: its map, the selection, and the table. */
function Domain({ register, version, cluster, space, onSpace }: DomainProps) {
  const [search, setSearch] = useState('');
  const [colorBy, setColorBy] = useState('state');
  const [selected, setSelected] = useState<string | null>(null);
  const [show, setShow] = useState<Shown>('map');
  const [sort, setSort] = useState('address');
  const { map, rows, legend, onMap, onView } = useShownRows();

  const { store } = register;
  // version changes with the store.
  const visible = useMemo(
    () => rows.map(row => thingOnMap(store, row, space.family)),
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [store, rows, space.id, version]
  );
  const things = useMemo(
    () => thingsShown(store, show, visible, { filter: search, sort }),
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [store, show, visible, search, sort, version]
  );
  // eslint-disable-next-line react-hooks/exhaustive-deps
  const found = useMemo(() => keysFound(store, search), [store, search, version]);

  // eslint-disable-next-line react-hooks/exhaustive-deps
  const roots = useMemo(() => register.strips.rootsOf(space.id), [register, space.id, version]);

  const select = (key: string) => {
    setSelected(key);
    const of = register.strips.spaceOf(key);
    if (of && of !== space.id) onSpace(of);
    else if (of) map.current?.fit(key, { animate: true });
  };
  const go = () => {
    const range = parse(search);
    if (range && range.family === space.family && map.current) {
      const around = (range.to - range.from + 1n) * 2n;
      map.current.view = { space: space.id, from: range.from - around, to: range.to + around };
    } else if (found.length > 0) {
      select(found[0]);
    }
  };

  return (
    <>
      <Box sx={{ display: 'flex', flexWrap: 'wrap', gap: 2, alignItems: 'center', mb: 1 }}>
        <Search
          value={search}
          onChange={setSearch}
          onGo={go}
          found={search.trim() ? found.length : -1}
        />
        {register.spaces.length > 1 && (
          <Choose
            label="Routing domain"
            value={space.id}
            options={register.spaces.map(other => [other.id, spaceName(other)])}
            onChoose={onSpace}
          />
        )}
        {roots.length > 1 && (
          <Choose
            label="Go to root pool"
            value=""
            options={roots.map(({ key }) => [key, poolName(key.slice(2))])}
            onChoose={select}
          />
        )}
        <Choose
          label="Color by"
          value={colorBy}
          options={Object.entries(COLOURS)}
          onChoose={setColorBy}
        />
        <MapButtons map={map} space={space} />
      </Box>
      <AddressMap
        register={register}
        space={space}
        label={`Map of ${spaceName(space)}. The table below shows the same.`}
        height={MAP_HEIGHT}
        home={homeOf(roots)?.key ?? null}
        colorBy={colorBy}
        selected={selected}
        highlighted={found}
        onSelect={setSelected}
        onMap={onMap}
        onView={onView}
      />
      <Legend entries={legend} />
      {selected && (
        <Box sx={{ mt: 2 }}>
          <Selected
            register={register}
            cluster={cluster}
            selected={selected}
            onSelect={select}
            onFilter={setSearch}
          />
        </Box>
      )}
      <Box sx={{ mt: 2 }}>
        <Choose
          label="Table"
          value={show}
          options={Object.entries(SHOWN)}
          onChoose={value => setShow(value as Shown)}
        />
        <BlocksTable
          label={SHOWN[show]}
          things={things}
          sort={sort}
          onSort={setSort}
          selected={selected}
          onSelect={select}
          empty={search.trim() ? 'No row matches the search.' : 'There is nothing to show.'}
        />
      </Box>
    </>
  );
}

/** Returns the visible part of the map, as rows, and its legend: a moment after it has changed. */
function useShownRows() {
  const map = useRef<TheMap | null>(null);
  const [rows, setRows] = useState<Row[]>([]);
  const [legend, setLegend] = useState<LegendEntry[]>([]);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => () => clearTimeout(timer.current), []);
  const onMap = useCallback((drawn: TheMap | null) => {
    map.current = drawn;
    if (!drawn) clearTimeout(timer.current);
  }, []);
  const onView = useCallback((drawn: TheMap) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      setRows(drawn.visible(ROWS));
      setLegend(drawn.legend());
    }, STILL);
  }, []);
  return { map, rows, legend, onMap, onView };
}

interface SearchProps {
  value: string;
  onChange: (text: string) => void;
  onGo: () => void;
  /** The number of things found; -1: there is no search. */
  found: number;
}

function Search({ value, onChange, onGo, found }: SearchProps) {
  return (
    <form
      role="search"
      onSubmit={event => {
        event.preventDefault();
        onGo();
      }}
    >
      <TextField
        size="small"
        type="search"
        label="Search"
        placeholder="10.2.16.77, shop, project:shop"
        value={value}
        onChange={event => onChange(event.target.value)}
        helperText={found < 0 ? ' ' : `${counted(found, 'thing')} found`}
        FormHelperTextProps={{ role: 'status' }}
        sx={{ minWidth: 280 }}
      />
    </form>
  );
}

interface ChooseProps {
  label: string;
  value: string;
  options: [string, string][];
  onChoose: (value: string) => void;
}

function Choose({ label, value, options, onChoose }: ChooseProps) {
  const id = useId();
  return (
    <TextField
      select
      id={id}
      size="small"
      label={label}
      value={value}
      onChange={event => onChoose(event.target.value)}
      sx={{ minWidth: 140 }}
    >
      {options.map(([option, text]) => (
        <MenuItem key={option} value={option}>
          {text}
        </MenuItem>
      ))}
    </TextField>
  );
}

function MapButtons({ map, space }: { map: { current: TheMap | null }; space: Space }) {
  return (
    <Box role="group" aria-label="Map" sx={{ display: 'flex', gap: 0.5 }}>
      <Button size="small" variant="outlined" onClick={() => map.current?.zoom(2)}>
        Zoom in
      </Button>
      <Button size="small" variant="outlined" onClick={() => map.current?.zoom(0.5)}>
        Zoom out
      </Button>
      <Button
        size="small"
        variant="outlined"
        onClick={() => map.current?.fit(space.id, { animate: true })}
      >
        All
      </Button>
    </Box>
  );
}
