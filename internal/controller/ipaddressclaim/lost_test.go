package ipaddressclaim

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestSeenDeletionIsRememberedUntilRelease makes passes over a claim whose deletion was seen:
// its IPAddress is removed only while the deletion is known.
func TestSeenDeletionIsRememberedUntilRelease(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		claim   types.UID // empty: no claim
		address bool
		made    *creation
		known   bool
		again   bool
	}{
		"the pass began before, and has that claim":              {claim: "uid", known: true},
		"another claim has its name":                             {claim: "another"},
		"its IPAddress exists":                                   {address: true, known: true},
		"neither exists":                                         {},
		"its IPAddress was stored, and is not shown":             {made: &creation{since: now}, known: true, again: true},
		"it is unknown whether its IPAddress was stored":         {made: &creation{since: now.Add(-time.Minute), isUnsure: true}, known: true, again: true},
		"its IPAddress would have been shown by now":             {made: &creation{since: now.Add(-storeTimeout), isUnsure: true}},
		"another claim has its name, and an IPAddress is coming": {claim: "another", made: &creation{since: now}},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			var objects []client.Object
			if test.claim != "" {
				s.claim.UID = test.claim
				objects = append(objects, s.claim)
			}
			if test.address {
				objects = append(objects, s.address)
			}
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)).WithObjects(objects...).Build()
			c := attachReplica(allocatorWith(t, record), &Controller{Client: there, Live: there, Clock: clocktesting.NewFakePassiveClock(now)})
			c.expectations.observeDeletedClaim(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name, UID: "uid"}})
			if test.made != nil {
				c.expectations.creations.Store(s.name, *test.made)
			}
			look, err := readScope(t.Context(), there, client.ObjectKeyFromObject(s.address), convert.Targets{})
			if err != nil {
				t.Fatal(err)
			}
			coming := c.addressDelay(look)
			c.forgetShownDeletion(look, coming)
			if _, ok := c.expectations.deletedClaim(s.name); ok != test.known || coming > 0 != test.again {
				t.Errorf("the deletion is known: %t, want %t; reconciled again after %v", ok, test.known, coming)
			}
			if _, made := c.expectations.creations.Load(s.name); made && test.claim == "" && !test.again {
				t.Error("the IPAddress is still thought to be coming")
			}
		})
	}
}

// TestIPAddressOfUnansweredCreateIsDeletedWithClaim makes the create call of an IPAddress
// fail after it was stored, and removes the claim before the cache shows either.
func TestIPAddressOfUnansweredCreateIsDeletedWithClaim(t *testing.T) {
	addresses := schema.GroupResource{Group: ipamv1.GroupVersion.Group, Resource: "ipaddresses"}
	for name, test := range map[string]struct {
		answer error
		known  bool
	}{
		"stored, and answered":       {nil, true},
		"not answered":               {errors.New("EOF"), true},
		"answered too late":          {apierrors.NewTimeoutError("too late", 1), true},
		"answered that it exists":    {apierrors.NewAlreadyExists(addresses, "a"), true},
		"refused, and so not stored": {apierrors.NewForbidden(addresses, "a", errors.New("a quota")), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			pool := &v1alpha1.IPPool{}
			pool.Name = record.Pool.Name
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)).WithObjects(pool).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					return test.answer
				},
			}).Build()
			c := attachReplica(allocatorWith(t, record), &Controller{Client: there, Live: there, Clock: clocktesting.NewFakePassiveClock(time.Now()), Orphans: noted{}})
			c.Catalog.SetPool(ipam.Pool{Key: record.Pool, CIDR: record.Block})
			s.address, s.record = nil, record
			if err := c.createAddress(t.Context(), s); (err == nil) != (test.answer == nil) {
				t.Fatal(err)
			}
			c.claims().Delete(t.Context(), event.DeleteEvent{Object: s.claim}, newQueue(t))
			if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.claim)}); err != nil {
				t.Fatal(err)
			}
			if _, ok := c.expectations.deletedClaim(s.name); ok != test.known {
				t.Errorf("that the claim is gone is known: %t, want %t", ok, test.known)
			}
			if !test.known {
				return
			}
			q := newQueue(t)
			c.addresses().Create(t.Context(), event.CreateEvent{Object: &ipamv1.IPAddress{ObjectMeta: s.claim.ObjectMeta}}, q)
			if q.Len() != 1 {
				t.Error("its IPAddress is shown, and no pass looks at it")
			}
		})
	}
}

// TestIPAddressOfMissingPoolIsNotCreated deletes a pool that the cache still shows: the IPAddress could not
// name it as its owner.
func TestIPAddressOfMissingPoolIsNotCreated(t *testing.T) {
	s, record := servedClaim()
	there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)).Build()
	c := attachReplica(allocatorWith(t, record), &Controller{Client: there, Live: there, Clock: clocktesting.NewFakePassiveClock(time.Now())})
	c.Catalog.SetPool(ipam.Pool{Key: record.Pool, CIDR: record.Block})
	s.address, s.record = nil, record
	if err := c.createAddress(t.Context(), s); !apierrors.IsNotFound(err) || s.address != nil {
		t.Errorf("got %v and %v, want that the pool is missing", err, s.address)
	}
}

// TestLateEventsOfFormerIPAddressKeepNext delivers the events of an IPAddress that is
// gone when the next of its name was made, or is being made, and then removes its claim before the
// cache shows the new one, as after a restore of etcd.
func TestLateEventsOfFormerIPAddressKeepNext(t *testing.T) {
	earlier := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "earlier"}}
	comes := func(c *Controller, t *testing.T) {
		c.addresses().Create(t.Context(), event.CreateEvent{Object: earlier}, newQueue(t))
	}
	goes := func(c *Controller, t *testing.T) {
		c.addresses().Delete(t.Context(), event.DeleteEvent{Object: earlier}, newQueue(t))
	}
	nothing := func(*Controller, *testing.T) {}
	for name, test := range map[string]struct{ meanwhile, after func(*Controller, *testing.T) }{
		"it goes while the next is made":       {goes, nothing},
		"it goes when the next was made":       {nothing, goes},
		"it comes and goes when that was made": {nothing, func(c *Controller, t *testing.T) { comes(c, t); goes(c, t) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: record.Pool.Name}}
			c := attachReplica(allocatorWith(t, record), &Controller{Clock: clocktesting.NewFakePassiveClock(time.Now()), Orphans: noted{}})
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)).WithObjects(pool).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, made client.Object, _ ...client.CreateOption) error {
					test.meanwhile(c, t)
					made.SetUID("next")
					return nil
				},
			}).Build()
			c.Client, c.Live = there, there
			c.Catalog.SetPool(ipam.Pool{Key: record.Pool, CIDR: record.Block})
			s.address, s.record = nil, record
			if err := c.createAddress(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			test.after(c, t)
			c.claims().Delete(t.Context(), event.DeleteEvent{Object: s.claim}, newQueue(t))
			if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.claim)}); err != nil {
				t.Fatal(err)
			}
			if _, ok := c.expectations.deletedClaim(s.name); !ok {
				t.Error("that the claim is gone is forgotten while its IPAddress is coming")
			}
			q := newQueue(t)
			c.addresses().Create(t.Context(), event.CreateEvent{Object: s.address}, q)
			if _, coming := c.expectations.creations.Load(s.name); coming || q.Len() != 1 {
				t.Errorf("its IPAddress is shown: it is still thought to be coming: %t; %d look at it", coming, q.Len())
			}
		})
	}
}

// TestOwnIPAddressEnqueuesNothing covers an IPAddress whose create call succeeded.
func TestOwnIPAddressEnqueuesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		made *creation
		want int
	}{
		"made by another":      {nil, 1},
		"made here":            {&creation{}, 0},
		"made here, or before": {&creation{isUnsure: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)).WithObjects(s.claim).Build()
			c := attachReplica(allocatorWith(t, record), &Controller{Client: there, Live: there})
			if test.made != nil {
				c.expectations.creations.Store(s.name, *test.made)
			}
			q := newQueue(t)
			c.addresses().Create(t.Context(), event.CreateEvent{Object: s.address}, q)
			if _, still := c.expectations.creations.Load(s.name); q.Len() != test.want || still {
				t.Errorf("%d are enqueued, want %d; it is still thought to be coming: %t", q.Len(), test.want, still)
			}
		})
	}
}
