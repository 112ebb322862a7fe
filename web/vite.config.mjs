// Headlamp's own configuration, with the plug-in's sources in headlamp.

import base from '@kinvolk/headlamp-plugin/config/vite.config.mjs'
import { resolve } from 'node:path'
import { mergeConfig } from 'vite'

export default mergeConfig(base, {
  build: { lib: { entry: resolve('headlamp/index.tsx') } },
  test: { include: ['headlamp/**/*.test.{ts,tsx}'] },
})
