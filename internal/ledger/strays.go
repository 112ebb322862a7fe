package ledger

import "net/netip"

// strays holds, by block, the unconfirmed records of pools of the in-cluster provider's kinds. Such a
// pool leaves out what another pool of its routing domain has, and can have an IPAddress there from
// before: the other pool must not hand it out.
type strays map[netip.Prefix]map[*entry]bool

func (s strays) add(e *entry) {
	if !e.pool().Kind.IsInCluster() {
		return
	}
	if s[e.block] == nil {
		s[e.block] = map[*entry]bool{}
	}
	s[e.block][e] = true
}

func (s strays) remove(e *entry) {
	delete(s[e.block], e)
	if len(s[e.block]) == 0 {
		delete(s, e.block)
	}
}

// strayOn returns the record of a pool of the same routing domain that has a block as a stray, or nil.
func (l *Ledger) strayOn(b *poolView, block netip.Prefix) *entry {
	for e := range l.strays[block] {
		if other := l.known(e.pool()); other != nil && other.Home == b.pool.Home {
			return e
		}
	}
	return nil
}

// passStrays returns the first free block from a free one on that no stray has. It costs O(strays).
func (l *Ledger) passStrays(b *poolView, block netip.Prefix) (netip.Prefix, bool) {
	for range len(l.strays) {
		if l.strayOn(b, block) == nil {
			return block, true
		}
		block, _ = b.space.FindFrom(offsetAddr(block, 1), block.Bits()) // there is one: it wraps round
	}
	return block, l.strayOn(b, block) == nil
}
