package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// clusterNamespace has the Clusters. It is not deleted: a claim would go before its Cluster.
const clusterNamespace = "clusters"

// refusedLabel is on Clusters that a policy refuses when their networks are filled in.
const refusedLabel = "torture-refused"

// clusterActor makes Clusters of Cluster API that get their networks, pauses, moves and deletes them. It has a few
// names, which it uses again and again, also after a refusal.
type clusterActor struct {
	*party
	number int
	random *rand.Rand
	slots  [slots]*clusterv1.Cluster // nil if there is none, as far as it knows
}

// movedWithin bounds one step of a move, in which the API server may be down.
const movedWithin = 2 * time.Minute

func newClusterActor(p *party, n int, random *rand.Rand) actor {
	return &clusterActor{party: p, number: n, random: random}
}

// act implements actor.
func (a *clusterActor) act(ctx context.Context) error {
	slot := a.random.IntN(slots)
	existing := a.slots[slot]
	switch {
	case existing == nil:
		return a.make(ctx, slot)
	case a.random.IntN(4) == 0:
		return a.move(ctx, existing)
	case a.random.IntN(3) == 0:
		return a.pause(ctx, existing, a.random.IntN(2) == 0)
	}
	err := a.remove(ctx, existing)
	if err == nil || apierrors.IsNotFound(err) {
		a.slots[slot] = nil
		err = nil
	}
	return err
}

// make makes a Cluster in a slot.
func (a *clusterActor) make(ctx context.Context, slot int) error {
	obj := build.Networked(build.Cluster(clusterNamespace, fmt.Sprintf("k%d-%d", a.number, slot)), map[string]string{})
	if a.random.IntN(5) == 0 {
		obj.Labels[refusedLabel] = ""
	}
	length := func() int { return 24 + a.random.IntN(5) }
	obj.Annotations[v1alpha1.AnnotationPods] = fmt.Sprintf("shared/%d", length())
	if a.random.IntN(2) == 0 {
		obj.Annotations[v1alpha1.AnnotationServices] = fmt.Sprintf("shared/%d", length())
	}
	if a.random.IntN(2) == 0 {
		obj.Annotations[v1alpha1.AnnotationControlPlaneEndpoint] = "shared/32"
	}
	err := a.call(ctx, fmt.Sprintf("create Cluster %s %v", obj.Name, obj.Annotations), func(ctx context.Context) error { return a.Create(ctx, obj) }, func() string {
		return obj.Annotations[v1alpha1.AnnotationNetworksFilled]
	})
	if err == nil || !isRefusal(err) {
		a.slots[slot] = obj // it may exist
	}
	return err
}

// refuseClusters makes a policy that refuses Clusters with refusedLabel after their networks are claimed.
func (w *world) refuseClusters(ctx context.Context) error {
	policy, binding := build.Refusal("torture-clusters", refusedLabel, "")
	rule := &policy.Spec.MatchConstraints.ResourceRules[0].Rule
	rule.APIGroups, rule.Resources = []string{clusterv1.GroupVersion.Group}, []string{"clusters"}
	for _, obj := range []client.Object{policy, binding, build.Namespace(clusterNamespace)} {
		if err := w.admin.Create(ctx, obj); err != nil {
			return fmt.Errorf("making a policy for Clusters: %w", err)
		}
	}
	return nil
}

// endClusters deletes all Clusters, and reports whether none is left.
func (p *party) endClusters(ctx context.Context) bool {
	clusters := &clusterv1.ClusterList{}
	if err := p.List(ctx, clusters); err != nil {
		return false
	}
	for i := range clusters.Items {
		_ = p.remove(ctx, &clusters.Items[i])
	}
	return len(clusters.Items) == 0
}

// move moves a Cluster and its claims out of the API server and back, with the calls of `clusterctl
// move` by way of a directory. What it has begun it ends, also when the storm is over. Others may
// get the blocks meanwhile: then the claim that comes back is refused, or reports a conflict.
func (a *clusterActor) move(ctx context.Context, obj *clusterv1.Cluster) error {
	ctx = context.WithoutCancel(ctx)
	claims := &v1alpha1.IPClaimList{}
	isRead := a.insist(ctx, "read it to move it", func(ctx context.Context) error {
		if err := a.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return client.IgnoreNotFound(err)
		}
		return a.List(ctx, claims, client.InNamespace(obj.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: obj.Name})
	})
	if !isRead || obj.UID == "" || !obj.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := a.pause(ctx, obj, true); err != nil {
		return err
	}
	for i := range claims.Items {
		a.takeOut(ctx, &claims.Items[i])
	}
	a.takeOut(ctx, obj)
	metav1.SetMetaDataAnnotation(&obj.ObjectMeta, witness.MovedAnnotation, "yes")
	a.bringBack(ctx, obj)
	for i := range claims.Items {
		claims.Items[i].OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: obj.Name, UID: obj.UID}}
		a.bringBack(ctx, &claims.Items[i])
	}
	a.insist(ctx, "end the pause of "+obj.Name, func(ctx context.Context) error { return client.IgnoreNotFound(a.pause(ctx, obj, false)) })
	return nil
}

func (a *clusterActor) pause(ctx context.Context, obj *clusterv1.Cluster, isPaused bool) error {
	return a.call(ctx, fmt.Sprintf("pause Cluster %s: %v", obj.Name, isPaused), func(ctx context.Context) error {
		return a.Patch(ctx, obj.DeepCopy(), build.Merge(fmt.Sprintf(`{"spec":{"paused":%v}}`, isPaused)))
	}, nil)
}

// takeOut deletes an object as clusterctl does when it has moved the object.
func (a *clusterActor) takeOut(ctx context.Context, obj client.Object) {
	a.note(a.releasing, string(obj.GetUID()))
	a.insist(ctx, fmt.Sprintf("move %T %s out", obj, obj.GetName()), func(ctx context.Context) error {
		gone := obj.DeepCopyObject().(client.Object)
		annotate := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"add","path":"/metadata/annotations","value":{%q:""}}]`, clusterctlv1.DeleteForMoveAnnotation))
		err := a.Patch(ctx, gone, annotate)
		if err == nil {
			err = a.Delete(ctx, gone)
		}
		if err == nil {
			err = a.Patch(ctx, gone, build.Merge(`{"metadata":{"finalizers":[]}}`))
		}
		return client.IgnoreNotFound(err)
	})
}

// bringBack makes an object again, unless it is refused.
func (a *clusterActor) bringBack(ctx context.Context, obj client.Object) {
	a.insist(ctx, fmt.Sprintf("move %T %s back", obj, obj.GetName()), func(ctx context.Context) error {
		obj.SetUID("")
		obj.SetResourceVersion("")
		err := a.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) { // the answer to an earlier call was lost
			return a.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		}
		if err != nil && isRefusal(err) && !apierrors.IsTooManyRequests(err) {
			return nil
		}
		return err
	})
}

// insist makes a call again and again until it succeeds.
func (a *clusterActor) insist(ctx context.Context, what string, do func(context.Context) error) bool {
	return until(ctx, movedWithin, func() bool { return a.call(ctx, what, do, nil) == nil })
}
