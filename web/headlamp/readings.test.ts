import { type Reading, readingOf, unreadText } from './readings';

const read: Reading = { resource: 'ippools', state: 'read', isPartial: false, message: '' };
const forbidden = (resource: string): Reading => ({
  ...read,
  resource,
  state: 'forbidden',
  message: 'no',
});

describe('the state of a list', () => {
  const list = { items: [], list: {} };

  it.each([
    ['it is still being read', { items: null, errors: null }, 'loading', false],
    [
      'it was read',
      { items: [], errors: null, clusterResults: { west: { data: list } } },
      'read',
      false,
    ],
    ['it was refused', { items: [], errors: [{ status: 403, message: 'no' }] }, 'forbidden', false],
    ['it is not there', { items: [], errors: [{ status: 404, message: 'no' }] }, 'missing', false],
    [
      'the API server failed',
      { items: [], errors: [{ status: 500, message: 'no' }] },
      'failed',
      false,
    ],
    ['there was no answer', { items: [], errors: [{ message: 'no' }] }, 'failed', false],
    [
      'one namespace was read',
      {
        items: [],
        errors: null,
        clusterResults: { west: { data: { ...list, namespace: 'team-a' } } },
      },
      'read',
      true,
    ],
    [
      'one of two namespaces was refused',
      {
        items: [],
        errors: [{ status: 403, message: 'no' }],
        clusterResults: { west: { data: { ...list, namespace: 'team-a' } } },
      },
      'read',
      true,
    ],
  ])('%s', (_, listed, state, isPartial) => {
    expect(readingOf('ipallocations', listed)).toMatchObject({ state, isPartial });
  });
});

describe('the text about it', () => {
  it('is nothing where all was read', () => {
    expect(unreadText([read, { ...read, resource: 'ipallocations' }])).toEqual([]);
  });

  it('is nothing of Cluster API where that is not there', () => {
    expect(unreadText([{ ...read, resource: 'ipaddressclaims', state: 'missing' }])).toEqual([]);
  });

  it('names resources, and the parts that are missing without them', () => {
    expect(unreadText([read, forbidden('localippools'), forbidden('ipclaims')])[0]).toMatch(
      /^You may not list localippools and ipclaims in all namespaces, so pools of namespaces and claims that wait are not shown\./
    );
  });

  it('gives the reason of a failure', () => {
    const failed: Reading = { ...read, state: 'failed', message: 'the connection was refused' };
    expect(unreadText([failed])).toEqual(['Listing ippools failed: the connection was refused.']);
  });

  it('warns that free is not known where blocks are missing', () => {
    expect(unreadText([forbidden('ipallocations')]).at(-1)).toBe(
      'Space without a block is not known to be free.'
    );
  });
});
