import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Store } from '../../page/store.js'
import { keyOf, Strips } from '../../page/strips.js'
import { block, firstState, pool, waiting } from '../fakes/register.js'

// The state of a map that takes all deltas.
class Drawn {
  strips = new Map()
  spaces = new Map()

  constructor(messages) {
    this.store = new Store()
    this.of = new Strips(this.store)
    this.store.listen((delta) => this.take(this.of.take(delta)))
    this.say(...messages)
  }

  say(...messages) {
    for (const message of messages) this.store.apply(message)
    return this
  }

  take({ put, remove }) {
    for (const id of remove) {
      assert.ok(this.strips.delete(id), `${id} is removed, and is not there`)
    }
    for (const space of put.spaces) this.spaces.set(space.id, space)
    for (const strip of put.strips) this.strips.set(strip.id, strip)
    for (const strip of this.strips.values()) {
      assert.ok(this.spaces.has(strip.space), `${strip.id} is in ${strip.space}, which is not known`)
      assert.ok(strip.parent === null || this.strips.has(strip.parent), `the parent of ${strip.id} is not drawn: ${strip.parent}`)
      if (strip.parent) assert.equal(this.strips.get(strip.parent).space, strip.space, `${strip.id} is in another space than its parent`)
    }
  }

  ids() {
    return [...this.strips.keys()].sort()
  }
}

test('pools, blocks and withheld spans become strips in their places', () => {
  const drawn = new Drawn(firstState())
  assert.deepEqual(drawn.ids(), ['b:db', 'b:web', 'p:IPPool/core', 'p:IPPool/west', 's:IPPool/core/0'])
  const { strips } = drawn
  assert.deepEqual(strips.get('b:web'), {
    id: 'b:web', space: 'default/4', parent: 'p:IPPool/west', from: 0x0a010200n, to: 0x0a0102ffn, kind: 'block', state: 'held',
    label: 'web', sub: '10.1.2.0/24', since: Date.parse('2026-11-26T17:00:00Z'), facets: { cluster: 'team-a/prod', project: 'shop', holder: 'IPClaim', class: 'nets' },
  })
  assert.deepEqual([strips.get('p:IPPool/core').parent, strips.get('p:IPPool/west').parent], [null, 'p:IPPool/core'])
  assert.deepEqual([strips.get('p:IPPool/west').kind, strips.get('p:IPPool/west').state, strips.get('s:IPPool/core/0').state], ['pool', 'carved', 'withheld'])
  assert.deepEqual(drawn.of.spaces.map((s) => s.name), ['default'])
})

test('blocks that come before their pool get their parent with it', () => {
  const [hello, unread, pools, blocks, claims, ready] = firstState()
  const drawn = new Drawn([hello, unread, blocks, pools, claims, ready])
  assert.deepEqual([...drawn.strips.values()].map((s) => [s.id, s.parent]).sort(), [...new Drawn(firstState()).strips.values()].map((s) => [s.id, s.parent]).sort())
})

test('pools that come before their parent lie in it when it comes', () => {
  const [hello, unread, { pools: [core, west] }] = firstState()
  const drawn = new Drawn([hello, unread, { type: 'pools', pools: [west] }])
  assert.equal(drawn.strips.get('p:IPPool/west').parent, null)
  drawn.say({ type: 'pools', pools: [core] })
  assert.equal(drawn.strips.get('p:IPPool/west').parent, 'p:IPPool/core')
})

test('a child pool that may not be read lies in its parent by its record', () => {
  const [hello, unread, { pools: [core] }, { blocks }] = firstState()
  const drawn = new Drawn([hello, unread, { type: 'blocks', blocks: [blocks[1]] }])
  assert.equal(drawn.strips.get('p:IPPool/west').parent, null)
  drawn.say({ type: 'pools', pools: [core] })
  assert.equal(drawn.strips.get('p:IPPool/west').parent, 'p:IPPool/core')
})

test('each state of a block is one of the map', () => {
  const states = { Bound: 'held', Retained: 'retained', Cooling: 'cooling', Releasing: 'releasing', Odd: 'unknown' }
  for (const [state, want] of Object.entries(states)) {
    const drawn = new Drawn(firstState()).say({ type: 'blocks', blocks: [block('db', '10.2.0.0/24', { state })] })
    assert.equal(drawn.strips.get('b:db').state, want)
  }
  const drawn = new Drawn(firstState()).say({ type: 'blocks', blocks: [block('db', '10.2.0.0/24', { drained: true })] })
  assert.equal(drawn.strips.get('b:db').state, 'drained')
})

test('a deleted pool leaves only its blocks on the map', () => {
  const drawn = new Drawn(firstState()).say({ type: 'gone', pools: ['IPPool/west'], blocks: ['own-west'] })
  assert.deepEqual(drawn.ids(), ['b:db', 'b:web', 'p:IPPool/core', 's:IPPool/core/0'])
  assert.equal(drawn.strips.get('b:web').parent, null)
  drawn.say({ type: 'gone', pools: ['IPPool/core'], blocks: ['own-core', 'web', 'db'] })
  assert.deepEqual(drawn.ids(), [])
  assert.deepEqual(drawn.of.spaces, [])
})

test('a pool whose usage alone has changed is not drawn again', () => {
  const drawn = new Drawn(firstState())
  const taken = []
  drawn.store.listen((delta) => taken.push(delta))
  drawn.take = ({ put, remove }) => taken.push([put.strips.map((strip) => strip.id), remove])
  drawn.say({ type: 'pools', pools: [pool('IPPool/west', { cidr: '10.1.0.0/16', parent: 'IPPool/core', classes: ['nets'], usage: { total: '65536', used: '9', blocks: 3 } })] })
  assert.deepEqual(taken[0], [[], []])
  drawn.say({ type: 'pools', pools: [pool('IPPool/west', { cidr: '10.1.0.0/16', parent: 'IPPool/core', classes: ['other'] })] })
  assert.deepEqual(taken[2], [['p:IPPool/west'], []])
})

test('a pool of ranges is drawn from its first to its last address', () => {
  const drawn = new Drawn(firstState())
  drawn.say({ type: 'pools', pools: [pool('IPPool/parts', { cidr: '10.1.0.0/16', first: '10.1.4.10', last: '10.1.4.19', parent: 'IPPool/west' })] })
  const { from, to, parent } = drawn.strips.get('p:IPPool/parts')
  assert.deepEqual([from, to, parent], [0x0a01040an, 0x0a010413n, 'p:IPPool/west'])
})

test('withheld spans follow their pool', () => {
  const drawn = new Drawn(firstState())
  drawn.say({ type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/8', withheld: [] })] })
  assert.ok(!drawn.strips.has('s:IPPool/core/0'))
  drawn.say({ type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/8', withheld: [{ from: '10.0.0.0', to: '10.0.0.0', reason: 'edge' }, { from: '10.3.0.0', to: '10.3.0.9', reason: 'x' }] })] })
  assert.equal(drawn.strips.get('s:IPPool/core/1').to, 0x0a030009n)
})

test('unreadable space is not drawn as free', () => {
  const [hello, unread] = firstState()
  const drawn = new Drawn([
    hello, unread,
    { type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/24', usageFrom: 'status', withheld: [{ from: '10.0.0.0', to: '10.0.0.15', reason: 'x' }] })] },
    { type: 'blocks', blocks: [block('a', '10.0.0.32/28'), block('b', '10.0.0.240/28')] },
    { type: 'ready' },
  ])
  const unknown = () => [...drawn.strips.values()].filter((s) => s.state === 'unknown').map((s) => [Number(s.from & 255n), Number(s.to & 255n)])
  assert.deepEqual(unknown(), [[16, 31], [48, 239]])
  drawn.say({ type: 'blocks', blocks: [block('wide', '10.0.0.0/27')] }) // over the withheld ones, which end before it does
  assert.deepEqual(unknown(), [[48, 239]])
  drawn.say({ type: 'gone', blocks: ['wide'] })
  drawn.say({ type: 'gone', blocks: ['a'] })
  assert.deepEqual(unknown(), [[16, 239]])
  drawn.say({ type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/24', usageFrom: 'records' })] })
  assert.deepEqual(unknown(), [])
})

test('blocks of a pool that may not be read stand alone', () => {
  const [hello, unread] = firstState()
  const drawn = new Drawn([
    hello, unread, { type: 'pools', pools: [{ id: 'IPPool/hidden', kind: 'IPPool', namespace: '', name: 'hidden', family: 4, known: false }] },
    { type: 'blocks', blocks: [block('a', '10.0.0.32/28', { pool: 'IPPool/hidden', domain: '' })] }, { type: 'ready' },
  ])
  assert.deepEqual([...drawn.strips.values()].map((s) => [s.id, s.parent, s.space]), [['b:a', null, '?/4']])
  assert.equal(drawn.of.spaces[0].name, 'routing domain not known')
  drawn.say({ type: 'blocks', blocks: [block('z', '10.0.1.0/28', { pool: 'IPPool/hidden', domain: '' })] })
  assert.deepEqual(drawn.of.rootsOf('?/4'), [{ key: 'p:IPPool/hidden', from: 0x0a000020n, to: 0x0a00010fn }])
})

test('an unreadable pool is in the routing domain of its record, and so are the blocks in it', () => {
  const [hello, unread] = firstState()
  const hidden = (name) => ({ id: `IPPool/${name}`, kind: 'IPPool', namespace: '', name, family: 4, known: false })
  const held = block('a', '10.0.0.32/28', { pool: 'IPPool/inner', domain: '' })
  const inner = block('i', '10.0.0.0/24', { pool: 'IPPool/outer', domain: '', child: 'IPPool/inner', state: 'Carved' })
  const outer = block('o', '10.0.0.0/16', { pool: '', domain: 'blue', child: 'IPPool/outer', state: 'Carved' })
  for (const order of [[held, inner, outer], [outer, inner, held]]) {
    const drawn = new Drawn([hello, unread, { type: 'pools', pools: [hidden('inner'), hidden('outer')] }])
    for (const one of order) drawn.say({ type: 'blocks', blocks: [one] })
    assert.deepEqual(drawn.ids().map((id) => [id, drawn.strips.get(id).space, drawn.strips.get(id).parent]), [
      ['b:a', 'blue/4', 'p:IPPool/inner'], ['p:IPPool/inner', 'blue/4', 'p:IPPool/outer'], ['p:IPPool/outer', 'blue/4', null],
    ])
  }
})

test('a claim that waits for one block is drawn there, one that waits for any is not', () => {
  const drawn = new Drawn(firstState()).say({ type: 'waiting', claims: [waiting('exact', { cidr: '10.2.0.0/25' })] })
  assert.deepEqual([drawn.strips.get('w:exact').parent, drawn.strips.get('w:exact').state], ['p:IPPool/core', 'waiting'])
  assert.ok(!drawn.strips.has('w:late'))
  drawn.say({ type: 'gone', claims: ['exact'] })
  assert.ok(!drawn.strips.has('w:exact'))
})

test('a pool that moves to another routing domain takes its blocks along', () => {
  const drawn = new Drawn(firstState())
  drawn.say({ type: 'pools', pools: [pool('IPPool/core', { cidr: '10.0.0.0/8', domain: 'other' }), pool('IPPool/west', { cidr: '10.1.0.0/16', parent: 'IPPool/core', domain: 'other' })] })
  assert.deepEqual([...new Set([...drawn.strips.values()].map((s) => s.space))], ['other/4'])
  assert.deepEqual(drawn.of.spaces.map((s) => s.id), ['other/4'])
})

test('random deltas end in the drawing of the whole state', () => {
  let seed = 20261126
  const random = (n) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n
  const [hello, unread, pools, blocks] = firstState()
  for (let round = 0; round < 20; round++) {
    const drawn = new Drawn([hello, unread, { type: 'ready' }])
    for (let step = 0; step < 60; step++) {
      const ofPool = pools.pools[random(2)]
      const ofBlock = blocks.blocks[random(4)]
      if (random(3) === 0) drawn.say({ type: 'gone', pools: random(2) ? [ofPool.id] : [], blocks: [ofBlock.id] })
      else if (random(2) === 0) drawn.say({ type: 'pools', pools: [ofPool] })
      else drawn.say({ type: 'blocks', blocks: [{ ...ofBlock, state: ofBlock.child ? 'Carved' : ['Bound', 'Cooling'][random(2)] }] })
    }
    const whole = new Drawn([hello, unread, { type: 'pools', pools: pools.pools.filter((p) => drawn.store.pools.has(p.id)) }, { type: 'blocks', blocks: blocks.blocks.filter((b) => drawn.store.blocks.has(b.id)).map((b) => ({ ...b, state: drawn.store.blocks.get(b.id).state })) }, { type: 'ready' }])
    assert.deepEqual([...drawn.strips].sort(), [...whole.strips].sort(), `seed 20261126, round ${round}`)
  }
})

test('the root pools of a space are in the order of their addresses', () => {
  const drawn = new Drawn(firstState()).say({ type: 'pools', pools: [pool('IPPool/first', { cidr: '9.0.0.0/8' }), pool('IPPool/six', { cidr: '2001:db8::/32', family: 6 })] })
  assert.deepEqual(drawn.of.rootsOf('default/4').map((root) => root.key), ['p:IPPool/first', 'p:IPPool/core'])
  assert.deepEqual(drawn.of.rootsOf('default/6').map((root) => root.key), ['p:IPPool/six'])
})

test('the whole of a space is the same as the deltas have drawn it', () => {
  const drawn = new Drawn(firstState())
  drawn.say({ type: 'waiting', claims: [waiting('exact', { cidr: '10.2.0.0/25' })] }, { type: 'blocks', blocks: [block('lone', '10.9.0.0/24', { pool: 'IPPool/none', domain: 'other' })] })
  for (const { id } of drawn.of.spaces) {
    const want = [...drawn.strips.values()].filter((strip) => strip.space === id)
    const byId = (a, b) => (a.id < b.id ? -1 : 1)
    assert.deepEqual(drawn.of.whole(id).strips.sort(byId), want.sort(byId))
    assert.deepEqual(drawn.of.whole(id).spaces.map((space) => space.id), [id])
  }
})

test('keys', () => {
  const { store } = new Drawn(firstState())
  assert.equal(keyOf(store.blocks.get('web')), 'b:web')
  assert.equal(keyOf(store.blocks.get('own-west')), 'p:IPPool/west')
  assert.equal(keyOf(store.pools.get('IPPool/west')), 'p:IPPool/west')
  assert.equal(keyOf(store.waiting.get('late')), 'w:late')
})
