package plugin

import (
	"context"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// clusterNetworks shows the networks of two Clusters of team-c: prod, which got them when it was created, and
// late, which asked for them later. carol cannot get Clusters.
func (w *world) clusterNetworks(t *testing.T) {
	w = &world{World: w.For(t)}
	w.Namespace("team-c")
	w.Created(build.Editor("carol", "team-c"), build.Class("pod-networks").Length(20).Obj(), build.Class("endpoints").Length(32).Obj())
	w.Pools(
		build.Pool("pod-networks").CIDR("10.200.0.0/19").Domain("clusters").Classes("pod-networks").Obj(),
		build.Pool("endpoints").CIDR("10.201.0.0/32").Domain("clusters").Classes("endpoints").Obj(),
	)
	ask := func(cluster *clusterv1.Cluster, pods, endpoint string) *clusterv1.Cluster {
		return build.Networked(cluster, map[string]string{v1alpha1.AnnotationPods: pods, v1alpha1.AnnotationControlPlaneEndpoint: endpoint})
	}
	w.Created(ask(build.Cluster("team-c", "prod"), "pod-networks", "endpoints:6443"))
	late := build.Cluster("team-c", "late")
	w.Created(late)
	before := late.DeepCopy()
	suite.Must(w, w.Patch(w.Context(), ask(late, "no-such-class,pod-networks", "endpoints"), client.MergeFrom(before)))
	w.Created(build.Cluster("team-c", "plain"))
	w.Await("the claims of prod have their owner", func(ctx context.Context) bool {
		claims := &v1alpha1.IPClaimList{}
		err := w.List(ctx, claims, client.InNamespace("team-c"), client.MatchingLabels{clusterv1.ClusterNameLabel: "prod"})
		owned := 0
		for i := range claims.Items {
			owned += len(claims.Items[i].OwnerReferences)
		}
		return err == nil && owned == 2
	})
	w.as(t, "").plays("cluster", nil)
	w.as(t, "carol").plays("cluster-tenant", nil)
}

// hub shows the range of another cluster, as manager hub-provisioner claims it.
func (w *world) hub(t *testing.T) {
	w = &world{World: w.For(t)}
	w.Namespace("cluster-east")
	w.Pools(build.Pool("ranges").CIDR("10.202.0.0/16").Domain("hub").Obj())
	claim := build.Claim("cluster-east", "uid-of-east.leased-x7k2p").Pool("ranges").Length(24).Obj()
	claim.Labels = map[string]string{v1alpha1.LabelHubCluster: "east", v1alpha1.LabelHubClass: "leased"}
	w.Created(claim)
	w.as(t, "").plays("hub", nil)
}
