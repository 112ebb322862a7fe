package audit

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// inCluster returns the pool nodes of two ranges, with two own records, and a claim vm that has 10.0.0.10.
func inCluster(change func(*incluster.InClusterIPPool)) (pool *incluster.InClusterIPPool, others []client.Object) {
	pool = build.InClusterPool("team", "nodes", 24, "10.0.0.10-10.0.0.11", "10.0.0.20")
	pool.Spec.Gateway = "10.0.0.1"
	key := convert.KeyOf(pool)
	for i, block := range []string{"10.0.0.10/31", "10.0.0.20/32"} {
		others = append(others, convert.Allocation(ipam.Record{
			Name:  ipam.Name{Namespace: "cadastre-system", Name: []string{"inclusterippool.team.nodes", "inclusterippool-x.team.nodes"}[i]},
			Block: netip.MustParsePrefix(block), Pool: ipam.LocalDomainNamed("team", "default", ipam.IPv4), Holder: convert.HolderOfPool(key), HolderUID: "nodes",
			Purpose: ipam.PurposePool, State: ipam.StateBound,
		}))
	}
	vm := build.AddressClaim("team", "vm").From(incluster.GroupVersion.Group, "InClusterIPPool", "nodes").Obj()
	vm.UID, vm.Status.AddressRef.Name = "vm", "vm"
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm"}, Spec: ipamv1.IPAddressSpec{
		Address: "10.0.0.10", Prefix: new(int32(24)), Gateway: "10.0.0.1", PoolRef: vm.Spec.PoolRef, ClaimRef: ipamv1.IPAddressClaimReference{Name: "vm"},
	}}
	record := convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: "vm"}, Block: netip.MustParsePrefix("10.0.0.10/32"), Pool: key,
		Holder: convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "vm"}), HolderUID: "vm", Purpose: ipam.PurposeClaim, State: ipam.StateBound,
	})
	change(pool)
	return pool, append(others, vm, address, record)
}

// read reads and judges objects.
func read(t *testing.T, objects ...client.Object) []string {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(ipamv1.AddToScheme(scheme))
	utilruntime.Must(incluster.AddToScheme(scheme))
	reader := Reader{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), Now: func() time.Time { return now },
		LeaderSince: func(context.Context) time.Time { return time.Time{} },
	}
	snapshot, err := reader.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	findings, _ := Judge(snapshot, grace)
	var texts []string
	for i := range findings {
		texts = append(texts, string(findings[i].Kind)+" "+findings[i].Object.String())
	}
	return texts
}

func TestInClusterPoolsAreJudgedIfServed(t *testing.T) {
	isServed := func(p *incluster.InClusterIPPool) { build.Served(p, v1alpha1.ReasonReady) }
	shrunk := func(p *incluster.InClusterIPPool) { isServed(p); p.Spec.Addresses = []string{"10.0.0.20"} }
	changed := func(p *incluster.InClusterIPPool) { isServed(p); p.Spec.Gateway = "10.0.0.2" }
	provided := func(*incluster.InClusterIPPool) {}
	leased := func(p *incluster.InClusterIPPool) { build.Served(p, v1alpha1.ReasonProviderRunning) }
	other := build.Served(build.InClusterPool("team", "other", 24, "10.9.0.10"), v1alpha1.ReasonPaused)
	other.Status.Conditions = other.Status.Conditions[:1] // it is not recorded
	with := func(change func(*incluster.InClusterIPPool), indexes ...int) []client.Object {
		pool, others := inCluster(change)
		objects := []client.Object{pool, other}
		for _, i := range indexes {
			objects = append(objects, others[i])
		}
		return objects
	}
	const own, own2, claim, address, record = 0, 1, 2, 3, 4
	for name, test := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"all agrees":                    {with(isServed, own, own2, claim, address, record), nil},
		"an address is not recorded":    {with(isServed, own, own2, claim, address), []string{"HolderWithoutRecord IPAddress team/vm"}},
		"... of a pool of the provider": {with(provided, own, own2, claim, address), nil},
		"... while the provider runs":   {with(leased, own, own2, claim, address), nil},
		"the claim is gone":             {with(isServed, own, own2, address, record), []string{"AddressWithoutClaim IPAddress team/vm"}},
		"the pool is not recorded":      {with(isServed, claim, address, record), []string{"HolderWithoutRecord InClusterIPPool team/nodes"}},
		"an address is outside of it":   {with(shrunk, own2, claim, address, record), []string{"BlockOutsidePool IPAllocation team/vm"}},
		"it has another gateway now":    {with(changed, own, own2, claim, address, record), []string{"NetworkDiffersFromPool InClusterIPPool team/nodes"}},
		"the pool is gone": {with(isServed, own, own2, claim, address, record)[1:], []string{
			"RecordWithoutPool IPAllocation team/vm",
			"RecordWithoutHolder IPAllocation cadastre-system/inclusterippool-x.team.nodes", "RecordWithoutHolder IPAllocation cadastre-system/inclusterippool.team.nodes",
		}},
		"... and Cadastre serves no such one": {with(isServed, own, own2, claim, address, record)[2:], nil},
	} {
		got := read(t, test.objects...)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
