import { parse } from '../page/ranges.js';
import { carved, held, pool } from '../test/fakes/objects';
import { objects, registerOf, stripsOf } from '../test/fakes/registers';
import type { AllocationObject, PoolObject } from './objects';
import type { Objects, Strip } from './strips';

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

describe('a pool that occupies its ranges', () => {
  const subnet = '10.0.0.0/24';
  const occupying = (name: string, ranges: string[], spec: Partial<PoolObject['spec']> = {}) =>
    pool(name, { cidr: subnet, occupies: 'Ranges', ranges, ...spec });
  const poolOf = (name: string, parts: Partial<Objects>) =>
    registerOf(parts).store.pools.get(`IPPool/${name}`);
  const spansOf = (name: string, parts: Partial<Objects>) =>
    [...stripsOf(registerOf(parts)).values()]
      .filter(strip => strip.kind === 'span' && strip.parent === `p:IPPool/${name}`)
      .map(({ from, to, label }) => `${from & 0xffn}-${to & 0xffn} ${label}`);

  it('is drawn from its first to its last address, without the addresses between its ranges', () => {
    const a = occupying('a', ['10.0.0.60-10.0.0.69', '10.0.0.10-10.0.0.19', '10.0.0.20']);
    const strip = stripsOf(registerOf({ pools: [a] })).get('p:IPPool/a')!;
    expect([strip.from & 0xffn, strip.to & 0xffn, strip.sub]).toEqual([10n, 69n, subnet]);
    expect(spansOf('a', { pools: [a] })).toEqual(['21-59 not of this pool']);
    expect(poolOf('a', { pools: [a] })).toMatchObject({ first: '10.0.0.10', last: '10.0.0.69' });
  });

  it('shares its subnet with other pools', () => {
    const network = { prefixLength: 24, gateway: '10.0.0.1' };
    const pools = [
      occupying('a', ['10.0.0.10-10.0.0.19'], { network }),
      occupying('b', ['10.0.0.0-10.0.0.9', '10.0.0.20-10.0.0.255'], { network }),
    ];
    expect(poolOf('a', { pools }).usage).toMatchObject({ total: '10', free: '10', withheld: '0' });
    expect(poolOf('b', { pools }).usage).toMatchObject({
      total: '246',
      free: '243',
      withheld: '3',
    });
    expect(spansOf('a', { pools })).toEqual([]);
    expect(spansOf('b', { pools })).toEqual([
      '10-19 not of this pool',
      '0-0 network address',
      '1-1 gateway',
      '255-255 broadcast address',
    ]);
  });

  it('has a first and a last address if its ranges are all of its subnet', () => {
    const parts = { pools: [occupying('a', [subnet])] };
    expect(poolOf('a', parts)).toMatchObject({ first: '10.0.0.0', last: '10.0.0.255' });
  });

  it('drains blocks that lie outside of its ranges', () => {
    const allocations = [
      held('team-a/in', 'a', '10.0.0.12/32'),
      held('team-a/beside', 'a', '10.0.0.8/32'),
    ];
    const parts = { pools: [occupying('a', ['10.0.0.10-10.0.0.19'])], allocations };
    const drained = [...registerOf(parts).store.blocks.values()].filter(block => block.drained);
    expect(drained.map(block => block.holderName)).toEqual(['beside']);
    expect(poolOf('a', parts).usage).toMatchObject({
      total: '10',
      free: '9',
      held: '2',
      drained: '1',
      withheld: '0',
    });
  });

  it('counts each of its addresses once', () => {
    for (let seed = 1; seed <= 50; seed++) {
      let state = seed;
      const random = (below: number) => {
        state = (state * 1103515245 + 12345) % 2 ** 31;
        return Math.floor((state / 2 ** 31) * below);
      };
      const ranges = [`10.0.0.${random(100)}-10.0.0.99`, `10.0.0.150-10.0.0.${150 + random(106)}`];
      const reserved = ['10.0.0.0/29', '10.0.0.50-10.0.0.60'];
      const blocks = new Set(Array.from({ length: 10 }, () => `10.0.0.${random(64) * 4}/30`));
      const p = occupying('p', ranges, { reserved });
      const allocations = [...blocks].map((cidr, i) => held(`team-a/c${i}`, 'p', cidr));
      const want = { total: 0, free: 0, withheld: 0, drained: 0 };
      for (let address = 0n; address < 256n; address++) {
        const isIn = (texts: Iterable<string>) =>
          [...texts].some(text => {
            const { from, to } = parse(text)!;
            return (from & 0xffn) <= address && address <= (to & 0xffn);
          });
        const isOfPool = isIn(ranges);
        const isWithheld = !isOfPool || isIn(reserved);
        const isHeld = isIn(blocks);
        if (isOfPool) want.total++;
        if (isOfPool && !isHeld && !isWithheld) want.free++;
        if (isOfPool && !isHeld && isWithheld) want.withheld++;
        if (isHeld && isWithheld) want.drained++;
      }
      const { total, free, withheld, drained } = poolOf('p', { pools: [p], allocations }).usage;
      const got = { total, free, withheld, drained };
      const texts = Object.entries(want).map(([name, count]) => [name, String(count)]);
      expect(got, `seed ${seed}`).toEqual(Object.fromEntries(texts));
    }
  });

  it('has no free space where another pool has a part of its subnet, if not all can be read', () => {
    const a = occupying('a', ['10.0.0.10-10.0.0.19', '10.0.0.30-10.0.0.39']);
    expect(spansOf('a', { pools: [a], hasAllRecords: false })).toEqual([
      '20-29 not of this pool',
      '10-19 not known',
      '30-39 not known',
    ]);
  });

  describe('after an edit', () => {
    const before = occupying('a', ['10.0.0.16/29']);
    const after = occupying('a', ['10.0.0.16/28']);
    for (const object of [before, after]) object.metadata.uid = 'uid of a';
    const own = (cidr: string, spec: Partial<AllocationObject['spec']> = {}, uid = 'uid of a') => {
      const holder = { kind: 'IPPool', name: 'a', uid };
      return carved(holder, cidr, { routingDomain: 'default', ...spec });
    };

    it('does not hand out addresses before they are recorded for it', () => {
      const parts = { pools: [after], allocations: [own('10.0.0.16/29')] };
      expect(poolOf('a', parts).usage).toMatchObject({ total: '16', free: '8', withheld: '8' });
      expect(spansOf('a', parts)).toEqual(['24-31 not recorded for the pool yet']);
    });

    it('hands out all of them if its own records were not read', () => {
      expect(poolOf('a', { pools: [after] }).usage).toMatchObject({ free: '16', withheld: '0' });
    });

    it.each([
      ['of an earlier pool', own('10.0.0.24/29', {}, 'uid of an earlier a')],
      ['that is about to be released', own('10.0.0.24/29', { state: 'Releasing' })],
      [
        'that is being deleted',
        {
          ...own('10.0.0.24/29'),
          metadata: { ...own('10.0.0.24/29').metadata, deletionTimestamp: '2026-11-26T18:00:00Z' },
        },
      ],
    ])('has no addresses by a record %s', (_, record) => {
      const other = { ...record, metadata: { ...record.metadata, uid: 'another record' } };
      const parts = { pools: [after], allocations: [own('10.0.0.16/29'), other] };
      expect(poolOf('a', parts).usage).toMatchObject({ free: '8', withheld: '8' });
    });

    it('counts every block of its own records, when they are recorded', () => {
      const register = registerOf({ pools: [before], allocations: [own('10.0.0.16/29')] });
      expect(register.store.pools.get('IPPool/a').usage).toMatchObject({ total: '8', free: '8' });
      register.take(objects({ pools: [after], allocations: [own('10.0.0.16/29')] }));
      expect(register.store.pools.get('IPPool/a').usage).toMatchObject({ total: '16', free: '8' });
      const recorded = own('10.0.0.24/30', { additionalCIDRs: ['10.0.0.28/30'] });
      recorded.metadata.uid = 'second record';
      const allocations = [own('10.0.0.16/29'), recorded];
      register.take(objects({ pools: [after], allocations }));
      expect(register.store.pools.get('IPPool/a').usage).toMatchObject({ total: '16', free: '16' });
      register.take(objects({ pools: [after], allocations: allocations.slice(0, 1) }));
      expect(register.store.pools.get('IPPool/a').usage).toMatchObject({ total: '16', free: '8' });
    });

    it('drains a block in addresses that it has given up', () => {
      const allocations = [own('10.0.0.16/28'), held('team-a/web', 'a', '10.0.0.24/32')];
      const register = registerOf({ pools: [after], allocations });
      expect(register.store.blocks.get('record team-a/web')!.drained).toBe(false);
      register.take(objects({ pools: [before], allocations }));
      expect(register.store.blocks.get('record team-a/web')!.drained).toBe(true);
    });
  });
});
