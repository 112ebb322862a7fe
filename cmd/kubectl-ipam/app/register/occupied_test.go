package register

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// own records the blocks of a child pool in one record, with the UID of the pool.
func (s *store) own(parent ipam.PoolKey, child string, blocks ...string) {
	s.hold(parent, netip.MustParsePrefix(blocks[0]), ipam.PurposePool, convert.HolderOfPool(ipam.PoolNamed(child)))
	spec := &s.records[len(s.records)-1].Spec
	spec.AdditionalCIDRs, spec.ClaimRef.UID = blocks[1:], types.UID(child)
}

func (s *store) claim(pool, block string) {
	s.hold(ipam.PoolNamed(pool), netip.MustParsePrefix(block), ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "c-" + block}))
}

// occupying returns a child pool of root that occupies ranges of 10.0.0.0/24, as recorded.
func occupying(name string, ranges ...string) v1alpha1.IPPool {
	pool := build.Pool(name).CIDR("10.0.0.0/24").Occupies(ranges...).Obj()
	pool.Spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "root"}
	return recorded(pool, "10.0.0.0/24", 10)
}

// TestRecordOfSeveralBlocksHoldsEach has 10.0.0.10-10.0.0.19 in the three blocks of one record.
func TestRecordOfSeveralBlocksHoldsEach(t *testing.T) {
	s := &store{}
	s.own(ipam.PoolNamed("root"), "a", "10.0.0.10/31", "10.0.0.12/30", "10.0.0.16/30")
	s.claim("root", "10.0.0.0/32")
	r := Build(&Objects{Pools: []v1alpha1.IPPool{*build.Pool("root").CIDR("10.0.0.0/24").Obj()}, Allocations: s.records})
	root := r.Pool(ipam.PoolNamed("root"))
	for address, want := range map[string]string{"10.0.0.9/32": "", "10.0.0.11/32": "10.0.0.10/31", "10.0.0.12/32": "10.0.0.12/30", "10.0.0.19/32": "10.0.0.16/30", "10.0.0.20/32": ""} {
		got := ""
		for _, record := range root.Overlapping(netip.MustParsePrefix(address)) {
			got += record.Block.String()
		}
		if got != want {
			t.Errorf("%s lies in %q, want %q", address, got, want)
		}
	}
	usage, _ := root.Usage()
	if usage.Carved != space.CountOf64(10) || usage.Free != space.CountOf64(245) || usage.Blocks != 2 {
		t.Errorf("carved %s, free %s, %d records; want 10, 245 and 2", usage.Carved, usage.Free, usage.Blocks)
	}
	var whole []string
	for _, record := range r.Records() {
		whole = append(whole, fmt.Sprint(record.Blocks()))
	}
	if want := []string{"[10.0.0.0/32]", "[10.0.0.10/31 10.0.0.12/30 10.0.0.16/30]"}; !slices.Equal(whole, want) {
		t.Errorf("records %v, want %v", whole, want)
	}
}

// TestEditedPoolCountsSharedBlocksOnce has two own records of a pool, which share some addresses.
func TestEditedPoolCountsSharedBlocksOnce(t *testing.T) {
	s := &store{}
	s.own(ipam.PoolNamed("root"), "a", "10.0.0.16/29", "10.0.0.24/31")
	s.own(ipam.PoolNamed("root"), "a", "10.0.0.16/28")
	r := Build(&Objects{Pools: []v1alpha1.IPPool{*build.Pool("root").CIDR("10.0.0.0/24").Reserved("10.0.0.31", "10.0.0.16").Obj(), occupying("a", "10.0.0.16/28")}, Allocations: s.records})
	usage, _ := r.Pool(ipam.PoolNamed("root")).Usage()
	if usage.Carved != space.CountOf64(16) || usage.Drained != space.CountOf64(2) || usage.Blocks != 2 {
		t.Errorf("carved %s, drained %s, %d records; want 16, 2 and 2", usage.Carved, usage.Drained, usage.Blocks)
	}
}

// TestOccupyingPoolCountsItsRanges counts the addresses of a pool that occupies ranges, one by one.
func TestOccupyingPoolCountsItsRanges(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		pool := build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0/29", "10.0.0.50-10.0.0.60").
			Occupies(fmt.Sprintf("10.0.0.%d-10.0.0.99", random.IntN(100)), fmt.Sprintf("10.0.0.150-10.0.0.%d", 150+random.IntN(106))).Obj()
		s, used := &store{}, space.New(netip.MustParsePrefix("10.0.0.0/24"))
		for range 10 { // some of them outside the ranges, as after an edit
			if block, ok := used.FindFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))}), 28+random.IntN(5)); ok {
				used.Use(block)
				s.claim("p", block.String())
			}
		}
		p := Build(&Objects{Pools: []v1alpha1.IPPool{*pool}, Allocations: s.records}).Pools[0]
		got, _ := p.Usage()
		var total, free, withheld, drained uint64
		for address := p.CIDR.Addr(); p.CIDR.Contains(address); address = address.Next() {
			single := netip.PrefixFrom(address, 32)
			isOfPool, isRecorded, isWithheld := p.Occupied.Overlaps(single), len(p.Overlapping(single)) > 0, p.Withheld.Overlaps(single)
			for _, c := range []struct {
				n  *uint64
				is bool
			}{{&total, isOfPool}, {&free, isOfPool && !isRecorded && !isWithheld}, {&withheld, isOfPool && !isRecorded && isWithheld}, {&drained, isRecorded && isWithheld}} {
				if c.is {
					*c.n++
				}
			}
		}
		want := []space.Count{space.CountOf64(total), space.CountOf64(free), space.CountOf64(withheld), space.CountOf64(drained)}
		if diff := cmp.Diff(want, []space.Count{got.Total, got.Free, got.Withheld, got.Drained}); diff != "" {
			t.Errorf("seed %d: total, free, withheld, drained (-one by one +got):\n%s", seed, diff)
		}
	}
}

func TestLargestFreeLiesInRanges(t *testing.T) {
	r := Build(&Objects{Pools: []v1alpha1.IPPool{*build.Pool("p").CIDR("10.0.0.0/24").Occupies("10.0.0.10-10.0.0.40").Obj()}})
	if got, _ := r.Pools[0].Usage(); got.LargestFree != 28 || got.Total != space.CountOf64(31) {
		t.Errorf("the largest free block is a /%d of %s addresses, want a /28 of 31", got.LargestFree, got.Total)
	}
}

// TestParentStatusCountsOccupiedRanges takes the parent's counts from its status.
func TestParentStatusCountsOccupiedRanges(t *testing.T) {
	root := recorded(build.Pool("root").CIDR("10.0.0.0/24").Obj(), "10.0.0.0/24", 3)
	root.Status.Capacity = &v1alpha1.Capacity{Total: "256", Allocated: "13", Available: "243"}
	r := Build(&Objects{Pools: []v1alpha1.IPPool{root, occupying("a", "10.0.0.10-10.0.0.19")}})
	if got, _ := r.Pool(ipam.PoolNamed("root")).UsageOfStatus(); got.Carved != space.CountOf64(10) || got.Held != space.CountOf64(3) {
		t.Errorf("carved %s, held %s; want 10 and 3", got.Carved, got.Held)
	}
}

// TestAddressesBeforeTheirRecordAreWithheld edits the ranges of a pool: another pool has some of the
// added addresses.
func TestAddressesBeforeTheirRecordAreWithheld(t *testing.T) {
	s := &store{}
	s.own(ipam.PoolNamed("root"), "a", "10.0.0.16/29")
	pools := []v1alpha1.IPPool{*build.Pool("root").CIDR("10.0.0.0/24").Obj(), occupying("a", "10.0.0.16/28")}
	for name, c := range map[string]struct {
		records []*v1alpha1.IPAllocation
		free    uint64
	}{"its own record is known": {s.records, 8}, "its own record was not read": {nil, 16}} {
		a := Build(&Objects{Pools: pools, Allocations: c.records}).Pool(ipam.PoolNamed("a"))
		if got, _ := a.Usage(); got.Free != space.CountOf64(c.free) || got.Total != space.CountOf64(16) {
			t.Errorf("%s: %s of %s addresses are free, want %d of 16", name, got.Free, got.Total, c.free)
		}
		if len(c.records) == 0 {
			continue
		}
		if got := fmt.Sprint(a.WithheldIn(a.CIDR)); got != "[{{10.0.0.24 10.0.0.31} not recorded for the pool yet}]" {
			t.Errorf("withheld are %s", got)
		}
	}
}

func TestRecordOfEarlierPoolDoesNotCoverItsSuccessor(t *testing.T) {
	s := &store{}
	s.own(ipam.PoolNamed("root"), "a", "10.0.0.16/29")
	s.own(ipam.PoolNamed("root"), "a", "10.0.0.24/29")
	s.records[1].Spec.ClaimRef.UID = "of the pool before"
	a := Build(&Objects{Pools: []v1alpha1.IPPool{*build.Pool("root").CIDR("10.0.0.0/24").Obj(), occupying("a", "10.0.0.16/28")}, Allocations: s.records}).Pool(ipam.PoolNamed("a"))
	if got, _ := a.Usage(); got.Free != space.CountOf64(8) {
		t.Errorf("%s addresses are free, want 8", got.Free)
	}
}

// TestRootPoolHoldsEachBlockOfItsDomain has the record of a pool that is gone.
func TestRootPoolHoldsEachBlockOfItsDomain(t *testing.T) {
	s := &store{}
	s.own(ipam.DomainNamed("lab", ipam.IPv4), "gone", "10.0.0.10/31", "10.0.0.12/30")
	domain := Build(&Objects{Allocations: s.records}).Domains[0]
	if got := domain.Overlapping(netip.MustParsePrefix("10.0.0.13/32")); len(got) != 1 || got[0].Block.String() != "10.0.0.12/30" {
		t.Errorf("got %v, want the second block", got)
	}
}

// TestScopedReadFindsAdditionalBlocks looks addresses up that lie in pools that occupy ranges, and beside
// them. The pool e was edited: a record has addresses that it does not state any more.
func TestScopedReadFindsAdditionalBlocks(t *testing.T) {
	objects := Objects{Pools: []v1alpha1.IPPool{
		recorded(build.Pool("root").CIDR("10.0.0.0/16").Obj(), "10.0.0.0/16", 100000),
		occupying("a", "10.0.0.10-10.0.0.19"), occupying("e", "10.0.0.100-10.0.0.103"),
	}}
	s := &store{}
	root := ipam.PoolNamed("root")
	s.own(root, "a", "10.0.0.10/31", "10.0.0.12/30", "10.0.0.16/30")
	s.own(root, "e", "10.0.0.100/30")
	s.own(root, "e", "10.0.0.96/30", "10.0.0.100/30", "10.0.0.104/30")
	s.claim("a", "10.0.0.13/32")
	s.claim("e", "10.0.0.105/32")
	s.claim("root", "10.0.0.20/32")
	all := Build(&Objects{Pools: objects.Pools, Allocations: s.records})
	for last := range 256 {
		address := netip.AddrFrom4([4]byte{10, 0, 0, byte(last)})
		block := netip.PrefixFrom(address, 32)
		if diff := cmp.Diff(recordsAt(all, block), recordsAt(s.read(At(address), objects), block)); diff != "" {
			t.Errorf("%s: (-among all +looked up)\n%s", address, diff)
		}
	}
	s.asked = 0
	s.read(At(netip.MustParseAddr("10.0.0.17")), objects)
	if want := lengthsAtOnce + 4; s.asked != want { // with the records of both pools, and what they hold
		t.Errorf("asked %d times for an additional block, want %d", s.asked, want)
	}
}

func TestScopedReadFindsRecordsOfRootPool(t *testing.T) {
	s := &store{}
	s.own(ipam.DomainNamed("default", ipam.IPv4), "p", "10.0.0.10/31", "10.0.0.12/30")
	p := recorded(build.Pool("p").CIDR("10.0.0.0/24").Occupies("10.0.0.10-10.0.0.15").Obj(), "10.0.0.0/24", 10)
	r := s.read(At(netip.MustParseAddr("10.0.0.13")), Objects{Pools: []v1alpha1.IPPool{p}})
	if got := r.Domains[0].Overlapping(netip.MustParsePrefix("10.0.0.13/32")); len(got) != 1 {
		t.Errorf("found %d records, want 1", len(got))
	}
}

func TestScopeOfPoolHasItsOwnRecords(t *testing.T) {
	s := &store{}
	s.own(ipam.PoolNamed("root"), "a", "10.0.0.16/29")
	s.claim("a", "10.0.0.16/32")
	s.claim("root", "10.0.0.1/32")
	edited := occupying("a", "10.0.0.16/28")
	a := s.read(OfPool("a"), Objects{Pools: []v1alpha1.IPPool{*build.Pool("root").CIDR("10.0.0.0/24").Obj(), edited}}).Pool(ipam.PoolNamed("a"))
	if got, _ := a.Usage(); got.Free != space.CountOf64(7) {
		t.Errorf("%s addresses are free, want 7 of the 8 that are recorded", got.Free)
	}
}
