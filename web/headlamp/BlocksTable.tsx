import {
  Table,
  TableBody,
  TableCell,
  TableContainer,
  TableHead,
  TablePagination,
  TableRow,
  TableSortLabel,
} from '@mui/material';
import { useEffect, useState } from 'react';
import { COLUMNS, rowOf, type Thing } from './rows';

const PAGE = 25;
const SIZES = [25, 100, 500];

interface BlocksTableProps {
  label: string;
  things: Thing[];
  sort: string;
  onSort: (sort: string) => void;
  selected: string | null;
  onSelect: (key: string) => void;
  empty: string;
}

/** Renders the table beside the map: the content of the map as text. */
export function BlocksTable({
  label,
  things,
  sort,
  onSort,
  selected,
  onSelect,
  empty,
}: BlocksTableProps) {
  const [page, setPage] = useState(0);
  const [size, setSize] = useState(PAGE);
  const last = Math.max(0, Math.ceil(things.length / size) - 1);
  useEffect(() => setPage(0), [label, sort]);
  const shown = Math.min(page, last);
  const rows = things.slice(shown * size, (shown + 1) * size).map(rowOf);
  return (
    <>
      <TableContainer>
        <Table size="small" aria-label={label}>
          <TableHead>
            <TableRow>
              {COLUMNS.map(column => (
                <Header
                  key={column.id}
                  id={column.id}
                  label={column.label}
                  sort={sort}
                  onSort={onSort}
                />
              ))}
            </TableRow>
          </TableHead>
          <TableBody>
            {rows.map(({ key, cells }) => (
              <TableRow
                key={key}
                hover
                selected={key === selected}
                aria-selected={key === selected}
              >
                {cells.map((text, i) => (
                  <TableCell key={COLUMNS[i].id}>
                    {i === 0 && !key.startsWith('r:') ? (
                      <Choice text={text || 'no addresses yet'} onChoose={() => onSelect(key)} />
                    ) : (
                      text
                    )}
                  </TableCell>
                ))}
              </TableRow>
            ))}
            {rows.length === 0 && (
              <TableRow>
                <TableCell colSpan={COLUMNS.length}>{empty}</TableCell>
              </TableRow>
            )}
          </TableBody>
        </Table>
      </TableContainer>
      <TablePagination
        component="div"
        count={things.length}
        page={shown}
        rowsPerPage={size}
        rowsPerPageOptions={SIZES}
        onPageChange={(_, to) => setPage(to)}
        onRowsPerPageChange={event => setSize(Number(event.target.value))}
      />
    </>
  );
}

interface HeaderProps {
  id: string;
  label: string;
  sort: string;
  onSort: (sort: string) => void;
}

function Header({ id, label, sort, onSort }: HeaderProps) {
  const isSorted = sort.replace(/^-/, '') === id;
  const direction = isSorted && sort.startsWith('-') ? 'desc' : 'asc';
  return (
    <TableCell sortDirection={isSorted ? direction : false}>
      <TableSortLabel
        active={isSorted}
        direction={direction}
        onClick={() => onSort(sort === id ? `-${id}` : id)}
      >
        {label}
      </TableSortLabel>
    </TableCell>
  );
}

/** Renders a text that selects its object. */
export function Choice({ text, onChoose }: { text: string; onChoose: () => void }) {
  return (
    <button
      type="button"
      onClick={onChoose}
      style={{
        font: 'inherit',
        color: 'inherit',
        background: 'none',
        border: 0,
        padding: 0,
        cursor: 'pointer',
        textDecoration: 'underline',
        textAlign: 'left',
      }}
    >
      {text}
    </button>
  );
}
