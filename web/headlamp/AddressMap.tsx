// Makes a component of React from the map of web/map.

import { useTheme } from '@mui/material';
import { useEffect, useRef } from 'react';
import { createMap } from '../map/index.js';
import { partIn } from '../page/strips.js';
import type { Change, Register, Space } from './strips';

export type TheMap = ReturnType<typeof createMap>;
export type { Row } from '../map/rows.js';

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
    const drawn = createMap(place.current!, { theme: 'light' });
    map.current = drawn;
    drawn.set(titled(register.whole([space]), latest.current.title));
    const view = oncePerFrame(() => latest.current.onView?.(drawn));
    drawn.on('select', id => latest.current.onSelect?.(id));
    isMoved.current = false;
    drawn.on('view', () => {
      if (!isQuiet.current) isMoved.current = true;
      view.run();
    });
    const stop = register.listen(change => {
      const { put, remove } = partIn(space.id, change);
      drawn.change({ put: titled(put, latest.current.title), remove });
      view.run();
    });
    latest.current.onMap?.(drawn);
    view.run();
    return () => {
      stop();
      view.cancel();
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
