import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cell, csv } from '../../page/csv.js'

const CELLS = {
  'plain text is left as it is': ['10.0.0.0/24', '10.0.0.0/24'],
  'a comma is quoted': ['a,b', '"a,b"'],
  'a quote is doubled': ['a"b', '"a""b"'],
  'a line break is quoted': ['a\nb', '"a\nb"'],
  'a formula gets an apostrophe': ['=HYPERLINK("x")', `"'=HYPERLINK(""x"")"`],
  'plus': ['+1', `"'+1"`],
  'minus': ['-1', `"'-1"`],
  'at': ['@SUM(A1)', `"'@SUM(A1)"`],
  'a tab': ['\t=1', `"'\t=1"`],
  'a carriage return': ['\r=1', `"'\r=1"`],
  'an empty cell': ['', ''],
  'a sign within the text is left': ['a=b', 'a=b'],
}
for (const [name, [value, want]] of Object.entries(CELLS)) {
  test(`cell: ${name}`, () => assert.equal(cell(value), want))
}

test('a file has a header and a line for each row, in parts', () => {
  const columns = [{ label: 'N', value: (n) => String(n) }, { label: '=D', value: (n) => String(2 * n) }]
  const parts = [...csv(columns, [1, 2, 3, 4, 5], 3)]
  assert.equal(parts.length, 2)
  assert.equal(parts.join(''), `N,"'=D"\r\n1,2\r\n2,4\r\n3,6\r\n4,8\r\n5,10\r\n`)
})
