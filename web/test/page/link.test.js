import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatLink, parseLink } from '../../page/link.js'

test('a written link is read', () => {
  const view = {
    views: [{ space: 'team-a/default/4', from: '10.0.0.0', to: '10.255.255.255' }, { space: 'default/6', from: '', to: '' }],
    selected: 'p:LocalIPPool/team-a/lab', color: 'project', tab: 'list', show: 'blocks', filter: 'project:shop a&b=#%', sort: '-since', pool: 'IPPool/core', length: '24',
  }
  const text = formatLink(view)
  assert.deepEqual(parseLink(`#${text}`), { token: '', view })
  assert.match(text, /map=team-a\/default\/4~10\.0\.0\.0~10\.255\.255\.255&/)
})

test('an IPv6 range is kept, and readable', () => {
  const view = { views: [{ space: 'default/6', from: '2001:db8::', to: '2001:db8::ffff' }] }
  assert.equal(formatLink(view), 'map=default/6~2001:db8::~2001:db8::ffff')
  assert.deepEqual(parseLink(formatLink(view)).view, view)
})

test('the token is read, and never written', () => {
  const { token, view } = parseLink('#token=abc&select=b:1')
  assert.equal(token, 'abc')
  assert.equal(view.selected, 'b:1')
  assert.equal(formatLink({ ...view, token }), 'select=b:1')
})

test('an unreadable part is left out', () => {
  for (const text of ['', '#', '#%%%', '#map=', '#map=~~', '#=', `#filter=${'x'.repeat(9000)}`]) {
    const { token, view } = parseLink(text)
    assert.equal(token, '')
    assert.deepEqual(view.views, [])
    assert.ok((view.filter ?? '').length < 4000)
  }
})
