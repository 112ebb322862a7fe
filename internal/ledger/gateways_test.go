package ledger

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// poolWithGateway returns the pool with a gateway, and without the edges of its subnet withheld.
func poolWithGateway(gateway string) ipam.Pool {
	pool := ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Network: &ipam.Network{Length: 24}}
	if gateway != "" {
		pool.Network.Gateway = netip.MustParseAddr(gateway)
		pool.Withheld = space.NewRanges(small, []space.Range{space.RangeOf(blockOf(pool.Network.Gateway))})
	}
	return pool
}

// addressWithGateway returns an address with the gateway that was handed out with it.
func addressWithGateway(name, addr, gateway string) *v1alpha1.IPAllocation {
	obj := allocation(name, "uid-"+name, "1", addr+"/32")
	obj.Spec.Gateway = gateway
	return obj
}

func askForOne(name string) Ask {
	a := ask(name)
	a.Bits = 32
	return a
}

func TestFormerGatewayIsWithheldWhileInUse(t *testing.T) {
	one := netip.MustParsePrefix("10.0.0.1/32")
	held, around := addressWithGateway("a", "10.0.0.9", "10.0.0.1"), allocation("around", "uid-around", "1", "10.0.0.0/30")
	same, gateway := addressWithGateway("other", "10.0.0.77", "10.0.0.1"), addressWithGateway("other", "10.0.0.1", "10.0.0.2")
	retained, changed := versioned(held, "2"), versioned(held, "2")
	retained.Spec.State, changed.Spec.Gateway = v1alpha1.AllocationRetained, "10.0.0.2"
	described := func(l *Ledger) error { l.Describe(poolWithGateway("10.0.0.3")); return nil }
	for name, tc := range map[string]struct {
		events []event
		free   bool
	}{
		"nothing happens":                                {nil, false},
		"the record goes":                                {[]event{deletes(held)}, true},
		"the record is being deleted":                    {[]event{updates(terminating(held, "2"))}, false},
		"the address is retained":                        {[]event{updates(retained)}, true},
		"the address is handed out with another gateway": {[]event{updates(changed)}, true},
		"the pool is described by another spec":          {[]event{described}, false},
		"a block around it is freed":                     {[]event{adds(around), deletes(around)}, false},
		"another address of the gateway goes":            {[]event{adds(same), deletes(same)}, false},
		"the gateway is a recorded address, which goes":  {[]event{adds(gateway), deletes(gateway)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			l.Describe(poolWithGateway("10.0.0.1"))
			play(t, l, lists("1", recordList(held)...))
			l.Describe(poolWithGateway("10.0.0.2"))
			play(t, l, tc.events...)
			wanted := askForOne("b")
			wanted.Block = one
			_, err := l.Hold(wanted)
			if taken, isTaken := errors.AsType[*ipam.TakenError](err); tc.free != (err == nil) || !tc.free && (!isTaken || !taken.IsWithheld()) {
				t.Errorf("the hold of the former gateway ends with %v, want free %t", err, tc.free)
			}
			if got := l.FormerGateways(key); slices.Contains(got, one.Addr()) == tc.free {
				t.Errorf("the former gateways are %s", got)
			}
		})
	}
}

func TestNextAddressSkipsFormerGateway(t *testing.T) {
	l := newLedger(1)
	l.Describe(poolWithGateway("10.0.0.0"))
	must(t, feed{l}.Replace(recordList(addressWithGateway("a", "10.0.0.9", "10.0.0.0"), addressWithGateway("b", "10.0.0.8", "10.0.0.0")), "1"))
	l.Describe(poolWithGateway("10.0.0.1"))
	if h := mustHold(t, l, askForOne("c")); h.Block.Addr().String() != "10.0.0.2" || h.Gateway().String() != "10.0.0.1" {
		t.Errorf("got %s with the gateway %s", h.Block, h.Gateway())
	}
	if all, with := l.CountHandedOut(key, netip.MustParseAddr("10.0.0.0")); all != 3 || with != 2 {
		t.Errorf("%d addresses are held, %d with the former gateway; want 3 and 2", all, with)
	}
}

func TestGatewayOfRequestIsWithheld(t *testing.T) {
	l := newLedger(1)
	l.Describe(poolWithGateway("10.0.0.0"))
	must(t, feed{l}.Replace(recordList(), "1"))
	h := mustHold(t, l, askForOne("a"))
	l.Describe(poolWithGateway("10.0.0.255"))
	if next := mustHold(t, l, askForOne("b")); next.Block.Addr().String() != "10.0.0.2" {
		t.Errorf("got %s, want the one after the first request and its gateway", next.Block)
	}
	h.Drop()
	if next := mustHold(t, l, askForOne("c")); next.Block.Addr().String() != "10.0.0.0" {
		t.Errorf("got %s, want the former gateway, which was never handed out", next.Block)
	}
}

// TestAddressUsedAsEarlierGatewayIsNotConfirmed lets another replica, which does not know
// of the new gateway yet, hand out the old one.
func TestAddressUsedAsEarlierGatewayIsNotConfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		block string
		bits  int
		first bool
		want  error
		more  []netip.Prefix
	}{
		"the other was first":                                {"10.0.0.0/32", 32, true, ErrLost, nil},
		"the other came later":                               {"10.0.0.0/32", 32, false, nil, nil},
		"the other was first, and a block":                   {"10.0.0.0/28", 28, true, ErrLost, nil},
		"the other came later, and a block":                  {"10.0.0.0/28", 28, false, nil, nil},
		"the other was first, and is in an additional block": {"10.0.0.96/28", 28, true, ErrLost, prefixes("10.0.0.0/28")},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			l.Describe(poolWithGateway("10.0.0.255"))
			must(t, feed{l}.Replace(recordList(), "1"))
			a := ask("a")
			a.Bits = tc.bits
			if a.AdditionalBlocks = tc.more; tc.more != nil {
				a.Block = netip.MustParsePrefix(tc.block)
			}
			h := mustHold(t, l, a)
			other := addressWithGateway("other", "10.0.0.77", "10.0.0.0")
			if tc.first {
				must(t, feed{l}.Add(other))
			}
			recorded := allocation("a", "uid-a", "2", tc.block)
			for _, block := range tc.more {
				recorded.Spec.AdditionalCIDRs = append(recorded.Spec.AdditionalCIDRs, block.String())
			}
			must(t, feed{l}.Add(recorded))
			if !tc.first {
				must(t, feed{l}.Add(other))
			}
			if err := h.Confirm(context.Background(), "uid-a"); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestRecordWithoutGatewayCountsPoolGateway covers records from before they stated one.
func TestRecordWithoutGatewayCountsPoolGateway(t *testing.T) {
	former := netip.MustParseAddr("10.0.0.1")
	l := New(Options{})
	must(t, feed{l}.Replace(recordList(allocation("old", "1", "1", "10.0.0.9/32"), allocation("block", "2", "1", "10.0.0.16/28")), "1"))
	l.Describe(poolWithGateway("10.0.0.1"))
	l.Describe(poolWithGateway("10.0.0.2"))
	l.Describe(poolWithGateway("10.0.0.3"))
	if all, with := l.CountHandedOut(key, former); all != 1 || with != 1 {
		t.Errorf("%d addresses are held, %d with the first gateway; want 1 and 1", all, with)
	}
	if got := l.FormerGateways(key); !slices.Equal(got, []netip.Addr{former}) {
		t.Errorf("the former gateways are %s", got)
	}
	must(t, feed{l}.Delete(allocation("old", "1", "1", "10.0.0.9/32")))
	if got := l.FormerGateways(key); len(got) > 0 {
		t.Errorf("the former gateways are %s once the record is gone", got)
	}
	a := askForOne("a")
	a.Block = blockOf(former)
	mustHold(t, l, a).Drop()
	l.Describe(poolWithGateway(""))
	must(t, feed{l}.Add(allocation("new", "3", "1", "10.0.0.9/32")))
	l.Describe(poolWithGateway("10.0.0.2"))
	l.Describe(poolWithGateway("10.0.0.3"))
	if got := l.FormerGateways(key); len(got) > 0 {
		t.Errorf("the former gateways are %s, and the pool had none when the address was handed out", got)
	}
}

func TestFormerGatewaysAreCountedAsWithheld(t *testing.T) {
	l := newLedger(1)
	l.Describe(poolWithGateway("10.0.0.1"))
	must(t, feed{l}.Replace(recordList(addressWithGateway("a", "10.0.0.9", "10.0.0.1"), addressWithGateway("b", "10.0.0.8", "10.0.0.7"), addressWithGateway("c", "10.0.0.7", "fe80::1"), addressWithGateway("d", "10.0.0.20", "10.0.0.6")), "1"))
	l.Describe(poolWithGateway("10.0.0.2"))
	c, _ := l.Capacity(key)
	got := []string{c.Total.String(), c.Allocated.String(), c.Available.String(), c.Withheld.String(), c.OutOfRange.String()}
	// Withheld are the gateway, and the former ones .1, .6 and .7, of which .7 is held.
	if want := []string{"256", "4", "249", "4", "1"}; !slices.Equal(got, want) {
		t.Errorf("total, allocated, available, withheld and out of range are %s, want %s", got, want)
	}
}

// TestGatewayOfUsedAddressIsThatOfHolder covers a dump without records.
func TestGatewayOfUsedAddressIsThatOfHolder(t *testing.T) {
	l := newLedger(1)
	l.Describe(poolWithGateway("10.0.0.2"))
	must(t, feed{l}.Replace(recordList(), "1"))
	a := askForOne("a")
	a.Block, a.InUse, a.Gateway = netip.MustParsePrefix("10.0.0.9/32"), true, netip.MustParseAddr("10.0.0.1")
	if got := mustHold(t, l, a).Gateway(); got != a.Gateway {
		t.Errorf("got %s, want %s", got, a.Gateway)
	}
}

// TestHolderAtSearchesWholeRoutingDomain covers a gateway outside of its pool.
func TestHolderAtSearchesWholeRoutingDomain(t *testing.T) {
	parent, sibling := ipam.PoolNamed("parent"), ipam.PoolNamed("sibling")
	below := func(name, cidr string) *v1alpha1.IPAllocation {
		obj := poolRecord(ipam.PoolNamed(name), cidr)
		obj.Spec.RoutingDomain, obj.Spec.PoolRef = "", &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: parent.Name}
		return obj
	}
	elsewhere := addressWithGateway("b", "10.0.0.200", "")
	elsewhere.Spec.PoolRef.Name = sibling.Name
	l := New(Options{})
	pool := ipam.Pool{Key: key, Home: parent, CIDR: netip.MustParsePrefix("10.0.0.0/25")}
	l.Describe(ipam.Pool{Key: parent, Home: home, CIDR: small})
	l.Describe(pool)
	must(t, feed{l}.Replace([]any{
		poolRecord(parent, small.String()), below(key.Name, "10.0.0.0/25"), below(sibling.Name, "10.0.0.128/25"),
		addressWithGateway("a", "10.0.0.9", ""), elsewhere,
	}, "1"))
	for addr, want := range map[string]string{"10.0.0.9": "a", "10.0.0.200": "b", "10.0.0.8": "", "10.0.0.201": "", "10.1.0.1": ""} {
		if record, ok := l.HolderAt(pool, netip.MustParseAddr(addr)); record.Holder.Name != want || ok != (want != "") {
			t.Errorf("%s: got %q, want %q", addr, record.Holder.Name, want)
		}
	}
	pool.CIDR, pool.Occupied = small, space.NewRanges(small, []space.Range{space.RangeOf(pool.CIDR)})
	if record, _ := l.HolderAt(pool, netip.MustParseAddr("10.0.0.200")); record.Holder.Name != "b" {
		t.Errorf("an address of the subnet that a pool of ranges does not occupy has the holder %q, want b", record.Holder.Name)
	}
	if _, ok := l.HolderAt(ipam.Pool{Key: ipam.PoolNamed("other"), Home: ipam.PoolNamed("unknown")}, small.Addr()); ok {
		t.Error("a pool of which the parent is not known has a holder")
	}
}
