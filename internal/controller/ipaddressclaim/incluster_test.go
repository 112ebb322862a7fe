package ipaddressclaim

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// inClusterPool makes a pool of the in-cluster provider's kind with its own record, and has claims served.
// The pool lab is in the routing domain lab.
func (e *addresses) inClusterPool(name string, addresses string) {
	e.t.Helper()
	e.controller.Client, e.controller.Targets.InCluster = indexed{e.K8s}, true
	pool := &incluster.GlobalInClusterIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == "lab" {
		pool.Annotations = map[string]string{incluster.AnnotationRoutingDomain: name}
	}
	pool.Spec.Addresses, pool.Spec.Prefix, pool.Spec.AllocateReservedIPAddresses = []string{addresses}, 24, true
	e.Created(pool)
	read, _ := convert.Pool(pool)
	e.Recorded(ipam.Record{
		Name: convert.RecordOfPool(story.System, read.Key), Block: read.Blocks()[0], Pool: read.Home, Holder: convert.HolderOfPool(read.Key),
		HolderUID: string(pool.UID), Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	})
}

func inClusterClaim(name, pool string) *build.AddressClaimBuilder {
	return build.AddressClaim(story.Team, name).Finalizer(incluster.FinalizerRelease).From(incluster.GroupVersion.Group, "GlobalInClusterIPPool", pool)
}

// unrecordedAddress finds an IPAddress that its pass has not recorded yet.
func unrecordedAddress(e *addresses) {
	e.inClusterPool("nodes", "2001:db8::4/126")
	existing := address("existing", "2001:DB8::4")
	existing.Spec.PoolRef, existing.Spec.Prefix = inClusterClaim("", "nodes").Obj().Spec.PoolRef, new(int32(24))
	e.Created(inClusterClaim("a", "nodes").Obj(), inClusterClaim("existing", "nodes").Obj(), existing)
	e.Retried("a").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).Saying("2001:db8::4/128")
	if records := e.RecordsOf(holderNamed(story.Team, "a")); len(records) != 0 {
		e.t.Fatalf("the claim has the records %v, want none", records)
	}
	e.Reconciled("existing").Served("2001:DB8::4")
	e.Reconciled("a").Served("2001:db8::5")
}

// shownLate hides the claim's own IPAddress from a pass that is about to make it, and then shows it.
func shownLate(e *addresses) {
	e.inClusterPool("nodes", "10.0.0.4/30")
	e.Created(newCluster("fleet", false), inClusterClaim("a", "nodes").Cluster("fleet").Obj())
	e.Reconciled("a").Served("10.0.0.4")
	if labels := story.Stored(e.World, address("a", "")).Labels; len(labels) != 0 {
		e.t.Errorf("the IPAddress has the labels %v, and its claim none", labels)
	}
	owners := story.Stored(e.World, address("a", "")).OwnerReferences
	if i := slices.IndexFunc(owners, func(ref metav1.OwnerReference) bool { return ref.Kind == "GlobalInClusterIPPool" }); i < 0 || owners[i].APIVersion != incluster.GroupVersion.String() {
		e.t.Errorf("the IPAddress has the owners %v, want its pool among them", owners)
	}
	s := &scope{name: ipam.Name{Namespace: story.Team, Name: "a"}, claim: e.stored("a"), record: e.record("a")}
	pool, _ := e.Catalog.Pool(s.record.Pool)
	if err := e.controller.checkUnused(e.t.Context(), s, pool); err != nil {
		e.t.Errorf("the claim's own IPAddress is in the way: %v", err)
	}
}

// servedByProvider expects that addresses of the in-cluster provider are recorded while it runs, and that
// it alone serves claims.
func servedByProvider(e *addresses) {
	e.controller.IsProviderRunning = func() bool { return true }
	e.inClusterPool("nodes", "10.0.0.4/30")
	e.Created(inClusterClaim("a", "nodes").Obj(), inClusterClaim("b", "nodes").Obj())
	e.Reconciled("a").Wrote().After(providerRetry)
	served := address("a", "10.0.0.4")
	served.Spec.PoolRef = inClusterClaim("", "nodes").Obj().Spec.PoolRef
	twice := address("b", "10.0.0.4")
	twice.Spec.PoolRef = served.Spec.PoolRef
	e.Created(served, twice)
	e.Reconciled("a").Wrote("create IPAllocation").After(0)
	e.Retried("b").Wrote()
}

// inClusterFails makes each call fail for a claim of an in-cluster pool.
func inClusterFails(e *addresses) {
	e.inClusterPool("nodes", "10.0.0.64/26")
	e.Failing(func(n int) story.Interruption {
		name := fmt.Sprintf("a%02d", n)
		e.Created(inClusterClaim(name, "nodes").Obj())
		return e.interruption(name, nil)
	})
}

// unrecordedElsewhere finds such an IPAddress of a pool that does not have the address.
func unrecordedElsewhere(e *addresses) {
	e.inClusterPool("nodes", "10.0.0.4/30")
	e.inClusterPool("vips", "10.0.0.8/30")
	e.inClusterPool("lab", "10.0.0.4/30")
	existing := address("existing", "10.0.0.4")
	existing.Spec.PoolRef = inClusterClaim("", "vips").Obj().Spec.PoolRef
	inLab := address("lab", "10.0.0.5")
	inLab.Spec.PoolRef = inClusterClaim("", "lab").Obj().Spec.PoolRef
	e.Created(inClusterClaim("a", "nodes").Obj(), inClusterClaim("existing", "vips").Obj(), existing, inLab)
	e.Retried("a").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).Saying("10.0.0.4/32")
	e.Reconciled("existing").NotReady(ipamv1.IPAddressClaimReadyPoolNotReadyReason)
	e.Reconciled("a").Served("10.0.0.5")
}
