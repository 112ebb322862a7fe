// Renders as Headlamp does: with its theme, its store, its router and its queries.

import { createMuiTheme } from '@kinvolk/headlamp-plugin/lib/lib/themes';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import { ThemeProvider } from '@mui/material/styles';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { configure, render } from '@testing-library/react';
import { Provider } from 'react-redux';
import { MemoryRouter } from 'react-router-dom';
import { FakeContext } from './canvas.js';

export const CLUSTER = 'west';

// What is waited for comes within a second, unless the machine is busy.
configure({ asyncUtilTimeout: 20_000 });
vi.setConfig({ testTimeout: 60_000 });

/** What jsdom has not: a canvas, and observers of sizes. Elements are 900 pixels wide. */
export function installBrowser() {
  const contexts = new WeakMap<HTMLCanvasElement, FakeContext>();
  HTMLCanvasElement.prototype.getContext = function (this: HTMLCanvasElement) {
    if (!contexts.has(this)) contexts.set(this, new FakeContext());
    return contexts.get(this);
  } as unknown as HTMLCanvasElement['getContext'];
  globalThis.ResizeObserver = class {
    observe() {}
    unobserve() {}
    disconnect() {}
  };
  Object.defineProperty(HTMLElement.prototype, 'clientWidth', {
    configurable: true,
    get: () => 900,
  });
  Object.defineProperty(HTMLElement.prototype, 'clientHeight', {
    configurable: true,
    get: () => 400,
  });
  globalThis.indexedDB = { open: failing } as unknown as IDBFactory;
}

// Headlamp keeps kubeconfigs in the browser, too; here are none.
function failing() {
  const request: { onerror?: (event: object) => void; onsuccess?: (event: object) => void } = {};
  const empty = { openCursor: () => later({}) };
  const database = { transaction: () => ({ objectStore: () => empty }) };
  queueMicrotask(() => request.onsuccess?.({ target: { result: database } }));
  return request;
}

function later(request: { onsuccess?: (event: object) => void }) {
  queueMicrotask(() => request.onsuccess?.({ target: { result: null } }));
  return request;
}

/** Renders something on a page of one or several clusters. */
export function show(
  element: React.ReactElement,
  { clusters = [CLUSTER], mode = 'light' as 'light' | 'dark' } = {}
) {
  const path = `/c/${clusters.join('+')}/cadastre/addresses`;
  window.history.replaceState(null, '', path);
  // Without further attempts, which Headlamp makes for some seconds.
  const client = new QueryClient({
    defaultOptions: { queries: { retry: false, staleTime: Infinity } },
  });
  return render(
    <Provider store={store}>
      <ThemeProvider theme={createMuiTheme({ name: mode, base: mode })}>
        <QueryClientProvider client={client}>
          <MemoryRouter initialEntries={[path]}>{element}</MemoryRouter>
        </QueryClientProvider>
      </ThemeProvider>
    </Provider>
  );
}
