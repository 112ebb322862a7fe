import { Box } from '@mui/material';
import { useEffect, useRef } from 'react';
import { drawSwatch } from '../map/index.js';
import { count } from '../page/words.js';
import type { TheMap } from './AddressMap';

export type LegendEntry = ReturnType<TheMap['legend']>[number];

/** Renders the meaning of colors and patterns, and the number of strips with each. */
export function Legend({ entries }: { entries: LegendEntry[] }) {
  return (
    <Box
      component="ul"
      aria-label="Legend"
      sx={{
        display: 'flex',
        flexWrap: 'wrap',
        columnGap: 2,
        rowGap: 0.5,
        listStyle: 'none',
        p: 0,
        m: 0,
        mt: 1,
      }}
    >
      {entries.map(entry => (
        <Box
          component="li"
          key={entry.label}
          sx={{ display: 'flex', alignItems: 'center', gap: 0.75 }}
        >
          <Swatch entry={entry} />
          <span>{entry.label}</span>
          {entry.count > 0 && <Box sx={{ color: 'text.secondary' }}>{count(entry.count)}</Box>}
        </Box>
      ))}
    </Box>
  );
}

const WIDTH = 26;
const HEIGHT = 14;

function Swatch({ entry }: { entry: LegendEntry }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { color, ink, pattern } = entry;
  useEffect(() => {
    if (canvas.current!.getContext('2d')) drawSwatch(canvas.current!, { color, ink, pattern });
  }, [color, ink, pattern]);
  return (
    <canvas
      ref={canvas}
      width={WIDTH * 2}
      height={HEIGHT * 2}
      style={{ width: WIDTH, height: HEIGHT }}
      aria-hidden="true"
    />
  );
}
