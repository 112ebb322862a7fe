package ledger

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// inCluster returns a pool of the in-cluster provider's kind that has some blocks of the subnet.
func inCluster(name string, home ipam.PoolKey, blocks ...string) ipam.Pool {
	pool := rangesPool("uid-of-"+name, blocks...)
	pool.Key, pool.Home = ipam.PoolKey{Kind: ipam.PoolKindGlobalInClusterIPPool, Name: name}, home
	return pool
}

// addressOf returns the record of an address of a pool.
func addressOf(pool ipam.Pool, name, block string) *v1alpha1.IPAllocation {
	o := allocation(name, "uid-of-"+name, "1", block)
	o.Spec.PoolRef = &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKind(pool.Key.Kind), Name: pool.Key.Name}
	return o
}

func TestStrayIsNotHandedOut(t *testing.T) {
	nodes := inCluster("nodes", home, "10.9.0.8/29")
	vips := inCluster("vips", home, "10.9.0.8/29", "10.9.0.16/29")
	lab := inCluster("lab", ipam.DomainNamed("lab", ipam.IPv4), "10.9.0.8/29")
	ask := func(name string, block string) Ask {
		a := Ask{Pool: nodes.Key, Bits: 32, Record: ipam.Name{Namespace: "ns", Name: name}, Holder: ipam.Holder{Kind: "IPAddressClaim", Namespace: "ns", Name: name}}
		if block != "" {
			a.Block = netip.MustParsePrefix(block)
		}
		return a
	}
	l := newListedLedger(t,
		ownRecord(nodes.Key, "nodes", "uid-of-nodes", "10.9.0.8/29"), ownRecord(vips.Key, "vips", "uid-of-vips", "10.9.0.16/29"), inHome(ownRecord(lab.Key, "lab", "uid-of-lab", "10.9.0.12/30")),
		addressOf(vips, "v8", "10.9.0.8/32"), addressOf(vips, "v9", "10.9.0.9/32"), addressOf(vips, "v16", "10.9.0.16/32"), addressOf(lab, "l10", "10.9.0.10/32"),
	)
	for _, pool := range []ipam.Pool{nodes, vips, lab} {
		l.Describe(pool)
	}
	var taken *ipam.TakenError
	if _, err := l.Hold(ask("fixed", "10.9.0.9/32")); !errors.As(err, &taken) || taken.Holder.Name != "v9" {
		t.Errorf("holding a stray's block: %v, want an error that names its holder", err)
	}
	for i, want := range []string{"10.9.0.10", "10.9.0.11", "10.9.0.12", "10.9.0.13", "10.9.0.14", "10.9.0.15"} {
		h, err := l.Hold(ask(fmt.Sprintf("n%d", i), ""))
		if err != nil || h.Block.Addr().String() != want {
			t.Fatalf("hold %d: %v, %v, want %s", i, h, err, want)
		}
	}
	var exhausted *ipam.ExhaustedError
	if _, err := l.Hold(ask("more", "")); !errors.As(err, &exhausted) {
		t.Errorf("holding what strays have: %v, want that the pool is exhausted", err)
	}
	must(t, deletes(addressOf(vips, "v8", "10.9.0.8/32"))(l))
	h, err := l.Hold(ask("more", ""))
	if err != nil || h.Block.Addr().String() != "10.9.0.8" {
		t.Fatalf("holding after the stray is gone: %v, %v, want 10.9.0.8", h, err)
	}
	must(t, adds(addressOf(vips, "v8", "10.9.0.8/32"))(l))
	must(t, adds(addressOf(nodes, "more", "10.9.0.8/32"))(l))
	if err := h.Confirm(t.Context(), "uid-of-more"); !errors.Is(err, ErrLost) {
		t.Errorf("confirming what a stray has first: %v, want %v", err, ErrLost)
	}
	must(t, adds(ownRecord(vips.Key, "edited", "uid-of-vips", "10.9.0.9/32"))(l))
	must(t, deletes(ownRecord(nodes.Key, "nodes", "uid-of-nodes", "10.9.0.8/29"))(l))
	if e := l.strayOn(l.poolViews[nodes.Key], netip.MustParsePrefix("10.9.0.9/32")); e != nil {
		t.Errorf("%s is a stray although its pool has the address now", e.name)
	}
	must(t, errors.Join(deletes(addressOf(vips, "v8", "10.9.0.8/32"))(l), deletes(addressOf(lab, "l10", "10.9.0.10/32"))(l)))
	if len(l.strays) > 0 {
		t.Errorf("%v are kept of strays that are gone", l.strays)
	}
}
