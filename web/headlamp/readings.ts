// Describes which resources of the cluster have been read, and in words which have not.

/** Holds the result of reading a resource. */
export interface Reading {
  /** Its name in the API, such as ippools. */
  resource: string;
  state: 'loading' | 'read' | 'forbidden' | 'missing' | 'failed';
  /** Whether objects of some namespaces alone were read. */
  isPartial: boolean;
  /** The reason of the failure, from the API server or Headlamp. */
  message: string;
}

interface ReadError {
  status?: number;
  message: string;
}

/** Holds the result of Headlamp's useList, as far as it matters here. */
export interface Listed<T> {
  items: T[] | null;
  errors: ReadError[] | null;
  clusterResults?: Record<string, { data?: unknown }>;
}

/** Returns the reading of a list. With several namespaces, some can be read, and others not. */
export function readingOf(
  resource: string,
  { items, errors, clusterResults }: Listed<unknown>
): Reading {
  const error = errors?.[0];
  // One list for a cluster, or the list of one namespace if Headlamp lists namespaces one by one.
  const lists = Object.values(clusterResults ?? {})
    .flatMap(result => result.data as { namespace?: string } | null)
    .filter(part => part !== null && part !== undefined);
  const isSome = lists.length > 0;
  const isPartial = isSome && (!!error || lists.some(part => part.namespace !== undefined));
  if (error && !isSome)
    return { resource, state: stateOf(error), isPartial: false, message: error.message };
  const state = items === null ? 'loading' : 'read';
  return { resource, state, isPartial, message: error?.message ?? '' };
}

function stateOf({ status }: ReadError): Reading['state'] {
  if (status === 401 || status === 403) return 'forbidden';
  return status === 404 ? 'missing' : 'failed';
}

/** Reports whether a list has been read, or has failed. */
export function isDecided(reading: Reading): boolean {
  return reading.state !== 'loading';
}

/** Reports whether a resource was read in all namespaces. */
export function isWhole(reading: Reading): boolean {
  return reading.state === 'read' && !reading.isPartial;
}

const MEANING: Record<string, string> = {
  ippools: 'pools',
  localippools: 'pools of namespaces',
  ipallocations: 'blocks that are held',
  ipclaims: 'claims that wait',
  ipaddressclaims: 'claims of Cluster API that wait',
};

/** The resources of Cluster API, which is optional. */
const OPTIONAL = ['ipaddressclaims'];

/**
 * Returns sentences for the user about resources that are not known. None: everything was read, or
 * is being read.
 */
export function unreadText(readings: Reading[]): string[] {
  const missing = readings.filter(
    ({ state, resource }) => state === 'missing' && !OPTIONAL.includes(resource)
  );
  if (missing.length > 0) {
    return [
      `The cluster has no ${list(missing)} in the API group ipam.cadastre.dev: install Cadastre.`,
    ];
  }
  const sentences: string[] = [];
  const forbidden = readings.filter(({ state }) => state === 'forbidden');
  if (forbidden.length > 0) {
    sentences.push(
      `You may not list ${list(forbidden)} in all namespaces, so ${meaning(
        forbidden
      )} are not shown. ` +
        'Where you may list them in some namespaces, name those as allowed namespaces in the settings of the cluster.'
    );
  }
  const partial = readings.filter(({ isPartial }) => isPartial);
  if (partial.length > 0) {
    sentences.push(
      `Of ${list(partial)} only those of some namespaces are read, so ${meaning(
        partial
      )} elsewhere are not shown.`
    );
  }
  for (const { resource, message } of readings.filter(({ state }) => state === 'failed')) {
    sentences.push(`Listing ${resource} failed: ${message}.`);
  }
  const records = readings.find(({ resource }) => resource === 'ipallocations');
  if (records && isDecided(records) && !isWhole(records)) {
    sentences.push('Space without a block is not known to be free.');
  }
  return sentences;
}

function list(readings: Reading[]): string {
  return joinWords(readings.map(({ resource }) => resource));
}

function meaning(readings: Reading[]): string {
  return joinWords(readings.map(({ resource }) => MEANING[resource] ?? resource));
}

function joinWords(words: string[]): string {
  if (words.length < 2) return words.join('');
  return `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;
}
