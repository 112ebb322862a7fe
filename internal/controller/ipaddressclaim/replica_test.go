package ipaddressclaim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
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

// errBroken is an error of a part that a test replaces.
var errBroken = errors.New("broken")

// TestFailureToServeKindsIsTriedAgain lets one part after the other fail.
func TestFailureToServeKindsIsTriedAgain(t *testing.T) {
	for name, breaks := range map[string]func(*arrival){
		"the API server does not answer": func(a *arrival) { a.mapper = brokenMapper{} },
		"Clusters cannot be watched":     func(a *arrival) { a.watchClusters = func() (func() bool, error) { return nil, errBroken } },
		"the controller cannot start":    func(a *arrival) { a.start = func() error { return errBroken } },
	} {
		t.Run(name, func(t *testing.T) {
			a := installed()
			breaks(a)
			if _, err := a.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, errBroken) || a.isStarted {
				t.Errorf("got %v, and started %t", err, a.isStarted)
			}
		})
	}
}

// TestInstalledKindsAreServedOnEveryReplica sets up the wait for Cluster API where it is installed.
func TestInstalledKindsAreServedOnEveryReplica(t *testing.T) {
	a, mgr, starts, sources := installed(), &runnables{}, 0, 0
	a.start = func() error { starts++; return errBroken }
	a.addSource = func(hasSynced func() bool) {
		if hasSynced() {
			sources++
		}
	}
	if err := a.setup(mgr); err != nil || len(mgr.added) != 1 || sources != 1 {
		t.Fatalf("%v: %d runnables and %d sources, want one of each", err, len(mgr.added), sources)
	}
	if mgr.added[0].(manager.LeaderElectionRunnable).NeedLeaderElection() {
		t.Error("only the leader starts it")
	}
	if err := mgr.added[0].Start(t.Context()); !errors.Is(err, errBroken) || starts != 1 {
		t.Errorf("started %d times, with %v", starts, err)
	}
	if _, err := a.Reconcile(t.Context(), reconcile.Request{}); err != nil || starts != 1 {
		t.Errorf("it is started again: %v", err)
	}
}

// TestFailedSetupIsReported lets one part after the other fail.
func TestFailedSetupIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		breaks func(*arrival)
		mgr    runnables
	}{
		"the API server does not answer": {breaks: func(a *arrival) { a.mapper = brokenMapper{} }},
		"Clusters cannot be watched":     {breaks: func(a *arrival) { a.watchClusters = func() (func() bool, error) { return nil, errBroken } }},
		"the manager has ended":          {breaks: func(*arrival) {}, mgr: runnables{err: errBroken}},
	} {
		t.Run(name, func(t *testing.T) {
			a := installed()
			test.breaks(a)
			if err := a.setup(&test.mgr); !errors.Is(err, errBroken) || len(test.mgr.added) > 0 {
				t.Errorf("got %v, and %d runnables", err, len(test.mgr.added))
			}
		})
	}
}

// installed returns the wait for Cluster API where its kinds are served and all Clusters known.
func installed() *arrival {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range requiredKinds() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	return &arrival{
		mapper: mapper, log: logr.Discard(), start: func() error { return nil }, addSource: func(func() bool) {},
		watchClusters: func() (func() bool, error) { return func() bool { return true }, nil },
	}
}

// brokenMapper implements the mapper of an API server that does not answer.
type brokenMapper struct{ meta.RESTMapper }

func (brokenMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errBroken
}

// runnables holds what is added to a manager.
type runnables struct {
	manager.Manager
	added []manager.Runnable
	err   error
}

// Add implements manager.Manager.
func (r *runnables) Add(runnable manager.Runnable) error {
	if r.err == nil {
		r.added = append(r.added, runnable)
	}
	return r.err
}

func TestOtherCRDsAreIgnored(t *testing.T) {
	for name, want := range map[string]bool{"clusters.cluster.x-k8s.io": true, "machines.cluster.x-k8s.io": false} {
		crd := newCRD()
		crd.SetName(name)
		if got := isRequiredCRD(crd); got != want {
			t.Errorf("%s: required is %t, want %t", name, got, want)
		}
	}
}

// TestPoolOfPausedClusterIsPaused shows the Clusters of a namespace to a replica.
func TestPoolOfPausedClusterIsPaused(t *testing.T) {
	clusters := &informertest.FakeInformers{Scheme: schemeOf(t, clusterv1.AddToScheme)}
	catalog := emptyAllocator(t).Catalog
	key := ipam.PoolKey{Kind: ipam.PoolKindLocalIPPool, Namespace: "team", Name: "nodes"}
	pool := ipam.Pool{Key: key, CIDR: netip.MustParsePrefix("10.0.0.0/24"), Labels: map[string]string{v1alpha1.LabelCluster: "fleet"}}
	expect := func(when string, isPaused bool) {
		t.Helper()
		missing, _ := errors.AsType[*ipam.MissingError](catalog.PoolReady(pool))
		if (missing.Verdict == ipam.Paused) != isPaused {
			t.Errorf("%s: %v, want that the pool is paused: %t", when, missing, isPaused)
		}
	}
	expect("Cluster API is not installed", false)
	hasSynced, err := watchClusters(clusters, catalog)
	if err != nil || !hasSynced() {
		t.Fatalf("the Clusters are known: want true (%v)", err)
	}
	informer, err := clusters.FakeInformerFor(t.Context(), &clusterv1.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	expect("the Cluster is missing", true)
	running, paused := newCluster("fleet", false), newCluster("fleet", true)
	informer.Add(running)
	expect("the Cluster runs", false)
	informer.Update(running, paused)
	expect("the Cluster is paused", true)
	informer.Update(paused, running)
	informer.Delete(running)
	expect("the Cluster is gone", true)
	clusters.Error = errBroken
	if _, err := watchClusters(clusters, catalog); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
}

func TestClusterThatStopsOrStartsIsPassed(t *testing.T) {
	for _, before := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			change := event.UpdateEvent{ObjectOld: newCluster("fleet", before), ObjectNew: newCluster("fleet", after)}
			if got := pauseChanged().Update(change); got != (before != after) {
				t.Errorf("paused %t, then %t: passed is %t", before, after, got)
			}
		}
	}
}

func TestClaimIsIndexedByItsCluster(t *testing.T) {
	for cluster, want := range map[string][]string{"fleet": {"fleet"}, "": nil} {
		if got := indexedCluster(claim("a").Cluster(cluster).Obj()); !slices.Equal(got, want) {
			t.Errorf("of Cluster %q: got %q, want %q", cluster, got, want)
		}
	}
}

// TestRecordOfUnusedDeletedClaimIsLeaving covers the claim of a record.
func TestRecordOfUnusedDeletedClaimIsLeaving(t *testing.T) {
	deleted := new(metav1.Now())
	for name, test := range map[string]struct {
		change func(*ipamv1.IPAddressClaim) // nil: there is no claim
		want   bool
	}{
		"deleted": {func(c *ipamv1.IPAddressClaim) { c.DeletionTimestamp = deleted }, true},
		"deleted and in use": {func(c *ipamv1.IPAddressClaim) {
			c.DeletionTimestamp, c.Finalizers = deleted, []string{"example.com/vm"}
		}, false},
		"not deleted":                           {func(*ipamv1.IPAddressClaim) {}, false},
		"deleted, of the same name as the next": {func(c *ipamv1.IPAddressClaim) { c.DeletionTimestamp, c.UID = deleted, "former" }, false},
		"missing":                               {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme))
			if test.change != nil {
				test.change(s.claim)
				there.WithObjects(s.claim)
			}
			parts := allocatorWith(t, record)
			every := &Replica{Ledger: parts.Ledger, Catalog: parts.Catalog, Queue: parts.Queue, Client: there.Build()}
			if _, err := every.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)}); err != nil {
				t.Fatal(err)
			}
			if got := parts.Ledger.IsLeaving(record.Name); got != test.want {
				t.Errorf("the record is leaving: %t, want %t", got, test.want)
			}
		})
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
		"of a Cluster that runs":           {func(c *ipamv1.IPAddressClaim) { c.Spec.ClusterName = "running" }, true},
		"of a Cluster that is paused":      {func(c *ipamv1.IPAddressClaim) { c.Spec.ClusterName = "paused" }, false},
		"not reconciled yet":               {func(c *ipamv1.IPAddressClaim) { c.Status.Conditions = nil }, false},
		"ready":                            {func(c *ipamv1.IPAddressClaim) { c.Status.Conditions[0].Status = metav1.ConditionTrue }, false},
		"with an address in conflict":      {func(c *ipamv1.IPAddressClaim) { c.Status.AddressRef.Name = "a" }, false},
		"paused":                           {func(c *ipamv1.IPAddressClaim) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			s.claim.Labels = map[string]string{clusterv1.WatchLabel: "here"}
			conditions.Set(s.claim, metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse, Reason: ipamv1.IPAddressClaimReadyPoolExhaustedReason})
			test.change(s.claim)
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, clusterv1.AddToScheme)).
				WithObjects(s.claim, newCluster("running", false), newCluster("paused", true)).Build()
			c := attachReplica(allocatorWith(t, record), &Controller{Client: there, Within: kubeutil.NamespacesOf("team"), WatchFilter: "here"})
			waiting := &Replica{Ledger: c.Ledger, Catalog: c.Catalog, Queue: c.Queue, Client: there, Within: c.Within, WatchFilter: c.WatchFilter}
			if s.name.Namespace = s.claim.Namespace; !test.want {
				c.Queue.Wait(s.waiter()) // before the change
			}
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

func TestAddressesOfInClusterPoolsAreIndexed(t *testing.T) {
	address := func(kind, text string) *ipamv1.IPAddress {
		a := &ipamv1.IPAddress{}
		a.Spec.Address, a.Spec.PoolRef = text, ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: kind, Name: "p"}
		return a
	}
	other := address("IPPool", "10.0.0.9")
	other.Spec.PoolRef.APIGroup = v1alpha1.GroupVersion.Group
	for want, a := range map[string]*ipamv1.IPAddress{"[10.0.0.9]": address("InClusterIPPool", "10.0.0.9"), "[]": other} {
		if got := fmt.Sprint(indexedAddress(a)); got != want {
			t.Errorf("%s of a %s is indexed as %s, want %s", a.Spec.Address, a.Spec.PoolRef.Kind, got, want)
		}
	}
	if got := indexedAddress(address("InClusterIPPool", "x")); got != nil {
		t.Errorf("an invalid address is indexed as %v", got)
	}
}
