// Writes CSV according to RFC 4180, safe to open in a spreadsheet.

const FORMULA = /^[=+\-@\t\r]/

/**
 * Writes one cell. A spreadsheet takes a cell that begins with = + - @ or a tab for a formula, so
 * the cell gets an apostrophe at its beginning.
 */
export function cell(value) {
  const text = FORMULA.test(value) ? `'${value}` : value
  return /[",\r\n\t']/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/**
 * Writes rows as CSV, in parts of a bounded size.
 * @template Row
 * @param {{label: string, value: (row: Row) => string}[]} columns
 * @param {Iterable<Row>} rows
 * @param {number} [rowsOfPart] the number of rows of a part
 * @returns {Generator<string>} the header line is in the first part
 */
export function* csv(columns, rows, rowsOfPart = 2000) {
  let lines = [columns.map((column) => cell(column.label)).join(',')]
  for (const row of rows) {
    if (lines.length >= rowsOfPart) {
      yield `${lines.join('\r\n')}\r\n`
      lines = []
    }
    lines.push(columns.map((column) => cell(column.value(row))).join(','))
  }
  yield `${lines.join('\r\n')}\r\n`
}
