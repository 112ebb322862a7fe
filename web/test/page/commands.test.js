import assert from 'node:assert/strict'
import { test } from 'node:test'
import { claimCommand, claimManifest, ipam, poolArgs, quote } from '../../page/commands.js'

const core = { kind: 'IPPool', namespace: '', name: 'core' }

test('arguments are quoted where a shell would read something else', () => {
  assert.equal(quote('10.0.0.0/24'), '10.0.0.0/24')
  assert.equal(quote('2001:db8::/64'), '2001:db8::/64')
  for (const text of ['a b', '$(x)', '`x`', 'a;b', '*', '', "it's", 'a\nb', '~']) assert.match(quote(text), /^'/)
  assert.equal(quote("it's"), `'it'\\''s'`)
  assert.equal(ipam('who', '10.0.0.1; rm -r'), "kubectl ipam who '10.0.0.1; rm -r'")
})

test('a claim as a command and as a manifest', () => {
  const exact = { namespace: 'team-a', name: 'web', pool: core, cidr: '10.0.0.0/24', length: 24 }
  assert.equal(claimCommand(exact), 'kubectl ipam claim -n team-a --name web --pool ippool/core --cidr 10.0.0.0/24')
  assert.equal(claimManifest(exact), `apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata:
  name: web
  namespace: team-a
spec:
  poolRef:
    kind: IPPool
    name: core
  cidr: 10.0.0.0/24
`)
  const any = { namespace: 'team-a', name: 'web', pool: null, class: 'nets', length: 26 }
  assert.equal(claimCommand(any), 'kubectl ipam claim -n team-a --name web --class nets --length 26')
  assert.match(claimManifest(any), /spec:\n {2}className: nets\n {2}prefixLength: 26\n$/)
  assert.match(claimManifest({ namespace: 'a', name: 'b', pool: null, length: -1 }), /\nspec: \{\}\n$/)
})

test('a text that YAML would read as another type is quoted', () => {
  const names = { true: '"true"', 123: '"123"', 'a: b': '"a: b"', '2001:db8::/64': '"2001:db8::/64"', web: 'web', 'a-1.b': 'a-1.b', 'x\ny: z': '"x\\ny: z"' }
  for (const [name, want] of Object.entries(names)) assert.ok(claimManifest({ namespace: 'a', name, pool: null }).includes(`\n  name: ${want}\n`), name)
})

test('pools as arguments', () => {
  assert.deepEqual(poolArgs(core), ['ippool/core'])
  assert.deepEqual(poolArgs({ kind: 'LocalIPPool', namespace: 'team-a', name: 'lab' }), ['localippool/lab', '-n', 'team-a'])
  assert.deepEqual(poolArgs({ kind: 'InClusterIPPool', namespace: 'team-a', name: 'vms' }), ['inclusterippool/vms', '-n', 'team-a'])
  assert.deepEqual(poolArgs({ kind: 'GlobalInClusterIPPool', namespace: '', name: 'vms' }), ['globalinclusterippool/vms'])
})
