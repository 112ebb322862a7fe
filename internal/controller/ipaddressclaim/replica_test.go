package ipaddressclaim

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// TestKindServedAfterCRDEventIsWatched sends the last event of the CRDs
// before the API server serves their kinds.
func TestKindServedAfterCRDEventIsWatched(t *testing.T) {
	scheme := schemeOf(t, apiextensionsv1.AddToScheme)
	store, mapper, starts := fake.NewClientBuilder().WithScheme(scheme).Build(), meta.NewDefaultRESTMapper(nil), 0
	watchCount, isSynced := 0, false
	a := &arrival{
		client: store, mapper: mapper, log: logr.Discard(),
		watchClusters: func() (func() bool, error) { watchCount++; return func() bool { return isSynced }, nil },
		addSource:     func(func() bool) { t.Error("all that is handed out waits for Clusters") },
		start:         func() error { starts++; return nil },
	}
	expect := func(when string, again time.Duration, started int) {
		t.Helper()
		result, err := a.Reconcile(t.Context(), reconcile.Request{})
		if err != nil || result.RequeueAfter != again || starts != started {
			t.Fatalf("%s: asked again after %s, not %s; started %d times, not %d (%v)", when, result.RequeueAfter, again, starts, started, err)
		}
	}
	for _, name := range crdNames() {
		expect("until all are defined", 0, 0)
		if err := store.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, gvk := range requiredKinds() {
		expect("until all are served", servedPollInterval, 0)
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	expect("until the Clusters are known", knownPollInterval, 0)
	expect("until the Clusters are known", knownPollInterval, 0)
	isSynced = true
	expect("when all are known", 0, 1)
	expect("afterwards", 0, 1)
	if watchCount != 1 {
		t.Errorf("Clusters are watched %d times", watchCount)
	}
}

// TestOnlyServedClaimsWait covers claims that could not be served, each with one
// difference.
func TestOnlyServedClaimsWait(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ipamv1.IPAddressClaim)
		want   bool
	}{
		"of the namespace, with the label": {func(*ipamv1.IPAddressClaim) {}, true},
		"of another namespace":             {func(c *ipamv1.IPAddressClaim) { c.Namespace = "other" }, false},
		"without the label":                {func(c *ipamv1.IPAddressClaim) { c.Labels = nil }, false},
		"with another operator's label":    {func(c *ipamv1.IPAddressClaim) { c.Labels[clusterv1.WatchLabel] = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			s.claim.Labels = map[string]string{clusterv1.WatchLabel: "here"}
			conditions.Set(s.claim, metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse, Reason: ipamv1.IPAddressClaimReadyPoolExhaustedReason})
			test.change(s.claim)
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme)).WithObjects(s.claim).Build()
			c := attachReplica(allocatorWith(t, record), &Controller{Client: there, Within: kubeutil.NamespacesOf("team"), WatchFilter: "here"})
			waiting := &Replica{Ledger: c.Ledger, Catalog: c.Catalog, Queue: c.Queue, Client: there, Within: c.Within, WatchFilter: c.WatchFilter}
			if _, err := waiting.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.claim)}); err != nil {
				t.Fatal(err)
			}
			if got := c.Queue.Has(holderNamed(s.claim.Namespace, s.claim.Name)); got != test.want {
				t.Errorf("queued: %t, want %t", got, test.want)
			}
		})
	}
}

// TestRecordIsHeldByAddressOrClaim changes one property of a claim that is served, of its
// IPAddress or of its record, and more if they belong together.
func TestRecordIsHeldByAddressOrClaim(t *testing.T) {
	noAddress := func(s *scope, _ *ipam.Record) { s.address = nil }
	noClaim := func(s *scope, _ *ipam.Record) { s.claim = nil }
	noStatus := func(s *scope, _ *ipam.Record) { s.claim.Status = ipamv1.IPAddressClaimStatus{} }
	leaving := func(s *scope, _ *ipam.Record) {
		s.claim.DeletionTimestamp, s.claim.Finalizers = &metav1.Time{Time: time.Now()}, []string{"somebody/s"}
	}
	earlier := func(_ *scope, r *ipam.Record) { r.HolderUID = "earlier" }
	unstamped := func(_ *scope, r *ipam.Record) { r.HolderUID = "" }
	terminating := func(_ *scope, r *ipam.Record) { r.Terminating = true }
	type change = func(*scope, *ipam.Record)
	for name, test := range map[string]struct {
		changes []change
		want    bool
	}{
		"served":                     {nil, true},
		"the address is another":     {[]change{func(s *scope, _ *ipam.Record) { s.address.Spec.Address = "10.0.0.9" }}, false},
		"the address is no address":  {[]change{func(s *scope, _ *ipam.Record) { s.address.Spec.Address = "x" }}, false},
		"an address without claim":   {[]change{noClaim}, true},
		"a claim without address":    {[]change{noAddress, noStatus}, true},
		"neither":                    {[]change{noAddress, noClaim}, false},
		"of an earlier claim":        {[]change{noAddress, earlier}, false},
		"made before the claim":      {[]change{noAddress, unstamped}, true},
		"another provider's address": {[]change{noClaim, func(s *scope, _ *ipam.Record) { s.address.Spec.PoolRef.APIGroup = "other" }}, false},
		"an address of the in-cluster provider, of the name of another claim": {[]change{func(s *scope, _ *ipam.Record) {
			s.address.Spec.PoolRef, s.address.Spec.Address = ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "p"}, "10.0.0.9"
		}}, true},
		"deleted by hand, and in use":                             {[]change{terminating}, true},
		"deleted by hand, without its address, but with a status": {[]change{terminating, noAddress}, true},
		"half released, to a claim that has no address":           {[]change{terminating, noAddress, noStatus}, false},
		"half released, to a claim without a status":              {[]change{terminating, noStatus}, false},
		"half released, to a claim that is leaving":               {[]change{terminating, noStatus, leaving}, true},
		"half released, to an address that has no claim":          {[]change{terminating, noClaim}, true},
		"half released, without either":                           {[]change{terminating, noAddress, noClaim}, false},
		"half released, of an earlier claim of the name":          {[]change{terminating, noAddress, earlier}, false},
		"half released, made before a claim with a status":        {[]change{terminating, unstamped}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			s.claim.Status.AddressRef.Name = s.address.Name
			for _, change := range test.changes {
				change(s, &record)
			}
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme))
			if s.claim != nil {
				there.WithObjects(s.claim)
			}
			if s.address != nil {
				there.WithObjects(s.address)
			}
			held, err := holds(t.Context(), there.Build(), record)
			if err != nil || held != test.want {
				t.Errorf("held: %t, want %t; %v", held, test.want, err)
			}
		})
	}
}
