// Makes kubectl commands and manifests for the objects on the page.

const SAFE = /^[A-Za-z0-9_./:@%+=,-]+$/

/** Quotes an argument for a shell if it needs quotes. */
export function quote(text) {
  return SAFE.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

/** Returns a command of the plug-in. */
export function ipam(...args) {
  return ['kubectl', 'ipam', ...args].map(quote).join(' ')
}

/**
 * Returns the name of a pool in commands: "ippool/core", and "localippool/lab" with its namespace.
 * @param {{kind: string, namespace: string, name: string}} pool
 */
export function poolArgs(pool) {
  const name = `${pool.kind.toLowerCase()}/${pool.name}`
  return pool.namespace ? [name, '-n', pool.namespace] : [name]
}

/**
 * Describes the content of an IPClaim.
 * @typedef {object} Asked
 * @property {string} namespace
 * @property {string} name
 * @property {{kind: string, namespace: string, name: string}|null} pool
 * @property {string} [class]
 * @property {string} [cidr] exactly this block
 * @property {number} [length] -1: the length of the class or the pool
 */

/**
 * Returns a claim for exactly a block of a pool.
 * @param {{kind: string, namespace: string, name: string}} pool
 * @param {string} namespace for the claim, unless the pool belongs to a namespace
 * @returns {Asked} with a name such as claim-10-2-0-0-24
 */
export function claimFor(pool, cidr, length, namespace) {
  const name = `claim-${cidr.toLowerCase().replace(/[^0-9a-f]+/g, '-').replace(/-$/, '')}`
  return { namespace: pool.kind === 'LocalIPPool' ? pool.namespace : namespace, name, pool, cidr, length }
}

/** Returns the command that makes the claim. */
export function claimCommand(asked) {
  const args = ['claim', '-n', asked.namespace, '--name', asked.name]
  if (asked.pool) args.push('--pool', `${asked.pool.kind.toLowerCase()}/${asked.pool.name}`)
  if (asked.class) args.push('--class', asked.class)
  if (asked.cidr) args.push('--cidr', asked.cidr)
  else if (asked.length !== undefined && asked.length >= 0) args.push('--length', String(asked.length))
  return ipam(...args)
}

/** Returns the manifest of the IPClaim. @returns {string} YAML */
export function claimManifest(asked) {
  const lines = [
    'apiVersion: ipam.cadastre.dev/v1alpha1',
    'kind: IPClaim',
    'metadata:',
    `  name: ${scalar(asked.name)}`,
    `  namespace: ${scalar(asked.namespace)}`,
    'spec:',
  ]
  if (asked.pool) lines.push('  poolRef:', `    kind: ${asked.pool.kind}`, `    name: ${scalar(asked.pool.name)}`)
  if (asked.class) lines.push(`  className: ${scalar(asked.class)}`)
  if (asked.cidr) lines.push(`  cidr: ${scalar(asked.cidr)}`)
  else if (asked.length !== undefined && asked.length >= 0) lines.push(`  prefixLength: ${asked.length}`)
  if (lines.length === 6) lines[5] = 'spec: {}'
  return `${lines.join('\n')}\n`
}

const PLAIN = /^[a-z]([a-z0-9.-]*[a-z0-9])?$/
const WORDS = new Set(['true', 'false', 'yes', 'no', 'on', 'off', 'null', 'y', 'n'])

/** Returns a string as a scalar of YAML. */
function scalar(text) {
  if (/^\d+\.\d+\.\d+\.\d+(\/\d+)?$/.test(text)) return text
  return PLAIN.test(text) && !WORDS.has(text) ? text : JSON.stringify(text)
}
