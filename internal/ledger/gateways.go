package ledger

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// gateways counts the held addresses of a pool by the gateway that was handed out with them. That
// gateway is not handed out, even if the pool has another by now: hosts send their packets to it.
type gateways struct {
	// counts has few keys: each gateway that the pool had, and the zero Addr for records that state
	// none.
	counts map[netip.Addr]int
	// assumedGateway is the gateway of those records, which may be from before records stated it: the
	// pool's when this process first read the pool.
	assumedGateway netip.Addr
}

// gatewayInUse returns the gateway that the entry states, and whether a claim holds the address. No
// host has a block that is retained or cools down.
func (e *entry) gatewayInUse() (gateway netip.Addr, isHeld bool) {
	a := e.shared.Value()
	isHeld = e.hold != nil || a.state == ipam.StateBound
	return a.gateway, isHeld && e.block.IsSingleIP() && !e.holder().IsPool()
}

// count returns the number of held addresses that were handed out with a gateway.
func (g *gateways) count(gateway netip.Addr) int {
	n := g.counts[gateway]
	if gateway.IsValid() && gateway == g.assumedGateway {
		n += g.counts[netip.Addr{}]
	}
	return n
}

// addresses returns the known gateways.
func (g *gateways) addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for gateway := range g.counts {
			if !gateway.IsValid() && g.counts[g.assumedGateway] == 0 {
				gateway = g.assumedGateway
			}
			if gateway.IsValid() && !yield(gateway) {
				return
			}
		}
	}
}

// gatewaysIn returns the gateways that lie in a block.
func (g *gateways) gatewaysIn(block netip.Prefix) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if block.IsSingleIP() {
			if g.count(block.Addr()) > 0 {
				yield(block.Addr())
			}
			return
		}
		for gateway := range g.addresses() {
			if block.Contains(gateway) && !yield(gateway) {
				return
			}
		}
	}
}

// hasGatewayIn reports whether a held address was handed out with a gateway in the block.
func (g *gateways) hasGatewayIn(block netip.Prefix) bool {
	for range g.gatewaysIn(block) {
		return true
	}
	return false
}

// hasGatewayOf reports it for any block of a record.
func (g *gateways) hasGatewayOf(e *entry) bool {
	for part := range e.all() {
		if g.hasGatewayIn(part.block) {
			return true
		}
	}
	return false
}

// assumeGateway assumes the gateway of a pool for the records that state none, unless they are
// older.
func (b *poolView) assumeGateway(pool ipam.Pool) {
	if b.space != nil && b.counts[netip.Addr{}] > 0 {
		return
	}
	if b.assumedGateway = (netip.Addr{}); pool.Network != nil {
		b.assumedGateway = pool.Network.Gateway
	}
}

// countGateway counts the gateway of an entry that comes (1) or goes (-1).
func (b *poolView) countGateway(e *entry, n int) {
	if gateway, isHeld := e.gatewayInUse(); isHeld {
		b.addToGateway(gateway, n)
	}
}

// onGatewayChange updates the counts for an entry that has changed.
func (b *poolView) onGatewayChange(e *entry, previousGateway netip.Addr, wasHeld bool) {
	if gateway, isHeld := e.gatewayInUse(); gateway == previousGateway && isHeld == wasHeld {
		return
	}
	b.countGateway(e, 1)
	if wasHeld {
		b.addToGateway(previousGateway, -1)
	}
}

func (b *poolView) addToGateway(gateway netip.Addr, n int) {
	if b.counts[gateway] += n; b.counts[gateway] == 0 {
		delete(b.counts, gateway)
	}
	if !gateway.IsValid() {
		gateway = b.assumedGateway
	}
	switch block := blockOf(gateway); {
	case !b.isFormerGateway(gateway):
	case b.count(gateway) == 0:
		b.freeBlock(block)
	default:
		b.space.Use(block)
	}
}

// isFormerGateway reports whether a gateway is an address of the pool that its spec does not withhold.
func (b *poolView) isFormerGateway(gateway netip.Addr) bool {
	return b.space != nil && gateway.IsValid() && b.pool.CIDR.Contains(gateway) && !b.pool.Withheld.Overlaps(blockOf(gateway))
}

// formerGateways returns the withheld addresses that the spec of the pool does not withhold.
func (b *poolView) formerGateways() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for gateway := range b.addresses() {
			if b.isFormerGateway(gateway) && !yield(gateway) {
				return
			}
		}
	}
}

// useGateways marks the former gateways in a block as in use.
func (b *poolView) useGateways(block netip.Prefix) {
	for gateway := range b.gatewaysIn(block) {
		if b.isFormerGateway(gateway) {
			b.space.Use(blockOf(gateway))
		}
	}
}

// isRecorded reports whether a record has a part of the block.
func (b *poolView) isRecorded(block netip.Prefix) bool { return b.recordOn(block) != nil }

// blockOf returns the block that consists of one address.
func blockOf(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// maxDepth bounds the depth to which pools lie in each other.
const maxDepth = 128

// HolderAt returns the record that holds an address in the routing domain of a pool, if any: a
// record of the pool, of one that it lies in, or of one that lies in these.
func (l *Ledger) HolderAt(pool ipam.Pool, addr netip.Addr) (ipam.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range maxDepth {
		if !pool.Key.Kind.IsPool() || pool.Has(blockOf(addr)) {
			break
		}
		parentView := l.poolViews[pool.Home]
		if parentView == nil || parentView.space == nil {
			return ipam.Record{}, false
		}
		pool = parentView.pool
	}
	key := pool.Key
	for range maxDepth {
		b := l.poolViews[key]
		if b == nil {
			break
		}
		e := b.recordOn(blockOf(addr))
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

// CountHandedOut returns the number of addresses that claims hold, and of those with the gateway.
func (l *Ledger) CountHandedOut(pool ipam.PoolKey, gateway netip.Addr) (total, matching int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.poolViews[pool]
	if b == nil {
		return 0, 0
	}
	for _, n := range b.counts {
		total += n
	}
	return total, b.count(gateway)
}

// FormerGateways returns, sorted, the addresses that a pool withholds only for held addresses.
func (l *Ledger) FormerGateways(pool ipam.PoolKey) []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.poolViews[pool]
	if b == nil {
		return nil
	}
	return slices.SortedFunc(b.formerGateways(), netip.Addr.Compare)
}
