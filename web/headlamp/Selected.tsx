import { Alert, Box, Typography } from '@mui/material';
import { Fragment } from 'react';
import { describe, type Part } from '../page/facts.js';
import { Choice } from './BlocksTable';
import { ObjectLink } from './ObjectLink';
import { objectsAt } from './rows';
import type { Register } from './strips';

interface SelectedProps {
  register: Register;
  cluster: string;
  selected: string;
  onSelect: (key: string) => void;
  onFilter: (filter: string) => void;
}

/** Renders the description of the selection. */
export function Selected({ register, cluster, selected, onSelect, onFilter }: SelectedProps) {
  const described = describe(register.store, selected, Date.now());
  if (!described) {
    return <Typography>What was selected is not there any more.</Typography>;
  }
  const { kind, title, stateText, facts, notes, usage, commands } = described;
  const objects = objectsAt(register.store, selected);
  return (
    <Box component="section" aria-label={`${kind} ${title}`}>
      <Typography variant="h6" component="h2">
        {kind} {title}
        {stateText && (
          <Box component="span" sx={{ color: 'text.secondary' }}>{`, ${stateText}`}</Box>
        )}
      </Typography>
      {notes.map(note => (
        <Alert key={note} severity="info" sx={{ my: 1 }}>
          {note}
        </Alert>
      ))}
      {usage && <Typography>{usage.text}</Typography>}
      <Facts>
        {objects.length > 0 && (
          <Fact label={objects.length > 1 ? 'Objects' : 'Object'}>
            {objects.map(object => (
              <div key={object.kind}>
                <ObjectLink object={object} cluster={cluster} />
              </div>
            ))}
          </Fact>
        )}
        {facts.map(([label, parts, form]) => (
          <Fact key={label} label={label}>
            {parts.map((part, i) => (
              <Fragment key={i}>
                {form === 'list' ? <div>{partOf(part)}</div> : <>{partOf(part)} </>}
              </Fragment>
            ))}
          </Fact>
        ))}
        {commands.length > 0 && (
          <Fact label={commands.length > 1 ? 'Commands' : 'Command'}>
            {commands.map(command => (
              <div key={command}>
                <code>{command}</code>
              </div>
            ))}
          </Fact>
        )}
      </Facts>
    </Box>
  );

  function partOf(part: Part) {
    if (typeof part === 'string') return part;
    if (part.to) return <Choice text={part.text} onChoose={() => onSelect(part.to!)} />;
    if (part.filter) return <Choice text={part.text} onChoose={() => onFilter(part.filter!)} />;
    return part.text;
  }
}

/** Renders names and values below each other. */
export function Facts({ children }: { children: React.ReactNode }) {
  return (
    <Box
      component="dl"
      sx={{
        display: 'grid',
        gridTemplateColumns: 'minmax(8rem, max-content) 1fr',
        columnGap: 2,
        rowGap: 0.5,
        m: 0,
        mt: 1,
      }}
    >
      {children}
    </Box>
  );
}

export function Fact({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <>
      <Box component="dt" sx={{ color: 'text.secondary' }}>
        {label}
      </Box>
      <Box component="dd" sx={{ m: 0, overflowWrap: 'anywhere' }}>
        {children}
      </Box>
    </>
  );
}
