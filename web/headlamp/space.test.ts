import { pool } from '../test/fakes/objects';
import { registerOf, stripsOf } from '../test/fakes/registers';
import type { PoolObject } from './objects';
import type { Strip } from './strips';

describe('withheld addresses', () => {
  const withheldOf = (spec: PoolObject['spec']) => {
    const register = registerOf({ pools: [pool('p', spec)] });
    const spans: Strip[] = [...stripsOf(register).values()].filter(
      strip => strip.state === 'withheld'
    );
    return spans.map(
      span => `${span.label} ${span.from - register.store.pools.get('IPPool/p').from}`
    );
  };

  it('has the anycast address of an IPv6 subnet, and no broadcast address', () => {
    expect(withheldOf({ cidr: '2001:db8::/64', network: { prefixLength: 64 } })).toEqual([
      'subnet-router anycast address 0',
    ]);
  });

  it('has no edges where there are two addresses', () => {
    expect(withheldOf({ cidr: '192.0.2.0/31', network: { prefixLength: 31 } })).toEqual([]);
  });

  it('has no edges where they are handed out', () => {
    const network = { prefixLength: 24, gateway: '192.0.2.254', allocateEdgeAddresses: true };
    expect(withheldOf({ cidr: '192.0.2.0/24', network })).toEqual(['gateway 254']);
  });

  it('leaves out edges and gateways that lie outside of the pool', () => {
    const network = { prefixLength: 24, gateway: '192.0.2.1' };
    expect(withheldOf({ cidr: '192.0.2.64/26', network })).toEqual([]);
  });

  it('ends at the last address of the family', () => {
    const ranges = ['255.255.255.240-255.255.255.255'];
    expect(withheldOf({ cidr: '255.255.255.0/24', ranges })).toEqual(['outside of ranges 0']);
  });
});
