package torture

import (
	"context"
	"fmt"
	"math/rand/v2"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// clusterNamespace has the Clusters. It is not deleted: a claim would go before its Cluster.
const clusterNamespace = "clusters"

// refusedLabel is on Clusters that a policy refuses when their networks are filled in.
const refusedLabel = "torture-refused"

// clusterActor makes Clusters of Cluster API that get their networks, pauses and deletes them. It has a few
// names, which it uses again and again, also after a refusal.
type clusterActor struct {
	*party
	number int
	random *rand.Rand
	slots  [slots]*clusterv1.Cluster // nil if there is none, as far as it knows
}

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
	case a.random.IntN(3) == 0:
		isPaused := a.random.IntN(2) == 0
		return a.call(ctx, fmt.Sprintf("pause Cluster %s: %v", existing.Name, isPaused), func(ctx context.Context) error {
			return a.Patch(ctx, existing, build.Merge(fmt.Sprintf(`{"spec":{"paused":%v}}`, isPaused)))
		}, nil)
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
	obj := build.Cluster(clusterNamespace, fmt.Sprintf("k%d-%d", a.number, slot))
	obj.Labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksEnabled}
	if a.random.IntN(5) == 0 {
		obj.Labels[refusedLabel] = ""
	}
	length := func() int { return 24 + a.random.IntN(5) }
	obj.Annotations = map[string]string{v1alpha1.AnnotationPods: fmt.Sprintf("shared/%d", length())}
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
