// Makes the parts of the page, and connects them.

import { createApi } from './api.js'
import { App } from './app.js'
import { Changes } from './changes.js'
import { ChangesView } from './changesview.js'
import { Dialogs } from './dialogs.js'
import { byId } from './dom.js'
import { FindBox } from './findbox.js'
import { FreeView } from './freeview.js'
import { followKeys } from './keys.js'
import { Legend } from './legend.js'
import { parseLink } from './link.js'
import { ListView } from './listview.js'
import { Maps } from './maps.js'
import { Panel } from './panel.js'
import { followPrinting } from './paper.js'
import { press } from './press.js'
import { Sign } from './sign.js'
import { Store } from './store.js'
import { Stream } from './stream.js'
import { Strips } from './strips.js'
import { Tabs } from './tabs.js'
import { Theme } from './theme.js'
import { forgetToken, takeToken } from './token.js'
import { sentence } from './words.js'

const theme = new Theme()
const token = takeToken()
addEventListener('hashchange', () => {
  if (parseLink(location.hash).token) location.reload() // another link was opened in this tab
})
if (token) begin()
else refuse('This page was opened without its token.')

// Shows the way to open the page, and nothing else.
function refuse(why) {
  byId('app').hidden = true
  byId('gate-why').textContent = why
  byId('gate').hidden = false
  document.title = 'Cadastre: open the printed link'
}

function begin() {
  const app = new App()
  const store = new Store()
  const strips = new Strips(store)
  const changes = new Changes()
  app.store = store
  app.api = createApi(token)
  app.maps = new Maps(app, strips)
  app.panel = new Panel(app)
  app.list = new ListView(app)
  app.free = new FreeView(app)
  app.dialogs = new Dialogs(app)
  const changed = new ChangesView(app, changes)
  const views = { list: app.list, free: app.free, changes: changed }
  app.tabs = new Tabs((name) => {
    for (const [of, view] of Object.entries(views)) view.show(of === name)
    app.keepLink()
  })
  const legend = new Legend(app.maps)
  const find = new FindBox(store, (target) => app.go(target), (sentence) => app.say(sentence))
  const stream = new Stream({ token, onMessage: (message) => store.apply(message), onState: (state) => show(state) })
  const sign = new Sign(store, (sentence) => app.say(sentence), () => stream.connect())

  function show(state) {
    sign.set(state)
    if (state.phase !== 'refused') return
    if (state.text.startsWith('the token')) forgetToken()
    stream.close()
    refuse(state.text.startsWith('the token') ? 'The token of this page is wrong: the command that printed it has ended, or was started again.' : `The command refuses to answer: ${state.text}.`)
  }

  store.listen((delta) => {
    app.maps.take(strips.take(delta))
    if (delta.first && delta.ready) app.maps.ready()
    if (changes.take(delta) > 0) changed.refresh()
    app.list.refresh()
    app.free.refresh()
    app.panel.refresh()
    legend.refresh()
    sign.refresh()
    describeContext(store, strips)
    if (!delta.ready) return
    app.list.settle() // before the sign reports that the page is in step: the shown rows then stay in place
    legend.refresh.now()
  })
  press.follow(document)
  controls(app, legend)
  followKeys({
    '/': () => find.focus(), m: () => byId('main').querySelector('canvas')?.focus(), d: () => byId('panel').focus(),
    l: () => open(app, 'list'), f: () => open(app, 'free'), c: () => open(app, 'changes'),
  })
  followPrinting(app)
  byId('app').hidden = false
  app.restore()
  addEventListener('popstate', () => app.restore())
  addEventListener('pagehide', () => stream.close())
  addEventListener('pageshow', (event) => event.persisted && location.reload())
  document.addEventListener('visibilitychange', () => !document.hidden && stream.state.phase === 'lost' && stream.connect())
  stream.connect()
}

function open(app, tab) {
  app.tabs.show(tab)
  byId(`tab-${tab}`).focus()
}

// Fills the head of the page.
function describeContext(store, strips) {
  const { context, namespace, readOnly } = store.hello ?? {}
  const words = [context, namespace && `namespace ${namespace}`, readOnly && 'read only'].filter(Boolean).join(' · ')
  if (byId('context').textContent !== words) {
    byId('context').textContent = words
    byId('context').title = words
    document.title = context ? `${context} · Cadastre` : 'Cadastre'
  }
  const text = sentence(store.unread.text)
  byId('unread').hidden = text === ''
  if (byId('unread').textContent !== text) byId('unread').textContent = text
  const isEmpty = strips.spaces.length === 0
  byId('map-empty').hidden = !isEmpty
  if (isEmpty) byId('map-empty').textContent = store.complete ? 'There is no address space that you may read: no pool has a CIDR, and no block is recorded.' : 'Reading the pools…'
}

function controls(app, legend) {
  const choice = byId('theme')
  choice.value = theme.choice
  choice.addEventListener('change', () => theme.choose(choice.value))
  const paint = (name) => {
    app.maps.paint(name)
    legend.refresh()
  }
  theme.listen(paint)
  paint(theme.current)
  byId('color').addEventListener('change', () => {
    app.maps.colorBy(byId('color').value)
    legend.refresh()
    app.keepLink()
  })
  byId('zoom-in').addEventListener('click', () => app.maps.zoom(2))
  byId('zoom-out').addEventListener('click', () => app.maps.zoom(0.5))
  byId('zoom-all').addEventListener('click', () => app.maps.fit())
  for (const link of document.querySelectorAll('[data-skip]')) {
    link.addEventListener('click', (event) => {
      event.preventDefault()
      byId(link.dataset.skip).focus()
    })
  }
  document.addEventListener('click', (event) => {
    if (!byId('spaces').contains(event.target)) byId('spaces').open = false
  })
  byId('spaces').addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return
    byId('spaces').open = false
    byId('spaces-summary').focus()
  })
}
