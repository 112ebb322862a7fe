// A small register, as the stream would send it, for tests.

import { Store } from '../../page/store.js'

/** @returns {object} a pool of the stream */
export function pool(id, fields = {}) {
  const [kind, ...rest] = id.split('/')
  return {
    id, kind, namespace: rest.length > 1 ? rest[0] : '', name: rest.at(-1), known: true, domain: 'default', family: 4, cidr: '', parent: '',
    phase: 'Ready', message: '', classes: [], visibility: 'Public', project: '', strategy: 'FirstFit', reuseDelay: '0s', onExhaustion: 'Wait',
    minLength: 16, maxLength: 28, labels: {}, usage: null, usageFrom: 'records', withheld: [], limits: null, ...fields,
  }
}

/** @returns {object} a block of the stream */
export function block(id, cidr, fields = {}) {
  return {
    id, cidr, pool: 'IPPool/core', domain: 'default', state: 'Bound', child: '', drained: false, terminating: false,
    holder: { kind: 'IPClaim', namespace: 'team-a', name: id }, allocation: `team-a/${id}-x`, cluster: '', project: 'shop', class: 'nets',
    requestedBy: 'ann', since: '2026-11-26T17:00:00Z', releaseAfter: '', ...fields,
  }
}

/** @returns {object} a waiting claim of the stream */
export function waiting(id, fields = {}) {
  return {
    id, kind: 'IPClaim', namespace: 'team-b', name: id, family: 4, cidr: '', length: 24, pools: ['IPPool/core'], cluster: '', class: '',
    reason: 'PoolExhausted', message: 'no pool has a free /24', since: '2026-11-26T17:30:00Z', ...fields,
  }
}

/** The messages of a first state: core 10.0.0.0/8 with a child west and two blocks. */
export function firstState() {
  return [
    { type: 'hello', version: 'v0.1.0', context: 'test', namespace: 'team-a', readOnly: true, now: '2026-11-26T18:00:00Z' },
    { type: 'unread', text: '', resources: [] },
    { type: 'pools', pools: [
      pool('IPPool/core', { cidr: '10.0.0.0/8', withheld: [{ from: '10.0.0.0', to: '10.0.255.255', reason: 'reserved' }] }),
      pool('IPPool/west', { cidr: '10.1.0.0/16', parent: 'IPPool/core', classes: ['nets'] }),
    ] },
    { type: 'blocks', blocks: [
      block('own-core', '10.0.0.0/8', { pool: '', child: 'IPPool/core', state: 'Carved', holder: { kind: 'IPPool', namespace: '', name: 'core' } }),
      block('own-west', '10.1.0.0/16', { child: 'IPPool/west', state: 'Carved', holder: { kind: 'IPPool', namespace: '', name: 'west' } }),
      block('web', '10.1.2.0/24', { pool: 'IPPool/west', cluster: 'prod' }),
      block('db', '10.2.0.0/24', { cluster: 'prod', project: 'bank', holder: { kind: 'IPAddressClaim', namespace: 'team-b', name: 'db' }, allocation: 'team-b/db-x' }),
    ] },
    { type: 'waiting', claims: [waiting('late', { cluster: 'dev' })] },
    { type: 'ready' },
  ]
}

/** A store that has taken messages. */
export function storeWith(messages = firstState()) {
  const store = new Store()
  for (const message of messages) store.apply(message)
  return store
}
