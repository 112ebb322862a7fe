package ledger

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// gateways counts the addresses of a pool that are held, by the gateway that was handed out
// with them. While one of them is held, its gateway is not handed out, also if the pool has
// another one by now: hosts send their packets to it.
type gateways struct {
	// counts has the zero Addr for addresses whose records state none. There are few keys:
	// one for each gateway that the pool had.
	counts map[netip.Addr]int
	// assumed is the gateway of those records, which may be from before records stated it:
	// that of the pool when this process first read it.
	assumed netip.Addr
}

// handedOut returns the gateway that the entry states, and whether the entry is an address that
// is held by a claim. What is retained, or cools down, no host has.
func (e *entry) handedOut() (gateway netip.Addr, isHeld bool) {
	a := e.alike.Value()
	isHeld = e.hold != nil || a.state == ipam.StateBound
	return a.gateway, isHeld && e.block.IsSingleIP() && !e.holder().IsPool()
}

// with returns how many addresses are held that were handed out with a gateway.
func (g *gateways) with(gateway netip.Addr) int {
	n := g.counts[gateway]
	if gateway.IsValid() && gateway == g.assumed {
		n += g.counts[netip.Addr{}]
	}
	return n
}

// all are the gateways, without those of records that state none where that is not known.
func (g *gateways) all() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for gateway := range g.counts {
			if !gateway.IsValid() && g.counts[g.assumed] == 0 {
				gateway = g.assumed
			}
			if gateway.IsValid() && !yield(gateway) {
				return
			}
		}
	}
}

// gatewaysIn are those that lie in a block.
func (g *gateways) gatewaysIn(block netip.Prefix) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if block.IsSingleIP() {
			if g.with(block.Addr()) > 0 {
				yield(block.Addr())
			}
			return
		}
		for gateway := range g.all() {
			if block.Contains(gateway) && !yield(gateway) {
				return
			}
		}
	}
}

// hasGatewayIn reports whether an address is held that was handed out with a gateway in the
// block.
func (g *gateways) hasGatewayIn(block netip.Prefix) bool {
	for range g.gatewaysIn(block) {
		return true
	}
	return false
}

// assumeGateway takes the gateway of a pool that is described for that of records which state
// none, unless it is a later one than they were handed out with.
func (b *book) assumeGateway(pool ipam.Pool) {
	if b.space != nil && b.counts[netip.Addr{}] > 0 {
		return
	}
	if b.assumed = (netip.Addr{}); pool.Network != nil {
		b.assumed = pool.Network.Gateway
	}
}

// countGateway counts the gateway of an entry that comes, 1, or goes, -1.
func (b *book) countGateway(e *entry, n int) {
	if gateway, isHeld := e.handedOut(); isHeld {
		b.addToGateway(gateway, n)
	}
}

// gatewayChanged counts an entry that states another gateway than before, or is held otherwise.
func (b *book) gatewayChanged(e *entry, before netip.Addr, wasHeld bool) {
	if now, isHeld := e.handedOut(); now == before && isHeld == wasHeld {
		return
	}
	b.countGateway(e, 1)
	if wasHeld {
		b.addToGateway(before, -1)
	}
}

func (b *book) addToGateway(gateway netip.Addr, n int) {
	if b.counts[gateway] += n; b.counts[gateway] == 0 {
		delete(b.counts, gateway)
	}
	if !gateway.IsValid() {
		gateway = b.assumed
	}
	switch block := blockOf(gateway); {
	case !b.isFormer(gateway):
	case b.with(gateway) == 0:
		b.free(block)
	default:
		b.space.Use(block)
	}
}

// isFormer reports whether a gateway is an address of the pool that its spec does not withhold.
func (b *book) isFormer(gateway netip.Addr) bool {
	return b.space != nil && gateway.IsValid() && b.pool.CIDR.Contains(gateway) && !b.pool.Withheld.Overlaps(blockOf(gateway))
}

// formerGateways are the withheld addresses that the spec of the pool does not withhold.
func (b *book) formerGateways() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for gateway := range b.all() {
			if b.isFormer(gateway) && !yield(gateway) {
				return
			}
		}
	}
}

// useGateways marks the former gateways in a block as in use.
func (b *book) useGateways(block netip.Prefix) {
	for gateway := range b.gatewaysIn(block) {
		if b.isFormer(gateway) {
			b.space.Use(blockOf(gateway))
		}
	}
}

// isRecorded reports whether a record has a part of the block.
func (b *book) isRecorded(block netip.Prefix) bool { return b.rival(block, ipam.Name{}) != nil }

// blockOf is the block of one address.
func blockOf(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// deepest bounds how many pools lie in each other.
const deepest = 128

// HolderAt returns the record of an address in the routing domain of a pool, of the pool, one
// of those that it lies in, or one that lies in them; false where nothing holds it.
func (l *Ledger) HolderAt(pool ipam.Pool, addr netip.Addr) (ipam.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range deepest {
		if !pool.Key.Kind.IsPool() || pool.CIDR.Contains(addr) {
			break
		}
		home := l.books[pool.Home]
		if home == nil || home.space == nil {
			return ipam.Record{}, false
		}
		pool = home.pool
	}
	key := pool.Key
	for range deepest {
		b := l.books[key]
		if b == nil {
			break
		}
		e := b.rival(blockOf(addr), ipam.Name{})
		if e == nil {
			break
		}
		if !e.holder().IsPool() {
			return e.record(), true
		}
		key = convert.PoolOf(e.holder())
	}
	return ipam.Record{}, false
}

// HandedOut returns how many addresses of a pool claims hold, and how many of them were handed
// out with the gateway.
func (l *Ledger) HandedOut(pool ipam.PoolKey, gateway netip.Addr) (all, with int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[pool]
	if b == nil {
		return 0, 0
	}
	for _, n := range b.counts {
		all += n
	}
	return all, b.with(gateway)
}

// FormerGateways returns the addresses that a pool withholds only because addresses that are
// held were handed out with them, in order.
func (l *Ledger) FormerGateways(pool ipam.PoolKey) []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[pool]
	if b == nil {
		return nil
	}
	return slices.SortedFunc(b.formerGateways(), netip.Addr.Compare)
}
