// Opens dialogs: to create a claim, and to release one. Each describes the change before it is
// made.

import { claimCommand, claimManifest } from './commands.js'
import { byId, copyButton, h } from './dom.js'
import { sentence } from './words.js'

const NAME = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/

/** Shows the dialog that asks before a change. */
export class Dialogs {
  #app
  #do = async () => {}

  constructor(app) {
    this.#app = app
    byId('ask-cancel').addEventListener('click', () => byId('ask').close())
    byId('ask-form').addEventListener('submit', (event) => {
      event.preventDefault()
      this.#submit()
    })
  }

  /** Asks whether to create a claim. */
  claim(wanted) {
    const isLocal = wanted.pool?.kind === 'LocalIPPool'
    const namespace = h('input', { type: 'text', value: wanted.namespace, readonly: isLocal, autocomplete: 'off', spellcheck: 'false' })
    const name = h('input', { type: 'text', value: wanted.name, autocomplete: 'off', spellcheck: 'false' })
    const manifest = h('pre', { tabindex: 0, role: 'group', 'aria-label': 'Manifest' })
    const asked = () => ({ ...wanted, namespace: namespace.value.trim(), name: name.value.trim() })
    const draw = () => (manifest.textContent = claimManifest(asked()))
    namespace.addEventListener('input', draw)
    name.addEventListener('input', draw)
    draw()
    this.#open({
      title: `Claim ${wanted.cidr} of pool ${wanted.pool?.name ?? ''}`, action: 'Create IPClaim',
      body: [
        h('div', { class: 'fields' }, h('label', { class: 'field' }, isLocal ? 'Namespace: that of the pool' : 'Namespace', namespace), h('label', { class: 'field' }, 'Name', name), manifest),
        h('div', { class: 'buttons end' }, copyButton(claimCommand(asked()), 'the command', this.#app.say, 'Copy command')),
      ],
      work: async () => {
        const { namespace: ns, name: called, pool, cidr } = asked()
        if (!NAME.test(ns)) throw new Error(`${ns || 'An empty text'} is not the name of a namespace: write lower case letters, digits and -`)
        if (!NAME.test(called)) throw new Error(`${called || 'An empty text'} is not a name for a claim: write lower case letters, digits, - and .`)
        await this.#app.api.claim({ namespace: ns, name: called, pool: pool ? `${pool.kind}/${pool.kind === 'LocalIPPool' ? `${pool.namespace}/` : ''}${pool.name}` : '', class: '', cidr })
        return `Created IPClaim ${ns}/${called}.`
      },
    })
    name.select()
  }

  /** Asks whether to release a claim. @param {{namespace: string, name: string, cidr: string}} claim */
  release(claim) {
    const what = claim.cidr ? `It holds ${claim.cidr}. Stop all users of these addresses first: another claim may get them.` : 'It waits for a block, and gets none then.'
    const uid = this.#uidOf(claim) // the UID of the shown claim: another claim of this name is not released
    uid.catch(() => {}) // reported when the claim is to be released
    this.#open({
      title: `Release IPClaim ${claim.namespace}/${claim.name}?`, action: 'Release', danger: true,
      body: [h('p', { text: what }), h('p', { class: 'quiet', text: 'The IPClaim is deleted. Its reclaim policy and the reuse delay of the pool decide what becomes of the block.' })],
      work: async () => {
        await this.#app.api.release({ ...claim, uid: await uid })
        return `Released IPClaim ${claim.namespace}/${claim.name}.`
      },
    })
    byId('ask-cancel').focus()
  }

  // Returns the UID of the claim, if it still holds the shown block.
  async #uidOf({ namespace, name, cidr }) {
    const { uid, block = '' } = await this.#app.api.explain({ kind: 'IPClaim', namespace, name })
    if (block !== cidr) throw new Error(`IPClaim ${namespace}/${name} now ${block ? `holds ${block}` : 'holds no block'}: look again, and release it if you still want to`)
    return uid
  }

  #open({ title, body, action, danger = false, work }) {
    byId('ask-title').textContent = title
    byId('ask-body').replaceChildren(...body)
    byId('ask-do').textContent = action
    byId('ask-do').className = danger ? 'danger' : 'primary'
    byId('ask-do').disabled = false
    byId('ask-error').hidden = true
    this.#do = work
    byId('ask').showModal()
  }

  async #submit() {
    byId('ask-do').disabled = true
    byId('ask-error').hidden = true
    try {
      const done = await this.#do()
      byId('ask').close()
      this.#app.free.again()
      this.#app.say(done)
    } catch (error) {
      byId('ask-error').textContent = sentence(error.message)
      byId('ask-error').hidden = false
    } finally {
      byId('ask-do').disabled = false
    }
  }
}
