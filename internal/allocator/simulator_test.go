package allocator

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// newSnapshot returns a snapshot with the pool p of class gold, and with its own record.
func newSnapshot(pool *build.PoolBuilder, cidr string) Snapshot {
	block := netip.MustParsePrefix(cidr)
	own := ipam.Record{
		Name: convert.RecordOfPool("system", ipam.PoolNamed("p")), UID: "own", Version: "1", Block: block, Pool: ipam.DomainNamed("default", ipam.IPv4),
		Holder: convert.HolderOfPool(ipam.PoolNamed("p")), Purpose: ipam.PurposePool, State: ipam.StateBound,
	}
	return Snapshot{
		Objects: []client.Object{
			pool.CIDR(cidr).Classes("gold").Obj(), build.Class("gold").Obj(),
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
		},
		Records: []ipam.Record{own},
	}
}

// orderFor returns the order of a claim for an address of class gold.
func orderFor(t *testing.T, sim *Simulator, name string) Order {
	t.Helper()
	request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: name}, Class: "gold", Length: 32}
	resolution, err := sim.Resolve(t.Context(), request)
	must(t, err)
	return Order{Resolution: resolution, Origin: OriginController, Holder: convert.HolderOfClaim(request.Claim), HolderUID: name}
}

// TestSimulatorAnswersFromListedState loads a pool of two addresses of which one is held, and a claim
// that waits: the other address goes to that claim, and not to a claim that comes now. If a holder of
// another kind waits longer, it goes to that one.
func TestSimulatorAnswersFromListedState(t *testing.T) {
	held := ipam.Record{
		Name: ipam.Name{Namespace: "ns", Name: "held"}, UID: "held", Version: "1", Block: netip.MustParsePrefix("10.0.0.0/32"), Pool: ipam.PoolNamed("p"),
		Holder: convert.HolderOfClaim(ipam.Name{Namespace: "ns", Name: "held"}), Purpose: ipam.PurposeClaim, State: ipam.StateBound,
	}
	waits := build.Claim("ns", "waits").Class("gold").Length(32).Obj()
	waits.CreationTimestamp = metav1.Time{Time: time.Unix(100, 0)}
	address := ipam.Name{Namespace: "ns", Name: "address"}
	longer := queue.Waiter{
		Since: time.Unix(50, 0), Holder: convert.HolderOfAddressClaim(address),
		Request: ipam.Request{Claim: address, Class: "gold", Length: 32, Single: true},
	}
	snapshot := newSnapshot(build.Pool("p"), "10.0.0.0/31")
	own := snapshot.Records[0]
	snapshot.Records, snapshot.Waiting = []ipam.Record{held, own}, []v1alpha1.IPClaim{*waits}
	for _, c := range []struct {
		waiters []queue.Waiter
		want    map[string]string
	}{
		{nil, map[string]string{"waits": "p Fits", "newcomer": "p OutOfTurn"}},
		{[]queue.Waiter{longer}, map[string]string{"waits": "p OutOfTurn"}},
	} {
		snapshot.Waiters = c.waiters
		sim, err := NewSimulator(snapshot)
		must(t, err)
		defer sim.Close()
		for name, want := range c.want {
			if got := verdicts(sim.Consider(orderFor(t, sim, name), 1)); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		if got := sim.Catalog.RecordOfPool(ipam.PoolNamed("p")); got != own.Name {
			t.Errorf("the own record of the pool is %s, want %s", got, own.Name)
		}
		sim.Ledger.Load([]ipam.Record{own}, nil)
		if n := sim.Ledger.Records(ipam.PoolNamed("p")); n != 0 {
			t.Errorf("%d records are left of the list before, want none", n)
		}
	}
}

// TestSupposedBlocksCountForLaterQuestions supposes claims of a project that may have two blocks.
func TestSupposedBlocksCountForLaterQuestions(t *testing.T) {
	sim, err := NewSimulator(newSnapshot(build.Pool("p").Limit(2), "10.0.0.0/24"))
	must(t, err)
	defer sim.Close()
	for _, name := range []string{"a", "b"} {
		_, err := sim.Suppose(orderFor(t, sim, name))
		must(t, err)
	}
	if n := sim.Ledger.Records(ipam.PoolNamed("p")); n != 2 {
		t.Errorf("the pool has %d records, want 2", n)
	}
	if _, err := sim.Suppose(orderFor(t, sim, "c")); !isA[*ipam.LimitError](err) {
		t.Errorf("beyond the limit: %v", err)
	}
}
