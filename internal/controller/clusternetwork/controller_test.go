package clusternetwork

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

func TestClusterOwnsClaim(t *testing.T) {
	for name, claim := range map[string]*v1alpha1.IPClaim{
		"of the attempt that made it":       podsClaim(),
		"of a former Cluster of its name":   podsClaim(ownedBy("former")),
		"that has an owner, and an attempt": podsClaim(ownedBy("cluster"), func(c *v1alpha1.IPClaim) { c.Annotations[v1alpha1.AnnotationAttempt] = "1" }),
		"that has the finalizer, no owner":  podsClaim(func(c *v1alpha1.IPClaim) { c.Finalizers = []string{v1alpha1.FinalizerClusterNetwork} }),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCluster(), claim)
			w.reconcile()
			<-w.recorder.Events
			got := w.claim()
			for name, edit := range map[string]func(*v1alpha1.IPClaim){
				"nothing": func(*v1alpha1.IPClaim) {}, "no owner": func(c *v1alpha1.IPClaim) { c.OwnerReferences = nil }, "no finalizer": func(c *v1alpha1.IPClaim) { c.Finalizers = nil },
				"an attempt": func(c *v1alpha1.IPClaim) { c.Annotations[v1alpha1.AnnotationAttempt] = "2" }, "a deletion": func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) },
			} {
				changed := got.DeepCopy()
				edit(changed)
				if got, want := mayNeedPass(event.UpdateEvent{ObjectNew: changed}), name != "nothing"; got != want {
					t.Errorf("with %s changed, it needs a pass: %t, want %t", name, got, want)
				}
			}
			if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != "cluster" || got.OwnerReferences[0].Kind != "Cluster" {
				t.Errorf("the owners are %+v", got.OwnerReferences)
			}
			if !slices.Contains(got.Finalizers, v1alpha1.FinalizerClusterNetwork) || got.Annotations[v1alpha1.AnnotationAttempt] != "" {
				t.Errorf("the claim is %+v", got.ObjectMeta)
			}
			w.reconcile()
			w.claimStays(got)
			if len(w.recorder.Events) > 0 {
				t.Errorf("it has the event %s", <-w.recorder.Events)
			}
		})
	}
}

// TestPassWithFailedCallIsTriedAgain fails each call of a pass in turn.
func TestPassWithFailedCallIsTriedAgain(t *testing.T) {
	services := func(claim *v1alpha1.IPClaim) {
		n := convert.ClusterNetwork{Purpose: convert.PurposeServices, Class: "services", Length: ipam.NoLength}
		claim.Name, claim.UID, claim.Annotations = n.ClaimName(ipam.Name{Namespace: "team", Name: "prod"}), "services", n.Claim(ipam.Name{Name: "prod"}).Annotations
		claim.Spec.CIDR = "10.96.0.0/20"
	}
	attempt := func(claim *v1alpha1.IPClaim) { claim.Annotations[v1alpha1.AnnotationAttempt] = "1" }
	both := newCluster(existing, func(c *clusterv1.Cluster) {
		c.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"10.96.0.0/20"}
		c.Annotations[v1alpha1.AnnotationServices] = "services"
	})
	for name, test := range map[string]struct {
		stored []client.Object
		want   string // the owners and finalizers of its claims
	}{
		"claims are created":          {[]client.Object{both}, "10.64.0.0/20 1 1, 10.96.0.0/20 1 1"},
		"claims get an owner":         {[]client.Object{both, podsClaim(), podsClaim(services, attempt)}, "10.64.0.0/20 1 1, 10.96.0.0/20 1 1"},
		"claims lose their finalizer": {[]client.Object{podsClaim(ownedBy("cluster")), podsClaim(services, ownedBy("cluster"))}, "10.64.0.0/20 1 0, 10.96.0.0/20 1 0"},
		"one does, and one is left":   {[]client.Object{podsClaim(ownedBy("cluster")), podsClaim(services, attempt)}, "10.64.0.0/20 1 0"},
		"leftovers are deleted":       {[]client.Object{podsClaim(), podsClaim(services, attempt)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for failing, calls := 0, 0; failing <= calls; failing++ {
				w := newWorld(t)
				for _, obj := range test.stored {
					must.Succeed(t, w.store.Create(t.Context(), obj.DeepCopyObject().(client.Object)))
				}
				w.controller.Grace, w.failing = 0, failing
				_, err := w.controller.Reconcile(t.Context(), request)
				if (err != nil) != (failing > 0) {
					t.Errorf("when call %d fails, the error is %v", failing, err)
				}
				if failing == 0 {
					calls = w.calls
				}
				if w.reconcile(); w.claims() != test.want {
					t.Errorf("when call %d has failed, the claims are %s, want %s", failing, w.claims(), test.want)
				}
			}
		})
	}
}

// TestOtherActorActsBetweenCalls lets another actor act before each call of a pass, and after the last. The passes
// that follow keep the claims of the stored Cluster alone.
func TestOtherActorActsBetweenCalls(t *testing.T) {
	next := func(c *clusterv1.Cluster) { c.UID = "next" }
	otherBlock := func(c *clusterv1.Cluster) { c.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.64.16.0/20"} }
	other := func(claim *v1alpha1.IPClaim) { claim.UID = "other" }
	const deletesClaim = "deletes the claim"
	actions := map[string]func(*world){
		deletesClaim:                         func(w *world) { w.replaceClaim(nil) },
		"makes the claim again":              func(w *world) { w.replaceClaim(podsClaim(other)) },
		"makes a claim of a user":            func(w *world) { w.replaceClaim(podsClaim(other, func(c *v1alpha1.IPClaim) { c.Annotations = nil })) },
		"deletes the Cluster":                func(w *world) { w.replaceCluster(nil) },
		"makes the Cluster again":            func(w *world) { w.replaceCluster(newCluster(next)) },
		"makes the Cluster with other block": func(w *world) { w.replaceCluster(newCluster(next, otherBlock)) },
		"makes the Cluster and claim again": func(w *world) {
			w.replaceClaim(podsClaim(other))
			w.replaceCluster(newCluster(next))
		},
	}
	for start, stored := range map[string][]client.Object{
		"no claim":              {newCluster()},
		"an attempt":            {newCluster(), podsClaim()},
		"an owned claim":        {newCluster(), podsClaim(ownedBy("cluster"))},
		"a former one's claim":  {newCluster(), podsClaim(ownedBy("former"))},
		"no Cluster":            {podsClaim(ownedBy("cluster"))},
		"no Cluster, a failure": {podsClaim()},
	} {
		for action, act := range actions {
			t.Run(start+", and the actor "+action, func(t *testing.T) {
				for isBetween, n := true, 1; isBetween; n++ {
					w := newWorld(t)
					for _, obj := range stored {
						must.Succeed(t, w.store.Create(t.Context(), obj.DeepCopyObject().(client.Object)))
					}
					w.controller.Grace, w.act, w.acting = 0, act, n
					_, _ = w.controller.Reconcile(t.Context(), request)
					if isBetween, w.acting = w.calls >= n, 0; !isBetween {
						act(w)
					}
					w.settled(fmt.Sprint("before call ", n), start != "no claim" && action != deletesClaim)
				}
			})
		}
	}
}

func TestLeftoverIsDeletedAfterGracePeriod(t *testing.T) {
	w := newWorld(t, podsClaim())
	if delay := w.reconcile(); delay != grace {
		t.Errorf("it is due again after %s", delay)
	}
	w.clock.SetTime(w.clock.Now().Add(grace - time.Second))
	if delay := w.reconcile(); delay != time.Second || w.claim() == nil {
		t.Errorf("it is due again after %s", delay)
	}
	claim := w.claim() // another attempt uses it
	claim.Annotations[v1alpha1.AnnotationAttempt] = "2"
	must.Succeed(t, w.store.Update(t.Context(), claim))
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	if delay := w.reconcile(); delay != grace || w.claim() == nil {
		t.Errorf("when it has changed it is due again after %s", delay)
	}
	w.clock.SetTime(w.clock.Now().Add(grace))
	if delay := w.reconcile(); delay != 0 || w.claim() != nil {
		t.Errorf("the claim is %+v, due again after %s", w.claim(), delay)
	}
	w.reconcile()
	w.controller.sightings.Range(func(cluster, _ any) bool {
		t.Errorf("after it is deleted, claims of %s are noted", cluster)
		return true
	})
}

// TestLeftoverOfNextAttemptStays shows the controller a claim that another attempt uses since.
func TestLeftoverOfNextAttemptStays(t *testing.T) {
	w := newWorld(t, podsClaim())
	w.reconcile()
	w.clock.SetTime(w.clock.Now().Add(grace))
	w.controller.Live = interceptor.NewClient(w.store, interceptor.Funcs{Get: func(ctx context.Context, store client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		claim := w.claim()
		claim.Annotations[v1alpha1.AnnotationAttempt] = "2"
		must.Succeed(t, store.Update(ctx, claim))
		return store.Get(ctx, key, obj, opts...)
	}})
	_, err := w.controller.Reconcile(t.Context(), request)
	if !apierrors.IsConflict(err) || w.claim() == nil {
		t.Errorf("the claim is %+v, and the error %v", w.claim(), err)
	}
}

func TestClaimStays(t *testing.T) {
	for name, test := range map[string]struct {
		cluster           *clusterv1.Cluster
		claim             *v1alpha1.IPClaim
		isHidden, deletes bool
	}{
		"of an attempt, whose Cluster the cache lacks":       {newCluster(), podsClaim(), true, false},
		"of a Cluster that the cache lacks":                  {newCluster(), podsClaim(ownedBy("cluster")), true, false},
		"that is deleted, of a Cluster that has the block":   {newCluster(), podsClaim(ownedBy("cluster")), false, true},
		"that is deleted, of a Cluster that the cache lacks": {newCluster(), podsClaim(ownedBy("cluster")), true, true},
		"that is deleted before the Cluster owns it":         {newCluster(), podsClaim(func(c *v1alpha1.IPClaim) { c.Finalizers = []string{"example.com/kept"} }), false, true},
		"of a paused Cluster":                                {newCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }), podsClaim(), false, false},
		"of a Cluster with the annotation paused":            {newCluster(func(c *clusterv1.Cluster) { c.Annotations[clusterv1.PausedAnnotation] = "" }), podsClaim(), false, false},
		"that is deleted, of a paused Cluster with another block": {newCluster(func(c *clusterv1.Cluster) {
			c.Spec.Paused, c.Spec.ClusterNetwork.Pods.CIDRBlocks = new(true), nil
		}), podsClaim(ownedBy("cluster")), false, true},
		"of a user, without a Cluster": {nil, podsClaim(func(c *v1alpha1.IPClaim) { delete(c.Annotations, v1alpha1.AnnotationAttempt) }), false, false},
		"with an owner, of an attempt without a Cluster": {nil, podsClaim(func(c *v1alpha1.IPClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}}
		}), false, false},
		"of a Cluster that has another block in its place": {newCluster(func(c *clusterv1.Cluster) { c.Spec.ClusterNetwork.Pods.CIDRBlocks = nil }), podsClaim(ownedBy("cluster")), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.claim)
			w.isHidden = test.isHidden
			if test.cluster != nil {
				must.Succeed(t, w.store.Create(t.Context(), test.cluster))
			}
			if test.deletes {
				must.Succeed(t, w.store.Delete(t.Context(), w.claim()))
			}
			before := w.claim()
			w.reconcile()
			w.clock.SetTime(w.clock.Now().Add(grace))
			w.reconcile()
			w.claimStays(before)
		})
	}
}

func TestFinalizerIsRemovedWithoutCluster(t *testing.T) {
	w := newWorld(t, podsClaim(ownedBy("cluster")))
	w.reconcile()
	if got := w.claim(); got == nil || len(got.Finalizers) > 0 {
		t.Errorf("the claim is %+v", got)
	}
}

func TestFinalizerOfDeletedClaimIsRemovedWithoutBlock(t *testing.T) {
	w := newWorld(t, podsClaim(ownedBy("cluster")), newCluster(func(c *clusterv1.Cluster) { c.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.64.16.0/20"} }))
	must.Succeed(t, w.store.Delete(t.Context(), w.claim()))
	if w.reconcile(); w.claim() != nil {
		t.Errorf("the claim is %+v", w.claim())
	}
}

func TestNetworkOfExistingClusterIsClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		cluster *clusterv1.Cluster
		want    bool
	}{
		"noted by the webhook": {newCluster(), true},
		"existing":             {newCluster(existing), true},
		"disabled":             {newCluster(existing, func(c *clusterv1.Cluster) { c.Labels = nil }), false},
		"without a block":      {newCluster(existing, func(c *clusterv1.Cluster) { c.Spec.ClusterNetwork.Pods.CIDRBlocks = nil }), false},
		"being deleted": {newCluster(func(c *clusterv1.Cluster) {
			c.Finalizers, c.DeletionTimestamp = []string{"example.com/kept"}, new(metav1.Now())
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			deletes := !test.cluster.DeletionTimestamp.IsZero()
			test.cluster.DeletionTimestamp = nil
			must.Succeed(t, w.store.Create(t.Context(), test.cluster))
			if deletes {
				must.Succeed(t, w.store.Delete(t.Context(), test.cluster))
			}
			w.reconcile()
			claim := w.claim()
			if (claim != nil) != test.want {
				t.Fatalf("the claim is %+v", claim)
			}
			if claim != nil && (claim.Spec.CIDR != "10.64.0.0/20" || claim.Spec.ClassName != "pods" || claim.Annotations[v1alpha1.AnnotationAttempt] != "" ||
				len(claim.OwnerReferences) != 1 || !slices.Contains(claim.Finalizers, v1alpha1.FinalizerClusterNetwork)) {
				t.Errorf("the claim is %+v", claim)
			}
		})
	}
}

// TestClaimsStayWithoutStoredCluster expects that nothing is claimed for a former Cluster that the cache shows.
func TestClaimsStayWithoutStoredCluster(t *testing.T) {
	for name, stored := range map[string][]client.Object{
		"deleted":    nil,
		"made again": {newCluster(func(c *clusterv1.Cluster) { c.UID = "next" })},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCluster())
			w.controller.Live = newWorld(t, stored...).store
			if w.reconcile(); w.claim() != nil {
				t.Errorf("the claim is %+v", w.claim())
			}
			must.Succeed(t, w.store.Create(t.Context(), podsClaim()))
			before := w.claim()
			w.reconcile()
			w.claimStays(before)
		})
	}
}

// TestClaimThatCacheLacksIsFound expects that a claim is read live before it is created.
func TestClaimThatCacheLacksIsFound(t *testing.T) {
	w := newWorld(t, newCluster(), podsClaim())
	w.isStale = true
	if w.reconcile(); len(w.claim().OwnerReferences) != 1 {
		t.Errorf("the claim is %+v", w.claim())
	}
}

func TestNotedEndpointOfVariableNeedsNoClaim(t *testing.T) {
	w := newWorld(t, newCluster(func(c *clusterv1.Cluster) {
		c.Annotations[v1alpha1.AnnotationNetworksFilled] += ",control-plane-endpoint=10.6.0.7"
		c.Spec.ControlPlaneEndpoint.Host = "10.6.0.7"
	}))
	if w.reconcile(); w.claims() != "10.64.0.0/20 1 1" {
		t.Errorf("the claims are %s", w.claims())
	}
}

// TestNetworkIsClaimedBesideNotedOnes asks for the services of a Cluster whose pods were filled in.
func TestNetworkIsClaimedBesideNotedOnes(t *testing.T) {
	w := newWorld(t, newCluster(func(c *clusterv1.Cluster) {
		c.Labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksEnabled}
		c.Annotations[v1alpha1.AnnotationPods], c.Annotations[v1alpha1.AnnotationServices] = "pods", "services"
		c.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"10.96.0.0/20"}
	}))
	if w.reconcile(); w.claims() != "10.64.0.0/20 1 1, 10.96.0.0/20 1 1" {
		t.Errorf("the claims are %s", w.claims())
	}
	if event := <-w.recorder.Events; !strings.Contains(event, "pods 10.64.0.0/20 of class pods, services 10.96.0.0/20 of class services") {
		t.Errorf("it has the event %s", event)
	}
}

func TestOwnersOfOtherKindsAndNamesStay(t *testing.T) {
	claim := podsClaim()
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "other", UID: "1"}, {Kind: "Pod", Name: "prod", UID: "2"}, {Kind: "Cluster", Name: "prod", UID: "3"}}
	addOwner(claim, newCluster())
	var uids []string
	for _, ref := range claim.OwnerReferences {
		uids = append(uids, string(ref.UID))
	}
	if !slices.Equal(uids, []string{"1", "2", "cluster"}) {
		t.Errorf("the owners are %v", uids)
	}
}

func TestLeftoversAreDueAtTheEarliest(t *testing.T) {
	w := newWorld(t)
	name := request.NamespacedName
	first, second := podsClaim(), podsClaim(func(c *v1alpha1.IPClaim) { c.UID = "second" })
	w.controller.withoutRecent(name, []*v1alpha1.IPClaim{first})
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	for _, claims := range [][]*v1alpha1.IPClaim{{first, second}, {second, first}} {
		if due, delay := w.controller.withoutRecent(name, claims); len(due) > 0 || delay != grace-time.Second {
			t.Errorf("%d are due, the next after %s", len(due), delay)
		}
	}
}

func TestClaimsOfClustersRequestThem(t *testing.T) {
	if got := requestOfClaim(t.Context(), podsClaim()); len(got) != 1 || got[0] != request {
		t.Errorf("the requests are %v", got)
	}
	if got := requestOfClaim(t.Context(), &v1alpha1.IPClaim{}); len(got) > 0 {
		t.Errorf("the requests of another claim are %v", got)
	}
}

func TestClusterEvents(t *testing.T) {
	var rows []messages.Row
	for name, test := range map[string]struct {
		cluster *clusterv1.Cluster
		claim   *v1alpha1.IPClaim
		refusal error
		want    string // the type, the reason, and a part of the message
	}{
		"the claim is the Cluster's": {newCluster(), podsClaim(), nil, "Normal NetworksClaimed pods 10.64.0.0/20 of class pods"},
		"the claim is another's":     {newCluster(), podsClaim(func(c *v1alpha1.IPClaim) { c.Annotations = nil }), nil, "Warning NetworkConflict pods 10.64.0.0/20 cannot be claimed"},
		"the claim has other blocks": {newCluster(), podsClaim(func(c *v1alpha1.IPClaim) { c.Spec.CIDR = "10.64.16.0/20" }), nil, "Warning NetworkConflict pods is 10.64.0.0/20, and IPClaim"},
		"the claim waits":            {newCluster(), podsClaim(func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = "" }), nil, "Warning NetworkConflict pods 10.64.0.0/20 is not held"},
		"the claim is refused": {newCluster(), nil, apierrors.NewTooManyRequests("namespace team has reached its limit of 1 waiting claims: delete some, or wait until they are bound", 0),
			"Warning NetworkConflict 10.64.0.0/20 cannot be claimed"},
		"the claim cannot be changed": {newCluster(), podsClaim(), apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "ipclaims"}, "prod-pods", errors.New("quiet hours")),
			"Warning NetworkConflict IPClaim prod-pods-"},
		"the annotations are invalid": {newCluster(existing, func(c *clusterv1.Cluster) { c.Annotations[v1alpha1.AnnotationPods] = "a,b,c" }), nil, nil, "Warning NetworksInvalid metadata.annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.cluster)
			if w.refusal = test.refusal; test.claim != nil {
				must.Succeed(t, w.store.Create(t.Context(), test.claim))
			}
			_, err := w.controller.Reconcile(t.Context(), request)
			if (err != nil) != (test.refusal != nil) {
				t.Errorf("the error is %v", err)
			}
			if len(w.recorder.Events) != 1 {
				t.Fatalf("there are %d events", len(w.recorder.Events))
			}
			event := <-w.recorder.Events
			if !strings.HasPrefix(event, test.want) {
				t.Errorf("got the event %s, want %s", event, test.want)
			}
			kind, text, _ := strings.Cut(event, " ")
			reason, message, _ := strings.Cut(text, " ")
			rows = append(rows, messages.Row{Object: "Cluster", On: "event", Answer: kind + ", " + reason, Value: "", Message: message})
		})
	}
	messages.Golden(t, rows)
}

// TestForeignClaimIsUntouched expects that a claim of the name that is not the Cluster's gets no owner.
func TestForeignClaimIsUntouched(t *testing.T) {
	w := newWorld(t, newCluster(), podsClaim(func(c *v1alpha1.IPClaim) { c.Annotations = nil }))
	before := w.claim()
	w.reconcile()
	w.claimStays(before)
}
