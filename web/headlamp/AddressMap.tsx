// Makes a component of React from the map of web/map.

import { useTheme } from '@mui/material';
import { useEffect, useRef } from 'react';
import { createMap } from '../map/index.js';
import type { Change, Register, Space } from './strips';

/** Represents a row of the visible map: see web/map/rows.js. */
export interface Row {
  id: string | null;
  space: string;
  level: number;
  from: bigint;
  to: bigint;
  state: string;
  label: string;
  sub: string;
  count: number;
}

export interface LegendEntry {
  label: string;
  color: string;
  ink: string;
  edge: string;
  pattern: string;
  count: number;
}

/** Declares the functions of the map that are used. */
export interface TheMap {
  set(data: Change['put']): void;
  change(change: Change): void;
  colorBy(name: string): void;
  legend(): LegendEntry[];
  view: { space: string; from: bigint; to: bigint } | null;
  fit(id?: string, how?: { animate: boolean }): void;
  zoom(factor: number): void;
  pan(fraction: number): void;
  select(id: string | null): void;
  highlight(ids: string[]): void;
  on(name: 'select' | 'view', listener: (id: string | null) => void): void;
  visible(most?: number): Row[];
  theme: string;
  readonly canvas: HTMLCanvasElement;
  destroy(): void;
}

export interface AddressMapProps {
  register: Register;
  space: Space;
  /** For people who do not see the map. */
  label: string;
  /** The heading of the map; without it, the name of the space. */
  title?: string;
  height: number;
  /** The strip that is shown until the user moves the map; without it, all of the space. */
  home?: string | null;
  colorBy?: string;
  selected?: string | null;
  highlighted?: string[];
  onSelect?: (id: string | null) => void;
  /** Called when the view of the map has changed; not more than once in a frame. */
  onView?: (map: TheMap) => void;
  /** Called with the map when it is created, and with null when it is removed. */
  onMap?: (map: TheMap | null) => void;
}

const NONE: string[] = [];

/** Draws one routing domain, and follows the register. */
export function AddressMap(props: AddressMapProps) {
  const {
    register,
    space,
    label,
    height,
    colorBy = 'state',
    selected = null,
    highlighted = NONE,
    home = null,
  } = props;
  const theme = useTheme().palette.mode;
  const place = useRef<HTMLDivElement>(null);
  const map = useRef<TheMap | null>(null);
  const isMoved = useRef(false);
  const isQuiet = useRef(false);
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const drawn = createMap(place.current!, { theme: 'light', labels: true }) as TheMap;
    map.current = drawn;
    const { canvas } = drawn;
    canvas.setAttribute('role', 'application');
    canvas.setAttribute('aria-roledescription', 'map');
    drawn.set(titled(register.whole([space]), latest.current.title));
    const view = oncePerFrame(() => latest.current.onView?.(drawn));
    drawn.on('select', id => latest.current.onSelect?.(id));
    isMoved.current = false;
    drawn.on('view', () => {
      if (!isQuiet.current) isMoved.current = true;
      view.run();
    });
    const stop = register.listen(change => {
      const { put, remove } = only(change, space.id);
      drawn.change({ put: titled(put, latest.current.title), remove });
      view.run();
    });
    // Tab leaves the map: arrow keys move between strips.
    const leave = (event: KeyboardEvent) => event.key === 'Tab' && event.stopPropagation();
    const element = place.current!;
    element.addEventListener('keydown', leave, { capture: true });
    latest.current.onMap?.(drawn);
    view.run();
    return () => {
      stop();
      view.cancel();
      element.removeEventListener('keydown', leave, { capture: true });
      latest.current.onMap?.(null);
      map.current = null;
      drawn.destroy();
    };
    // A space with the same id counts as the same.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [register, space.id]);

  useEffect(() => {
    if (isMoved.current || !home) return;
    isQuiet.current = true;
    map.current?.fit(home);
    isQuiet.current = false;
  }, [home, register, space.id]);
  useEffect(() => {
    map.current?.canvas.setAttribute('aria-label', label);
  }, [label, register, space.id]);
  useEffect(() => {
    if (map.current) map.current.theme = theme;
    if (map.current) latest.current.onView?.(map.current);
  }, [theme, register, space.id]);
  useEffect(() => {
    map.current?.colorBy(colorBy);
    if (map.current) latest.current.onView?.(map.current);
  }, [colorBy, register, space.id]);
  useEffect(() => {
    map.current?.select(selected);
  }, [selected, register, space.id]);
  useEffect(() => {
    map.current?.highlight(highlighted);
  }, [highlighted, register, space.id]);

  return <div ref={place} style={{ height, width: '100%', overflow: 'hidden' }} />;
}

/**
 * Returns the part of a change in one space. A strip that has come from another space is only put.
 */
export function only({ put, remove }: Change, space: string): Change {
  const strips = put.strips.filter(strip => strip.space === space);
  const own = new Set(strips.map(strip => strip.id));
  return {
    put: { spaces: put.spaces.filter(({ id }) => id === space), strips },
    remove: remove.filter(id => !own.has(id)),
  };
}

function titled({ spaces, strips }: Change['put'], title: string | undefined): Change['put'] {
  return title
    ? { spaces: spaces.map(space => ({ ...space, name: title })), strips }
    : { spaces, strips };
}

function oncePerFrame(run: () => void) {
  let frame = 0;
  return {
    run: () => {
      if (frame !== 0) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        run();
      });
    },
    cancel: () => cancelAnimationFrame(frame),
  };
}
