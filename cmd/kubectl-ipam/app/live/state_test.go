package live

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// networkClaim returns a claim that has the pods of a Cluster, if one is named.
func networkClaim(name, cluster string) *v1alpha1.IPClaim {
	claim := build.Claim("team", name).Obj()
	claim.Status.Phase = v1alpha1.ClaimBound
	if cluster != "" {
		claim.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: cluster + "/pods/0"}
	}
	return claim
}

// TestBlockHasClusterOfItsClaim delivers the claim after the record and before it, and then changes
// and deletes the claim.
func TestBlockHasClusterOfItsClaim(t *testing.T) {
	const claim, uid = "*v1alpha1.IPClaim team/pods", "*v1alpha1.IPAllocation team/pods"
	for name, isClaimFirst := range map[string]bool{"record first": false, "claim first": true} {
		t.Run(name, func(t *testing.T) {
			stored, l := objects{}, newLive(clock.RealClock{})
			subscription := l.Subscribe()
			following := followerOf(subscription)
			has := func(want string, blocks int) {
				t.Helper()
				l.publish()
				published := 0
				for len(subscription.changes) > 0 {
					change := <-subscription.changes
					published += len(change.blocks)
					following.take(change)
				}
				if got := following.blocks[uid].Cluster; got != want || published != blocks {
					t.Errorf("the block has Cluster %q, want %q; %d blocks are published, want %d", got, want, published, blocks)
				}
				if got := followerOf(l.Subscribe()).blocks[uid].Cluster; got != want {
					t.Errorf("a new subscriber gets Cluster %q, want %q", got, want)
				}
			}
			stored.put(t, l, claimed("p", "other", "10.0.1.0/24"))
			if isClaimFirst {
				stored.put(t, l, networkClaim("pods", "prod"))
				has("", 1)
				stored.put(t, l, claimed("p", "pods", "10.0.0.0/24"))
				has("prod", 1)
			} else {
				stored.put(t, l, claimed("p", "pods", "10.0.0.0/24"))
				has("", 2)
				stored.put(t, l, networkClaim("pods", "prod"))
				has("prod", 1)
			}
			stored.put(t, l, networkClaim("pods", "prod"))
			has("prod", 0)
			stored.put(t, l, networkClaim("pods", "dev"))
			has("dev", 1)
			stored.remove(t, l, claim)
			has("", 1)
		})
	}
}

// TestInClusterPoolIsShownWhileServed has Cadastre and the in-cluster provider serve a pool in turn.
func TestInClusterPoolIsShownWhileServed(t *testing.T) {
	stored, l := objects{}, newLive(clock.RealClock{})
	pool := func(serve func(*incluster.InClusterIPPool)) {
		obj := build.InClusterPool("team", "nodes", 24, "10.0.0.10-10.0.0.19")
		serve(obj)
		stored.put(t, l, obj)
	}
	served := func(reason string) func(*incluster.InClusterIPPool) {
		return func(p *incluster.InClusterIPPool) { build.Served(p, reason) }
	}
	stored.put(t, l, build.AddressClaim("team", "vm").From(incluster.GroupVersion.Group, "InClusterIPPool", "nodes").Obj())
	for _, step := range []struct {
		serve          func(*incluster.InClusterIPPool)
		pools, waiting []string
	}{
		{func(*incluster.InClusterIPPool) {}, nil, nil},
		{served(v1alpha1.ReasonReady), []string{"InClusterIPPool/team/nodes"}, []string{"vm of [InClusterIPPool/team/nodes]"}},
		{served(v1alpha1.ReasonProviderRunning), []string{"InClusterIPPool/team/nodes"}, nil},
		{func(*incluster.InClusterIPPool) {}, nil, nil},
	} {
		pool(step.serve)
		l.publish()
		shown := followerOf(l.Subscribe())
		var waiting []string
		for _, claim := range shown.claims {
			waiting = append(waiting, fmt.Sprintf("%s of %v", claim.Name, claim.Pools))
		}
		if diff := cmp.Diff(step.pools, slices.Collect(maps.Keys(shown.pools))) + cmp.Diff(step.waiting, waiting); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
