import assert from 'node:assert/strict'
import { test } from 'node:test'
import { filterOf, splitField } from '../../page/filter.js'
import { arrange, COLUMNS, thingsOf } from '../../page/list.js'
import { block, storeWith } from '../fakes/register.js'

const rows = (show, how = {}) => arrange(thingsOf(storeWith(), show), how).map((thing) => thing.id)

test('which rows there are', () => {
  assert.deepEqual(rows('all'), ['IPPool/core', 'IPPool/west', 'web', 'db', 'late'])
  assert.deepEqual(rows('pools'), ['IPPool/core', 'IPPool/west'])
  assert.deepEqual(rows('blocks'), ['web', 'db'])
  assert.deepEqual(rows('waiting'), ['late'])
})

test('a pool that may not be read is listed by its record', () => {
  const store = storeWith()
  store.apply({ type: 'gone', pools: ['IPPool/west'] })
  assert.deepEqual(arrange(thingsOf(store, 'all'), {}).map((t) => t.id), ['IPPool/core', 'own-west', 'web', 'db', 'late'])
})

test('rows are sorted by each column, both ways, and empty cells are last', () => {
  assert.deepEqual(rows('blocks', { sort: '-address' }), ['db', 'web'])
  assert.deepEqual(rows('blocks', { sort: 'project' }), ['db', 'web'])
  assert.deepEqual(rows('all', { sort: 'project' }), ['db', 'web', 'IPPool/core', 'IPPool/west', 'late'])
  assert.deepEqual(rows('all', { sort: '-project' }), ['web', 'db', 'IPPool/core', 'IPPool/west', 'late'])
  const { compare } = COLUMNS.find((column) => column.id === 'project')
  const [empty, full] = [block('a', '10.0.0.0/24', { project: '' }), block('b', '10.0.0.0/24')]
  assert.ok(compare(empty, full) > 0 && compare(full, empty) < 0)
  for (const column of COLUMNS) {
    const forth = arrange(thingsOf(storeWith(), 'all'), { sort: column.id })
    for (let i = 1; i < forth.length; i++) assert.ok(column.compare(forth[i - 1], forth[i]) <= 0, `${column.id}: ${forth[i - 1].id}, ${forth[i].id}`)
  }
  assert.deepEqual(rows('blocks', { sort: 'no-such-column' }), ['web', 'db'])
})

test('addresses are in the order of numbers, IPv4 first, the larger block first', () => {
  const store = storeWith([{ type: 'hello' }, { type: 'blocks', blocks: ['2001:db8::/32', '10.0.0.0/24', '9.0.0.0/8', '10.0.0.0/8', 'none'].map((cidr) => block(cidr, cidr)) }, { type: 'ready' }])
  assert.deepEqual(arrange(thingsOf(store, 'blocks'), {}).map((t) => t.id), ['9.0.0.0/8', '10.0.0.0/8', '10.0.0.0/24', '2001:db8::/32', 'none'])
})

const FILTERS = {
  'web': ['web'],
  'WEB': ['web'],
  'team-a/web': ['web'],
  'project:shop': ['web'],
  'cluster:prod': ['web', 'db'],
  'cluster:team-b/PROD': ['db'],
  'cluster:b/prod': [],
  'cluster:dev': ['late'],
  'team-a/prod': ['web'],
  'namespace:team-b': ['db', 'late'],
  'ns:team-b state:held': ['db'],
  'pool:west': ['IPPool/west', 'web'],
  'class:nets': ['IPPool/west', 'web', 'db'],
  'state:waiting': ['late'],
  'kind:ipaddressclaim': ['db'],
  'claim:db': ['db'],
  '10.1.2.7': ['IPPool/core', 'IPPool/west', 'web'],
  '10.2.0.0/16': ['IPPool/core', 'db'],
  'address:10.2.': ['db'],
  '2001:db8::/32': [],
  '::a00:0/104': [],
  'project:shop 10.2.0.0/16': [],
  'no-such': [],
  '  ': ['IPPool/core', 'IPPool/west', 'web', 'db', 'late'],
}
for (const [filter, want] of Object.entries(FILTERS)) {
  test(`filter: ${JSON.stringify(filter)}`, () => assert.deepEqual(rows('all', { filter }), want))
}

test('a filter of nothing is no filter, and an IPv6 address is no field', () => {
  assert.equal(filterOf(' '), null)
  assert.deepEqual(splitField('class:a'), { field: 'class', value: 'a' })
  assert.deepEqual(splitField('cafe::1'), { field: '', value: 'cafe::1' })
})
