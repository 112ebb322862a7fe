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
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestSimulatorAnswersFromListedState loads a pool of two addresses of which one is held, and a claim
// that waits: the other address goes to that claim, and not to a claim that comes now.
func TestSimulatorAnswersFromListedState(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/31")
	own := ipam.Record{
		Name: convert.RecordOfPool("system", ipam.PoolNamed("p")), UID: "own", Version: "1", Block: cidr, Pool: ipam.DomainNamed("default", ipam.IPv4),
		Holder: convert.HolderOfPool(ipam.PoolNamed("p")), Purpose: ipam.PurposePool, State: ipam.StateBound,
	}
	held := ipam.Record{
		Name: ipam.Name{Namespace: "ns", Name: "held"}, UID: "held", Version: "1", Block: netip.MustParsePrefix("10.0.0.0/32"), Pool: ipam.PoolNamed("p"),
		Holder: convert.HolderOfClaim(ipam.Name{Namespace: "ns", Name: "held"}), Purpose: ipam.PurposeClaim, State: ipam.StateBound,
	}
	waits := build.Claim("ns", "waits").Class("gold").Length(32).Obj()
	waits.CreationTimestamp = metav1.Time{Time: time.Unix(100, 0)}
	sim, err := NewSimulator(Snapshot{
		Objects: []client.Object{
			build.Pool("p").CIDR(cidr.String()).Classes("gold").Obj(), build.Class("gold").Obj(),
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
		},
		Records: []ipam.Record{own, held}, Waiting: []v1alpha1.IPClaim{*waits},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	for name, want := range map[string]string{"waits": "p Fits", "newcomer": "p OutOfTurn"} {
		request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: name}, Class: "gold", Length: 32}
		resolution, err := sim.Resolve(t.Context(), request)
		must(t, err)
		got := verdicts(sim.Consider(Order{Resolution: resolution, Origin: OriginController, Holder: convert.HolderOfClaim(request.Claim), HolderUID: name}, 1))
		if !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	sim.Ledger.Load([]ipam.Record{own}, nil)
	if n := sim.Ledger.Records(ipam.PoolNamed("p")); n != 0 {
		t.Errorf("%d records are left of the list before, want none", n)
	}
}
