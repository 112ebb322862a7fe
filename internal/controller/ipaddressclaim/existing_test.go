package ipaddressclaim

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

func adoptedAddress(e *addresses) {
	e.Applied(hostPool().With(func(s *v1alpha1.IPPoolSpec) { s.Project = story.Team }).Obj())
	e.Created(address("a", "10.0.0.9"))
	e.Reconciled("a").Wrote("create IPAllocation") // it is in use, with any maker
	e.Applied(claim("a").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.9").Wrote("patch IPAllocation", "patch IPAddress", "patch IPAddressClaim/status")
	if owners := story.Stored(e.World, address("a", "")).OwnerReferences; len(owners) != 2 || owners[0].UID != e.stored("a").UID {
		e.t.Errorf("its owners are %+v, want the claim and the pool", owners)
	}
	e.Applied(claim("b").Pool("hosts").Obj())
	e.Reconciled("b").Served("10.0.0.2")
}

// recordedTwice serves a claim whose IPAddress was recorded by two attempts.
func recordedTwice(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Created(address("a", "10.0.0.9"))
	first := story.Block("a", "hosts", "10.0.0.9/32")
	first.Holder = holderNamed(story.Team, "a")
	second := first
	second.Name.Name = "a-abcdefgh"
	e.Recorded(first)
	e.Recorded(second)
	e.Applied(claim("a").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.9")
	if record, _ := e.Ledger.Record(first.Name); record.HolderUID != string(e.stored("a").UID) {
		e.t.Errorf("the record that is confirmed is %+v, want it to be the claim's", record)
	}
}

// blockKeptForLaterClaim keeps the block of an earlier claim when the IPAddress returns, as from a backup.
// Only the controller ends that: to the collection of orphans the record has a holder.
func blockKeptForLaterClaim(state ipam.State) func(*addresses) {
	return func(e *addresses) {
		e.Applied(hostPool().Obj())
		kept := e.kept("a", "10.0.0.9", state)
		e.Created(address("a", "10.0.0.9"))
		e.Applied(claim("a").Pool("hosts").Obj())
		e.Reconciled("a").Served("10.0.0.9")
		record := e.record("a")
		if record.Name != kept.Name || record.State != ipam.StateBound || record.HolderUID != string(e.stored("a").UID) || !record.ReleaseAfter.IsZero() {
			e.t.Errorf("the record is %+v", record)
		}
	}
}

func neverRenumbered(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	e.Created(address("b", "10.0.0.2"))
	e.Applied(claim("b").Pool("hosts").Obj())
	e.Retried("b").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).Saying("10.0.0.2/32 of pool hosts, held by IPAddressClaim team/a")
	if got := story.Stored(e.World, address("b", "")).Spec.Address; got != "10.0.0.2" {
		e.t.Errorf("it was renumbered: %s", got)
	}
	e.Reconciled("a").Served("10.0.0.2").Wrote()
}

func lostAddress(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj(), claim("b").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	e.Reconciled("b").Served("10.0.0.3")
	e.Deleted(claim("a").Obj())
	e.Reconciled("a")
	e.Reconciled("a")
	e.Collected(holderNamed(story.Team, "a"))
	e.Forced(address("b", ""))
	e.Reconciled("b").Served("10.0.0.3").Wrote("patch IPAllocation", "create IPAddress")
	e.Forced(allocation(e.record("b")))
	e.Reconciled("b").Served("10.0.0.3").Wrote("create IPAllocation")
}

// unseenAddress hides an IPAddress from the caches, and then the claim's status too: the record of
// the claim shows that there can be one.
func unseenAddress(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	e.controller.Client = interceptor.NewClient(e.K8s, interceptor.Funcs{Get: withoutAddresses})
	e.Reconciled("a").Served("10.0.0.2").Wrote().After(cacheTimeout)
	unwritten := e.stored("a")
	unwritten.Status = ipamv1.IPAddressClaimStatus{}
	if err := e.K8s.Status().Update(e.t.Context(), unwritten); err != nil {
		e.t.Fatal(err)
	}
	e.Reconciled("a").Wrote().After(cacheTimeout)
	e.record("a")
}

// withoutAddresses reads from a cache that shows no IPAddress.
func withoutAddresses(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*ipamv1.IPAddress); ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return c.Get(ctx, key, obj, opts...)
}

// addressBeforePool records an IPAddress whose pool is restored after its record.
func addressBeforePool(e *addresses) {
	pool := hostPool().Obj()
	read, _ := convert.Pool(pool)
	e.Recorded(ipam.Record{
		Name: convert.RecordOfPool(story.System, read.Key), Block: read.CIDR, Pool: read.Home, Holder: convert.HolderOfPool(read.Key),
		Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	})
	restored := address("a", "10.0.0.9")
	restored.Spec.Gateway = "10.0.0.7"
	e.Created(restored, claim("a").Pool("hosts").Obj())
	e.Reconciled("a").NotReady(v1alpha1.ReasonPoolNotFound)
	if record := e.record("a"); !record.PoolUnknown || record.Gateway != netip.MustParseAddr("10.0.0.7") {
		e.t.Errorf("the record is %+v, want it of an unknown pool, with the gateway of the IPAddress", record)
	}
	pool.Spec.IPFamily = v1alpha1.IPv4
	e.Created(pool)
	e.Reconciled("a").Served("10.0.0.9")
	if e.record("a").PoolUnknown {
		e.t.Error("the pool of the record is still unknown")
	}
}

// addressOfClass finds IPAddresses that name a class, before and after one of its pools has them.
func addressOfClass(e *addresses) {
	e.Applied(build.Class("gold").Obj())
	restored := address("a", "10.0.0.9")
	restored.Spec.PoolRef = claim("a").Class("gold").Obj().Spec.PoolRef
	e.Created(restored, claim("a").Class("gold").Obj())
	e.Reconciled("a").NotReady(ipamv1.IPAddressClaimReadyPoolNotReadyReason).Saying("10.0.0.9")
	e.Applied(hostPool().Classes("gold").Obj())
	e.Reconciled("a").Served("10.0.0.9")
	if record := e.record("a"); record.Class != "gold" {
		e.t.Errorf("the record is of the class %q, want gold", record.Class)
	}
}

// addressOfForeignPool makes an IPAddress from a pool that its namespace cannot use.
func addressOfForeignPool(e *addresses) {
	e.Applied(foreignPool())
	e.Created(address("a", "10.0.0.9"), claim("a").Pool("hosts").Obj())
	e.Reconciled("a").NotReady(v1alpha1.ReasonPoolNotFound)
	if records := e.RecordsOf(holderNamed(story.Team, "a")); len(records) > 0 {
		e.t.Errorf("%v is recorded", records)
	}
}

// TestPoolOfClassAddressIsFound covers an IPAddress that names a class, by what else it states.
func TestPoolOfClassAddressIsFound(t *testing.T) {
	hosts, others := ipam.PoolNamed("hosts"), ipam.PoolNamed("others")
	c := attachReplica(emptyAllocator(t), &Controller{})
	c.Catalog.SetPool(ipam.Pool{Key: hosts, CIDR: netip.MustParsePrefix("10.0.0.0/24"), Classes: []string{"gold"}})
	c.Catalog.SetPool(ipam.Pool{Key: others, CIDR: netip.MustParsePrefix("10.0.1.0/24")})
	c.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "gold"}})
	ours := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPPool", Name: "others"}
	theirs := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "IPPool", Name: "others"}
	labels := func(pool string) map[string]string {
		return map[string]string{v1alpha1.LabelPool: pool, v1alpha1.LabelPoolKind: "IPPool"}
	}
	for name, test := range map[string]struct {
		address string
		owners  []metav1.OwnerReference
		labels  map[string]string
		want    ipam.PoolKey
	}{
		"it has a pool as owner":               {address: "10.0.0.9", owners: []metav1.OwnerReference{theirs, ours}, want: others},
		"it has an owner of another group":     {address: "10.0.0.9", owners: []metav1.OwnerReference{theirs}, want: hosts},
		"it is labeled with a pool":            {address: "10.0.0.9", labels: labels("others"), want: others},
		"it is labeled with a missing pool":    {address: "10.0.0.9", labels: labels("gone"), want: hosts},
		"a pool of the class contains it":      {address: "10.0.0.9", want: hosts},
		"only a pool outside the class has it": {address: "10.0.1.9"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.owners, Labels: test.labels}}
			obj.Spec.PoolRef = claim("a").Class("gold").Obj().Spec.PoolRef
			got, err := c.poolOf(&scope{name: ipam.Name{Namespace: "team", Name: "a"}, address: obj}, netip.MustParseAddr(test.address))
			if _, isMissing := errors.AsType[*ipam.MissingError](err); got != test.want || isMissing != (test.want == ipam.PoolKey{}) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

// TestRecordBeingReleasedIsNotOfAddress covers records of an IPAddress's address in each state.
func TestRecordBeingReleasedIsNotOfAddress(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ipam.Record)
		want   bool
	}{
		"bound":             {func(*ipam.Record) {}, true},
		"cooling down":      {func(r *ipam.Record) { r.State = ipam.StateCooling }, true},
		"releasing":         {func(r *ipam.Record) { r.State = ipam.StateReleasing }, false},
		"bound and deleted": {func(r *ipam.Record) { r.Terminating = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			test.change(&record)
			c := attachReplica(allocatorWith(t, record), &Controller{Orphans: noted{}})
			if got, ok := c.recordOf(s, record.Block.Addr()); ok != test.want || ok && got.UID != record.UID {
				t.Errorf("found %t, %+v, want %t", ok, got, test.want)
			}
		})
	}
}

// TestRecordMissingInViewIsAwaited has an IPAddress name a record of another address. If the record
// is the claim's, the view is older than the stored record.
func TestRecordMissingInViewIsAwaited(t *testing.T) {
	none := func(*v1alpha1.IPAllocation) {}
	for name, test := range map[string]struct {
		change              func(*v1alpha1.IPAllocation)
		isShown, isOutdated bool
		want                error
	}{
		"not shown":                 {change: none, want: errNotSeen},
		"shown in an older version": {change: none, isShown: true, isOutdated: true, want: errNotSeen},
		"shown":                     {change: none, isShown: true},
		"of another holder":         {change: func(a *v1alpha1.IPAllocation) { a.Spec.ClaimRef.Name = "b" }},
		"not bound":                 {change: func(a *v1alpha1.IPAllocation) { a.Spec.State = v1alpha1.AllocationRetained }},
		"being deleted":             {change: func(a *v1alpha1.IPAllocation) { a.DeletionTimestamp = new(metav1.Now()) }},
		"unreadable":                {change: func(a *v1alpha1.IPAllocation) { a.Spec.CIDR = "10.0.0" }},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			s.address.Annotations = map[string]string{v1alpha1.AnnotationAllocation: record.Name.Name}
			stored, view := convert.Allocation(record), emptyAllocator(t)
			if test.isShown {
				view = allocatorWith(t, record)
				shown, _ := view.Ledger.Record(record.Name)
				stored.ResourceVersion = shown.Version
			}
			if test.isOutdated {
				stored.ResourceVersion += "0"
			}
			stored.Finalizers = []string{"example.com/kept"}
			test.change(stored)
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, v1alpha1.AddToScheme)).WithObjects(stored).Build()
			c := attachReplica(view, &Controller{Live: there})
			if err := c.checkUnrecorded(t.Context(), s); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// TestRecordOfUnknownPoolIsJudged takes over a record that was made before its pool and its claim.
func TestRecordOfUnknownPoolIsJudged(t *testing.T) {
	for name, test := range map[string]struct {
		pool         *ipam.Pool
		isKept, isOK bool
	}{
		"its pool is missing":              {isKept: true},
		"its pool exists":                  {pool: &ipam.Pool{}, isKept: true, isOK: true},
		"its pool is of another project's": {pool: &ipam.Pool{Project: "theirs"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			record.PoolUnknown, record.HolderUID = true, ""
			c := storedReplica(t, s, record)
			if test.pool != nil {
				test.pool.Key, test.pool.CIDR = record.Pool, netip.MustParsePrefix("10.0.0.0/24")
				c.Catalog.SetPool(*test.pool)
			}
			err := c.takeOver(t.Context(), s, record)
			if _, isMissing := errors.AsType[*ipam.MissingError](err); isMissing == test.isOK || test.isOK && err != nil {
				t.Errorf("got %v, want that it is taken over: %t", err, test.isOK)
			}
			if test.isKept != (s.record.HolderUID == "uid") || test.isOK == s.record.PoolUnknown && test.isKept {
				t.Errorf("the record is %+v, want that it is kept: %t, and its pool known: %t", s.record, test.isKept, test.isOK)
			}
			if _, waits := c.expectations.claimsWithoutPool.Load(s.name); waits == test.isOK {
				t.Errorf("it waits for a pool: %t", waits)
			}
		})
	}
}

// storedReplica returns a controller whose API server stores the claim and the record.
func storedReplica(t *testing.T, s *scope, record ipam.Record) *Controller {
	t.Helper()
	stored := convert.Allocation(record)
	stored.UID = "record"
	there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)).WithObjects(s.claim, stored).Build()
	c := attachReplica(replica.WithRecords(t, replica.Options{Client: there}, record, ownRecordOf(record)), &Controller{Client: there, Live: there, Orphans: noted{}})
	c.Catalog.SetProject("team", "team")
	return c
}

// TestClosedPoolKeepsRetainedRecord covers a record that is kept in a pool whose own record is missing.
func TestClosedPoolKeepsRetainedRecord(t *testing.T) {
	s, record := servedClaim()
	record.State = ipam.StateRetained
	c := attachReplica(replica.WithRecords(t, replica.Options{}, record), &Controller{})
	err := c.adoptRecord(t.Context(), s, record)
	if _, isMissing := errors.AsType[*ipam.MissingError](err); !isMissing || s.record.UID != "" {
		t.Errorf("got %v and %+v, want that the pool is missing", err, s.record)
	}
}
