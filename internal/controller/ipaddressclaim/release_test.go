package ipaddressclaim

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// noted holds the notifications of the collection of orphans, by record.
type noted map[string]string

func (n noted) Judge(string, func(context.Context, client.Reader, ipam.Record) (bool, error)) {}

func (n noted) ReportDeleted(uid string, record ipam.Name) { n[record.Name] = "gone " + uid }

func (n noted) Enqueue(record ipam.Name) { n[record.Name] = "judged" }

// TestDeletionMarksRecordsOfDeletedObject deletes a claim or its IPAddress while an IPAddress
// of the name is admitted, whose record exists before it.
func TestDeletionMarksRecordsOfDeletedObject(t *testing.T) {
	s, own := servedClaim()
	recordNamed := func(name, uid, address string) ipam.Record {
		r := own
		r.Name.Name, r.UID, r.HolderUID, r.Block = name, name, uid, netip.MustParsePrefix(address+"/32")
		return r
	}
	admitted, earlier := recordNamed("a-admitted", "", "10.0.0.2"), recordNamed("a-earlier", "earlier", "10.0.0.3")
	found := recordNamed(convert.RecordOfHolder(s.holder(), "").Name, "", "10.0.0.4")
	s.address.Annotations = map[string]string{v1alpha1.AnnotationAllocation: own.Name.Name}
	for name, test := range map[string]struct {
		deleted func(*Controller, event.DeleteEvent)
		object  client.Object
		want    noted
	}{
		"a claim": {
			func(c *Controller, e event.DeleteEvent) { c.claims().Delete(t.Context(), e, newQueue(t)) }, s.claim,
			noted{own.Name.Name: "gone uid", admitted.Name.Name: "judged", earlier.Name.Name: "judged", found.Name.Name: "judged"},
		},
		"an IPAddress": {
			func(c *Controller, e event.DeleteEvent) { c.addresses().Delete(t.Context(), e, newQueue(t)) }, s.address,
			noted{own.Name.Name: "gone uid", admitted.Name.Name: "judged", earlier.Name.Name: "judged", found.Name.Name: "gone "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := noted{}
			c := attachReplica(allocatorWith(t, own, admitted, earlier, found), &Controller{Orphans: got})
			test.deleted(c, event.DeleteEvent{Object: test.object})
			if !maps.Equal(got, test.want) {
				t.Errorf("notified of %v, want %v", got, test.want)
			}
		})
	}
}

// TestEarlierRecordIsJudgedWhenIPAddressAppears restores an IPAddress from a backup when
// another address is recorded for its claim already: no other event reports that record.
func TestEarlierRecordIsJudgedWhenIPAddressAppears(t *testing.T) {
	s, own := servedClaim()
	before := own
	before.Name.Name, before.UID, before.Block = "a-before", "a-before", netip.MustParsePrefix("10.0.0.2/32")
	for name, records := range map[string][]ipam.Record{"it is first": {before, own}, "it is last": {own, before}} {
		t.Run(name, func(t *testing.T) {
			got := noted{}
			c := attachReplica(allocatorWith(t, records...), &Controller{Orphans: got})
			if err := c.recordExisting(t.Context(), s); err != nil || s.record.Name != own.Name {
				t.Errorf("took over %v: %v", s.record.Name, err)
			}
			if want := (noted{"a-before": "judged"}); !maps.Equal(got, want) {
				t.Errorf("notified of %v, want %v", got, want)
			}
		})
	}
}

// newQueue returns a queue of requests that have no worker.
func newQueue(t *testing.T) kubeutil.Queue {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// TestClaimWithUnseenRecordIsRequeued lets the caches show a claim and its IPAddress
// before the view shows their record, as after a restore of etcd. The record's arrival enqueues
// nothing: it is as this controller makes them.
func TestClaimWithUnseenRecordIsRequeued(t *testing.T) {
	s, record := servedClaim()
	s.address.Annotations = map[string]string{v1alpha1.AnnotationAllocation: record.Name.Name}
	scheme := schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)
	other := record
	other.Name.Name, other.Holder.Name = "b-12345678", "b"
	for name, objects := range map[string][]client.Object{
		"a claim":                        {s.claim, s.address, convert.Allocation(record)},
		"an IPAddress that has no claim": {s.address, convert.Allocation(record)},
	} {
		t.Run(name, func(t *testing.T) {
			there := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			c := attachReplica(allocatorWith(t, other), &Controller{Client: there, Live: there})
			result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)})
			if err != nil || result.RequeueAfter <= 0 {
				t.Errorf("got %v, %v: want another look soon", result, err)
			}
		})
	}
}

// TestReleaseReadsClusterLive deletes the claim of a Cluster that the cache does not show as
// paused yet.
func TestReleaseReadsClusterLive(t *testing.T) {
	scheme := schemeOf(t, ipamv1.AddToScheme, clusterv1.AddToScheme)
	for name, test := range map[string]struct {
		live     func(*clusterv1.Cluster) []client.Object
		isBegun  bool
		released bool
	}{
		"paused":                         {func(c *clusterv1.Cluster) []client.Object { c.Spec.Paused = new(true); return []client.Object{c} }, false, false},
		"not paused":                     {func(c *clusterv1.Cluster) []client.Object { return []client.Object{c} }, false, true},
		"gone":                           {func(*clusterv1.Cluster) []client.Object { return nil }, false, true},
		"paused since the release began": {func(c *clusterv1.Cluster) []client.Object { c.Spec.Paused = new(true); return []client.Object{c} }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			cluster := &clusterv1.Cluster{}
			cluster.Namespace, cluster.Name = s.name.Namespace, "prod"
			s.claim.Spec.ClusterName = cluster.Name
			s.claim.DeletionTimestamp, s.claim.Finalizers = new(metav1.Now()), []string{v1alpha1.FinalizerRelease}
			if test.isBegun {
				s.address.DeletionTimestamp, s.address.Finalizers = new(metav1.Now()), []string{v1alpha1.FinalizerProtect}
			}
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(s.claim, s.address, cluster.DeepCopy()).Build()
			live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(test.live(cluster), s.claim)...).Build()
			c := attachReplica(allocatorWith(t, record), &Controller{Client: cached, Live: live, Clock: clocktesting.NewFakePassiveClock(time.Now())})
			if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.claim)}); err != nil {
				t.Fatal(err)
			}
			err := cached.Get(t.Context(), client.ObjectKeyFromObject(s.address), &ipamv1.IPAddress{})
			if isReleased := apierrors.IsNotFound(err); isReleased != test.released {
				t.Errorf("the address is released: %t (%v), want %t", isReleased, err, test.released)
			}
		})
	}
}

// TestIPAddressFinalizerIsRemovedOnce makes a second pass with the version that the cache
// still shows.
func TestIPAddressFinalizerIsRemovedOnce(t *testing.T) {
	s, _ := servedClaim()
	s.address.Finalizers, s.address.DeletionTimestamp = []string{v1alpha1.FinalizerProtect}, &metav1.Time{Time: time.Now()}
	patches, failure := 0, errors.New("connection refused")
	there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme)).WithObjects(s.address).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			if failure != nil {
				return failure
			}
			patches++
			return nil
		},
	}).Build()
	now := clocktesting.NewFakePassiveClock(time.Now())
	c := attachReplica(emptyAllocator(t), &Controller{Client: there, Live: there, Clock: now})
	pass := func(wantPatches int, wantAgain time.Duration) {
		t.Helper()
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)})
		if err != nil || patches != wantPatches || result.RequeueAfter != wantAgain {
			t.Errorf("%d patches, again after %v, %v; want %d, %v", patches, result.RequeueAfter, err, wantPatches, wantAgain)
		}
	}
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)}); !errors.Is(err, failure) {
		t.Fatalf("got %v, want %v", err, failure)
	}
	failure = nil
	pass(1, 0)
	pass(1, cacheTimeout)
	now.SetTime(now.Now().Add(cacheTimeout))
	pass(2, 0)
	c.addresses().Delete(t.Context(), event.DeleteEvent{Object: s.address}, newQueue(t))
	pass(3, 0)
}

// TestAddressOfNextClaimIsNotDeleted covers a claim that is being deleted in the cache, with an IPAddress
// that the cache shows, by the claim that is stored.
func TestAddressOfNextClaimIsNotDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		owner, stored types.UID
		want          error
	}{
		"it owns the IPAddress":                           {"uid", "", nil},
		"another object owns it, and the claim is stored": {"pool", "uid", nil},
		"another object owns it, and the claim is gone":   {"pool", "", errNotSeen},
		"the next claim owns it":                          {"next", "next", errNotSeen},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := servedClaim()
			s.address.OwnerReferences = []metav1.OwnerReference{{UID: test.owner}}
			live := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme))
			if test.stored != "" {
				stored := s.claim.DeepCopy()
				stored.UID = test.stored
				live.WithObjects(stored)
			}
			if err := (&Controller{Live: live.Build()}).checkOwner(t.Context(), s); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// TestContestedAddressIsDeletedWithItsClaimAlone makes passes over an IPAddress without claim, whose
// address another record has too.
func TestContestedAddressIsDeletedWithItsClaimAlone(t *testing.T) {
	for deleted, want := range map[string]bool{"": false, "former": false, "uid": true} {
		t.Run("seen: "+deleted, func(t *testing.T) {
			s, record := servedClaim()
			rival := record
			rival.Name.Name, rival.UID, rival.Holder.Name, rival.HolderUID = "b-12345678", "rival", "b", "other"
			s.address.Finalizers = []string{v1alpha1.FinalizerProtect}
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme)).WithObjects(s.address).Build()
			c := attachReplica(allocatorWith(t, record, rival), &Controller{Client: there, Live: there, Clock: clocktesting.NewFakePassiveClock(time.Now())})
			if deleted != "" {
				c.expectations.deletedClaims.Store(s.name, deleted)
			}
			_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)})
			if taken, ok := errors.AsType[*ipam.TakenError](err); ok == want {
				t.Errorf("got %v (%v), want that it is tried again: %t", err, taken, !want)
			}
			if err := there.Get(t.Context(), client.ObjectKeyFromObject(s.address), s.address); err != nil {
				t.Fatal(err)
			}
			if isDeleted := s.address.DeletionTimestamp != nil; isDeleted != want {
				t.Errorf("it is deleted: %t, want %t", isDeleted, want)
			}
		})
	}
}

// TestRefusedReleaseIsReported lets the API server refuse to delete the IPAddress of a claim.
func TestRefusedReleaseIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		reason string
	}{
		"refused":      {apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, "a", errors.New("a policy")), v1alpha1.ReasonRecordRefused},
		"not answered": {errors.New("EOF"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			s.claim.DeletionTimestamp = new(metav1.Now())
			s.address.OwnerReferences = []metav1.OwnerReference{{UID: s.claim.UID}}
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme)).WithObjects(s.claim, s.address).WithStatusSubresource(s.claim).
				WithInterceptorFuncs(interceptor.Funcs{
					Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return test.err },
				}).Build()
			c := attachReplica(allocatorWith(t, record), &Controller{Client: there, Live: there, Events: events.NewFakeRecorder(1), Clock: clocktesting.NewFakePassiveClock(time.Now())})
			if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.claim)}); err == nil {
				t.Error("it is not tried again")
			}
			if err := there.Get(t.Context(), client.ObjectKeyFromObject(s.claim), s.claim); err != nil {
				t.Fatal(err)
			}
			if reason := conditions.GetReason(s.claim, ipamv1.IPAddressClaimReadyCondition); reason != test.reason {
				t.Errorf("the reason is %q, want %q", reason, test.reason)
			}
		})
	}
}
