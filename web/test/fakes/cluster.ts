// A cluster as Headlamp's own API code sees it: lists by fetch, and watches by WebSocket.

import type { AllocationObject, Metadata } from '../../headlamp/objects';

interface KubeObject {
  kind: string;
  apiVersion: string;
  metadata: Metadata;
  spec?: object;
}

const RESOURCES: Record<string, string> = {
  IPPool: 'ippools',
  LocalIPPool: 'localippools',
  InClusterIPPool: 'inclusterippools',
  GlobalInClusterIPPool: 'globalinclusterippools',
  IPClass: 'ipclasses',
  IPAllocation: 'ipallocations',
  IPClaim: 'ipclaims',
  IPAddressClaim: 'ipaddressclaims',
};

/** Objects, and what may not be read of them. */
export class Cluster {
  objects: KubeObject[] = [];
  /** The namespaces in which a resource may be listed; those that are not here may be listed everywhere. */
  allowed = new Map<string, string[]>();
  /** Resources that the API server does not have. */
  missing = new Set<string>();
  /** Resources whose lists are never answered. */
  hanging = new Set<string>();
  requests: string[] = [];
  #revision = 1000;
  #sockets: FakeSocket[] = [];

  /** Puts fetch and WebSocket in place. */
  install() {
    globalThis.fetch = ((url: string) => this.#answer(new URL(url))) as typeof fetch;
    const sockets = this.#sockets;
    globalThis.WebSocket = class extends FakeSocket {
      constructor(url: string) {
        super(url);
        sockets.push(this);
      }
    } as unknown as typeof WebSocket;
  }

  add(...objects: object[]) {
    for (const object of objects as KubeObject[]) {
      const { namespace = '', name } = object.metadata;
      object.metadata.uid ??= `${object.kind}-${namespace}-${name}`;
      object.metadata.resourceVersion = String(++this.#revision);
      this.objects.push(object);
    }
  }

  /** Sends an event to all who watch the resource. */
  event(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: object) {
    const changed = object as KubeObject;
    changed.metadata.uid ??= `${changed.kind}-${changed.metadata.namespace ?? ''}-${
      changed.metadata.name
    }`;
    changed.metadata.resourceVersion = String(++this.#revision);
    for (const socket of this.#sockets.filter(({ url }) =>
      url.includes(`/${RESOURCES[changed.kind]}?`)
    )) {
      socket.send({ type, object: changed });
    }
  }

  async #answer(url: URL): Promise<Response> {
    this.requests.push(url.pathname + url.search);
    const path = /\/apis\/([^/]+)\/([^/]+)\/(?:namespaces\/([^/]+)\/)?([^/]+)(?:\/([^/]+))?$/.exec(
      url.pathname
    );
    if (!path) return failure(404, `${url.pathname} is not there`);
    const [, group, version, namespace, resource, name] = path;
    if (this.hanging.has(resource)) return new Promise(() => {});
    if (this.missing.has(resource))
      return failure(404, 'the server could not find the requested resource');
    const allowed = this.allowed.get(resource);
    if (allowed && !allowed.includes(namespace))
      return failure(403, `${resource}.${group} is forbidden`);
    const all = this.objects.filter(
      object => RESOURCES[object.kind] === resource && object.apiVersion === `${group}/${version}`
    );
    const found = all.filter(object => !namespace || object.metadata.namespace === namespace);
    if (name) {
      const one = found.find(object => object.metadata.name === name);
      return one ? success(one) : failure(404, `${resource} "${name}" not found`);
    }
    const items = found.filter(object => selects(url.searchParams.get('fieldSelector'), object));
    const kind = Object.keys(RESOURCES).find(key => RESOURCES[key] === resource)!;
    const metadata = { resourceVersion: String(this.#revision) };
    return success({ kind: `${kind}List`, apiVersion: `${group}/${version}`, metadata, items });
  }
}

/** As the API server selects, of the fields that the plug-in selects by. */
function selects(selector: string | null, object: KubeObject): boolean {
  if (!selector) return true;
  const [, path, operator, value] = /^([\w.]+)(!?=)(.*)$/.exec(selector)!;
  let at: unknown = object;
  for (const key of path.split('.')) at = (at as Record<string, unknown> | undefined)?.[key];
  return ((at ?? '') === value) === (operator === '=');
}

class FakeSocket {
  binaryType = '';
  #listeners: ((message: { data: string }) => void)[] = [];

  constructor(readonly url: string) {}

  addEventListener(name: string, listener: (message: { data: string }) => void) {
    if (name === 'message') this.#listeners.push(listener);
  }

  send(event: object) {
    for (const listener of this.#listeners) listener({ data: JSON.stringify(event) });
  }

  close() {
    this.#listeners = [];
  }
}

function success(body: object): Response {
  return new Response(JSON.stringify(body), { status: 200 });
}

function failure(status: number, message: string): Response {
  return new Response(JSON.stringify({ kind: 'Status', message, code: status }), { status });
}

export type { AllocationObject };
