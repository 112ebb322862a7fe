package register

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// store answers lists of records by selectors, as the API server does, and counts them.
type store struct {
	records []*v1alpha1.IPAllocation
	asked   int
}

func (s *store) hold(pool ipam.PoolKey, block netip.Prefix, purpose ipam.Purpose, holder ipam.Holder) {
	record := convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: fmt.Sprint("r-", len(s.records))}, UID: fmt.Sprint("uid-", len(s.records)),
		Block: block, Pool: pool, Holder: holder, Purpose: purpose, State: ipam.StateBound,
	})
	s.records = append(s.records, record)
}

// read reads the scope, as Read does.
func (s *store) read(scope Scope, objects Objects) *Register {
	for selectors := range scope.selectorSteps(&objects) {
		objects.RecordsRead = true
		lists := [][]*v1alpha1.IPAllocation{}
		for _, selector := range selectors {
			s.asked++
			lists = append(lists, s.list(selector))
		}
		objects.Allocations = merged(append(lists, objects.Allocations))
	}
	return Build(&objects)
}

func (s *store) list(selector fields.Selector) []*v1alpha1.IPAllocation {
	var found []*v1alpha1.IPAllocation
	for _, record := range s.records {
		recordFields := fields.Set{"spec.cidr": record.Spec.CIDR, "spec.claimRef.name": record.Spec.ClaimRef.Name}
		if record.Spec.PoolRef != nil {
			recordFields["spec.poolRef.name"] = record.Spec.PoolRef.Name
		}
		if selector.Matches(recordFields) {
			found = append(found, record)
		}
	}
	return found
}

// recorded returns a pool as it is once its CIDR is recorded, with so many records.
func recorded(pool *v1alpha1.IPPool, cidr string, records int64) v1alpha1.IPPool {
	pool.Spec.CIDR = cidr
	pool.UID = types.UID(pool.Name)
	pool.Status = v1alpha1.PoolStatus{AllocatedCIDR: cidr, Allocations: records, Capacity: &v1alpha1.Capacity{Total: "1"}}
	return *pool
}

// TestScopedReadFindsSameRecords compares the records that are found at random addresses with those
// among all records there.
func TestScopedReadFindsSameRecords(t *testing.T) {
	for _, records := range []int64{10, 100000} { // as the status of pools states
		objects := Objects{Pools: []v1alpha1.IPPool{
			recorded(build.Pool("root").CIDR("10.0.0.0/16").Obj(), "10.0.0.0/16", records),
			recorded(build.Pool("child").Child("root", 20).Obj(), "10.0.16.0/20", records),
			recorded(build.Pool("other").CIDR("10.0.0.0/17").Domain("lab").Obj(), "10.0.0.0/17", records),
			recorded(build.Pool("wide").CIDR("8.0.0.0/6").Domain("wide").Obj(), "8.0.0.0/6", records),
		}}
		random := rand.New(rand.NewPCG(1, 2))
		s := &store{}
		s.hold(ipam.PoolNamed("root"), netip.MustParsePrefix("10.0.16.0/20"), ipam.PurposePool, convert.HolderOfPool(ipam.PoolNamed("child")))
		for _, pool := range []string{"root", "child", "other", "wide"} {
			s.fill(random, pool, Build(&Objects{Pools: objects.Pools, Allocations: s.records}))
		}
		all := Build(&Objects{Pools: objects.Pools, Allocations: s.records})
		for i := range objects.Pools { // with single addresses beside the held ones
			pool := all.Pool(ipam.PoolNamed(objects.Pools[i].Name))
			usage, _ := pool.Usage()
			more := space.CountOf64(uint64(max(int(records)-usage.Blocks, 0)))
			objects.Pools[i].Status.Capacity.Allocated = usage.Held.Add(usage.Carved).Add(more).String()
		}
		for range 400 {
			address := randomAddress(random)
			block := netip.PrefixFrom(address, 32)
			want := recordsAt(all, block)
			got := recordsAt(s.read(At(address), objects), block)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s, with %d records: (-among all +looked up)\n%s", address, records, diff)
			}
		}
	}
}

// fill holds random blocks of a pool that are free.
func (s *store) fill(random *rand.Rand, name string, r *Register) {
	pool := r.Pool(ipam.PoolNamed(name))
	used := pool.Space()
	for i := range 60 {
		length := pool.CIDR.Bits() + 4 + random.IntN(32-pool.CIDR.Bits()-3)
		if block, ok := used.FindFrom(randomAddress(random), length); ok {
			used.Use(block)
			s.hold(pool.Key, block, ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: fmt.Sprint("c-", i)}))
		}
	}
}

func randomAddress(random *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+uint32(random.IntN(1<<17)))))
}

func recordsAt(r *Register, block netip.Prefix) map[string][]string {
	found := map[string][]string{}
	for _, pool := range r.Pools {
		for _, record := range pool.Overlapping(block) {
			found[pool.Key.Name] = append(found[pool.Key.Name], record.Block.String())
		}
	}
	return found
}

func TestHeldAddressIsFoundInOneStep(t *testing.T) {
	objects := Objects{Pools: []v1alpha1.IPPool{recorded(build.Pool("hosts").CIDR("10.0.0.0/12").Obj(), "10.0.0.0/12", 100000)}}
	s := &store{}
	s.hold(ipam.PoolNamed("hosts"), netip.MustParsePrefix("10.0.7.77/32"), ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "c"}))
	s.read(At(netip.MustParseAddr("10.0.7.77")), objects)
	if s.asked != lengthsAtOnce {
		t.Errorf("asked %d times, want %d", s.asked, lengthsAtOnce)
	}
	s.asked = 0
	s.read(At(netip.MustParseAddr("10.0.7.78")), objects) // free: each length is needed
	if want := 32 - 12 + 1; s.asked != want {
		t.Errorf("asked %d times for a free address, want %d", s.asked, want)
	}
}

// TestScopedReadSkipsImpossibleLengths uses the counts in the status of the pool.
func TestScopedReadSkipsImpossibleLengths(t *testing.T) {
	for name, c := range map[string]struct {
		pool, address string
		allocated     string
		allocations   int64
		asked         int
	}{
		"single addresses":            {"10.0.0.0/12", "10.0.7.78", "100000", 100000, 1},
		"single addresses of IPv6":    {"2001:db8::/32", "2001:db8::7", "100000", 100000, 1},
		"one block may be a /25":      {"10.0.0.0/12", "10.0.7.78", "100128", 100001, 8},
		"one block may be a /24":      {"10.0.0.0/12", "10.0.7.78", "100256", 100001, 9},
		"as large as the pool":        {"10.0.0.0/12", "10.0.7.78", "1048576", 100000, 32 - 12},
		"fewer addresses than blocks": {"10.0.0.0/12", "10.0.7.78", "99999", 100001, 32 - 12 + 1},
		"no count":                    {"10.0.0.0/12", "10.0.7.78", "", 100000, 32 - 12 + 1},
	} {
		pool := recorded(build.Pool("hosts").CIDR(c.pool).Obj(), c.pool, c.allocations)
		pool.Status.Capacity.Allocated = c.allocated
		s := &store{}
		s.read(At(netip.MustParseAddr(c.address)), Objects{Pools: []v1alpha1.IPPool{pool}})
		if s.asked != c.asked {
			t.Errorf("%s: asked %d times, want %d", name, s.asked, c.asked)
		}
	}
}

func TestRecordsOfDeletedPoolsAreFound(t *testing.T) {
	s := &store{}
	s.hold(ipam.PoolNamed("gone"), netip.MustParsePrefix("10.0.7.0/24"), ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "c"}))
	r := s.read(At(netip.MustParseAddr("10.0.7.77")), Objects{})
	if got := len(recordsAt(r, netip.MustParsePrefix("10.0.7.77/32"))); got != 1 {
		t.Errorf("found records of %d pools, want those of 1", got)
	}
}

func TestStalePoolStatusRequiresRecords(t *testing.T) {
	fresh := recorded(build.Pool("fresh").CIDR("10.0.0.0/16").Obj(), "10.0.0.0/16", 1)
	old := recorded(build.Pool("old").CIDR("10.1.0.0/16").Obj(), "10.1.0.0/16", 1)
	old.Generation = 2
	without := recorded(build.Pool("without").CIDR("10.2.0.0/16").Obj(), "10.2.0.0/16", 1)
	without.Status.Capacity = nil
	waits := build.Pool("waits").Child("fresh", 24).Obj()
	for name, tc := range map[string]struct {
		objects Objects
		want    bool
	}{
		"no pools":             {Objects{}, false},
		"a fresh status":       {Objects{Pools: []v1alpha1.IPPool{fresh}}, false},
		"a pool without CIDR":  {Objects{Pools: []v1alpha1.IPPool{fresh, *waits}}, false},
		"an old status":        {Objects{Pools: []v1alpha1.IPPool{fresh, old}}, true},
		"no status":            {Objects{Pools: []v1alpha1.IPPool{fresh, without}}, true},
		"pools cannot be read": {Objects{Unread: []Unread{{Resource: "ippools"}}}, true},
	} {
		if got := (&store{}).read(NoneOfKnown(), tc.objects).RecordsRead; got != tc.want {
			t.Errorf("%s: records are read: %t, want %t", name, got, tc.want)
		}
	}
}
