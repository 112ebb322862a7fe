package clusternetwork

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

const grace = time.Minute

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "prod"}}

// world holds a controller of the Cluster team/prod, over a store in memory.
type world struct {
	*testing.T
	controller *Controller
	store      client.WithWatch
	clock      *clocktesting.FakePassiveClock
	recorder   *events.FakeRecorder
	// isHidden reports whether the cache lacks the Cluster, and isStale whether it lacks the claims.
	isHidden, isStale bool
	// refusal is the error of the create, or the patch, of a claim.
	refusal error
	// calls counts the calls of the controller, of which the one of the number failing fails.
	calls, failing int
	// act is called before the call of the number acting.
	act    func(*world)
	acting int
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, clusterv1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), recorder: events.NewFakeRecorder(10)}
	w.store = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(build.Tracker(scheme)).
		WithIndex(&v1alpha1.IPClaim{}, byCluster, indexedCluster).Build()
	for _, obj := range append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}) {
		must.Succeed(t, w.store.Create(t.Context(), obj))
	}
	w.controller = &Controller{
		Client: build.Before(interceptor.NewClient(w.store, w.cache()), w.count), Live: build.Before(w.store, w.count), Clock: w.clock, Grace: grace, Events: w.recorder,
	}
	return w
}

// cache returns the parts in which the client of the controller differs from the store.
func (w *world) cache() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, store client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*clusterv1.Cluster); ok && w.isHidden {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "clusters"}, key.Name)
			}
			return store.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, store client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if w.isStale {
				return nil
			}
			return store.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, store client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if w.refusal != nil {
				return w.refusal
			}
			if claim, ok := obj.(*v1alpha1.IPClaim); ok { // as the webhook on claims does
				claim.Spec.AllocationName = "a-12345678"
			}
			return store.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, store client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if w.refusal != nil {
				return w.refusal
			}
			return store.Patch(ctx, obj, patch, opts...)
		},
	}
}

// count counts a call, lets the other actor act before it if it is to, and returns the error of the one that is to fail.
func (w *world) count() error {
	w.calls++
	if w.calls == w.acting {
		w.act(w)
	}
	if w.calls == w.failing {
		return errors.New("the connection is cut")
	}
	return nil
}

// reconcile reconciles the Cluster, and returns the time after which it is due again.
func (w *world) reconcile() time.Duration {
	w.Helper()
	result, err := w.controller.Reconcile(w.Context(), request)
	must.Succeed(w.T, err)
	return result.RequeueAfter
}

// claim returns the claim of the pods of the Cluster, as it is stored; nil if there is none.
func (w *world) claim() *v1alpha1.IPClaim {
	w.Helper()
	claim := &v1alpha1.IPClaim{}
	err := w.store.Get(w.Context(), client.ObjectKeyFromObject(podsClaim()), claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Succeed(w.T, err)
	return claim
}

// claims returns the blocks of all claims, with the numbers of their owners and finalizers.
func (w *world) claims() string {
	w.Helper()
	list := &v1alpha1.IPClaimList{}
	must.Succeed(w.T, w.store.List(w.Context(), list))
	var lines []string
	for _, claim := range list.Items {
		lines = append(lines, fmt.Sprint(claim.Spec.CIDR, " ", len(claim.OwnerReferences), " ", len(claim.Finalizers)))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// replaceCluster deletes the Cluster, and makes another attempt to create one if it is not nil.
func (w *world) replaceCluster(cluster *clusterv1.Cluster) {
	must.Succeed(w.T, client.IgnoreNotFound(w.store.Delete(w.Context(), newCluster())))
	if cluster == nil {
		return
	}
	if claim := w.claim(); claim == nil {
		must.Succeed(w.T, w.store.Create(w.Context(), podsClaim()))
	} else if claim.Annotations[v1alpha1.AnnotationAttempt] != "" {
		claim.Annotations[v1alpha1.AnnotationAttempt] = "2"
		must.Succeed(w.T, w.store.Update(w.Context(), claim))
	}
	must.Succeed(w.T, w.store.Create(w.Context(), cluster))
}

// replaceClaim deletes the claim, without regard to finalizers, and stores another one if it is not nil.
func (w *world) replaceClaim(claim *v1alpha1.IPClaim) {
	if stored := w.claim(); stored != nil {
		stored.Finalizers = nil
		must.Succeed(w.T, w.store.Update(w.Context(), stored))
		must.Succeed(w.T, w.store.Delete(w.Context(), stored))
	}
	if claim != nil {
		must.Succeed(w.T, w.store.Create(w.Context(), claim))
	}
}

// settled makes passes, and deletes claims as the garbage collector does. It expects that then a stored Cluster
// with the block owns the claim, which is not one that the controller has made if isKept, and that without the Cluster
// no claim is left but that of a user.
func (w *world) settled(when string, isKept bool) {
	w.Helper()
	var cluster *clusterv1.Cluster
	for range 4 {
		w.reconcile()
		var err error
		cluster, err = readCluster(w.Context(), w.store, request.NamespacedName)
		must.Succeed(w.T, err)
		if claim := w.claim(); claim != nil && len(claim.OwnerReferences) > 0 && (cluster == nil || claim.OwnerReferences[0].UID != cluster.UID) {
			must.Succeed(w.T, w.store.Delete(w.Context(), claim))
		}
	}
	claim, has := w.claim(), cluster != nil && cluster.Spec.ClusterNetwork.Pods.CIDRBlocks[0] == "10.64.0.0/20"
	switch {
	case claim != nil && claim.Annotations == nil:
		if len(claim.OwnerReferences)+len(claim.Finalizers) > 0 {
			w.Errorf("%s: a user's claim is %+v", when, claim)
		}
	case has && (claim == nil || len(claim.Finalizers) == 0 || claim.DeletionTimestamp.IsZero() && claim.OwnerReferences[0].UID != cluster.UID || isKept && claim.UID == ""):
		w.Errorf("%s: the Cluster has the block, and the claim is %+v", when, claim)
	case !has && claim != nil && (cluster == nil || len(claim.OwnerReferences) == 0):
		w.Errorf("%s: no Cluster has the block, and the claim is %+v", when, claim)
	}
}

// claimStays fails if the claim has changed.
func (w *world) claimStays(before *v1alpha1.IPClaim) {
	w.Helper()
	if now := w.claim(); now == nil || now.ResourceVersion != before.ResourceVersion {
		w.Errorf("the claim was %+v\nand is %+v", before, now)
	}
}

// podsClaim returns the claim of the pods of the Cluster, bound, as the webhook makes it.
func podsClaim(edits ...func(*v1alpha1.IPClaim)) *v1alpha1.IPClaim {
	n := convert.ClusterNetwork{Purpose: convert.PurposePods, Class: "pods", Length: ipam.NoLength}
	claim := n.Claim(ipam.Name{Namespace: "team", Name: "prod"})
	claim.UID = "claim"
	claim.Annotations[v1alpha1.AnnotationAttempt] = "1"
	claim.Spec.CIDR, claim.Spec.AllocationName = "10.64.0.0/20", "a-12345678"
	for _, edit := range edits {
		edit(claim)
	}
	return claim
}

// ownedBy makes a claim one of a Cluster with the UID.
func ownedBy(uid types.UID) func(*v1alpha1.IPClaim) {
	return func(claim *v1alpha1.IPClaim) {
		delete(claim.Annotations, v1alpha1.AnnotationAttempt)
		addOwner(claim, newCluster(func(c *clusterv1.Cluster) { c.UID = uid }))
	}
}

// newCluster returns a Cluster whose pods were filled in.
func newCluster(edits ...func(*clusterv1.Cluster)) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "prod", UID: "cluster", Annotations: map[string]string{v1alpha1.AnnotationNetworksFilled: "pods=10.64.0.0/20@pods"},
	}}
	cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.64.0.0/20"}
	for _, edit := range edits {
		edit(cluster)
	}
	return cluster
}

// existing makes a Cluster one that existed before its networks were to be claimed.
func existing(cluster *clusterv1.Cluster) {
	cluster.Labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksEnabled}
	cluster.Annotations = map[string]string{v1alpha1.AnnotationPods: "pods"}
}
