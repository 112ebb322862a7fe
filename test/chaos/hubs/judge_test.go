package hubs

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/provisioner"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// judge looks for violations over all control planes. Its methods may be called concurrently.
type judge struct {
	world *world
	// window is odd while a restored hub may lack claims.
	window atomic.Int32

	mu         sync.Mutex
	held       map[*spoke]map[string]*witness.Object // the records of claims, by key
	violations []string
	// records and looks count what was judged, waits the looks at which a range was waited for in the hub.
	records, looks, waits int
}

// follow judges until the test ends.
func (j *judge) follow() {
	w := j.world
	ctx, cancel := context.WithCancel(w.Context())
	var following sync.WaitGroup
	for _, s := range w.spokes {
		j.held[s] = map[string]*witness.Object{}
		following.Go(func() {
			if err := witness.Follow(ctx, s.EtcdURL(), func(e witness.Event) error { j.take(ctx, s, e); return s.witness.Take(e) }); err != nil {
				j.violate("the changes in %s are not known: %v", s.name, err)
			}
		})
	}
	following.Go(func() { wait.UntilWithContext(ctx, j.look, 200*time.Millisecond) })
	w.Cleanup(func() { cancel(); following.Wait() })
}

func (j *judge) violate(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if violation := fmt.Sprintf(format, args...); len(j.violations) == 0 || j.violations[len(j.violations)-1] != violation {
		j.violations = append(j.violations, violation)
		j.world.Errorf("%s: %s", time.Now().UTC().Format(time.TimeOnly), violation)
	}
}

// take takes in a change in a cluster, and compares the record of a claim with those of the other clusters.
func (j *judge) take(ctx context.Context, s *spoke, e witness.Event) {
	if e.Kind != witness.Records {
		return
	}
	if e.After == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.held[s], e.Before.Metadata.Name)
		return
	}
	if e.Before != nil || e.After.Spec.ClaimRef.Kind != "IPClaim" {
		return
	}
	for other, rival := range j.hold(s, e.After) {
		record := &v1alpha1.IPAllocation{}
		key := client.ObjectKey{Namespace: rival.Metadata.Namespace, Name: rival.Metadata.Name}
		// A change in the other cluster may arrive late: the record is there if it can be read.
		if other.Get(ctx, key, record) == nil && record.UID == types.UID(rival.Metadata.UID) {
			j.violate("TWO HOLDERS: %s in %s and %s in %s", e.After, s.name, rival, other.name)
		}
	}
}

// hold stores a record, and returns those of other clusters that overlap it.
func (j *judge) hold(s *spoke, record *witness.Object) map[*spoke]*witness.Object {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held[s][record.Metadata.Name] = record
	j.records++
	rivals := map[*spoke]*witness.Object{}
	for other, records := range j.held {
		for _, r := range records {
			if other != s && r.Block.Overlaps(record.Block) {
				rivals[other] = r
			}
		}
	}
	return rivals
}

// look compares the open pools of the clusters with the claims in the hub, which must not overlap. A pool counts
// if it is open before the claims are read and after.
func (j *judge) look(ctx context.Context) {
	window, claims := j.window.Load(), &v1alpha1.IPClaimList{}
	before := map[*spoke]map[string]v1alpha1.IPPool{}
	for _, s := range j.world.spokes {
		before[s] = s.openPools(ctx)
	}
	if j.world.hub.List(ctx, claims) != nil {
		return // the hub is away
	}
	waits := j.compareClaims(claims.Items)
	for _, s := range j.world.spokes {
		after := s.openPools(ctx)
		for name, pool := range after {
			if was, ok := before[s][name]; !ok || was.UID != pool.UID || s.isClaimed(pool, claims.Items, false) {
				continue
			}
			if now := j.window.Load(); window%2 == 0 && now == window {
				j.violate("the range %s of pool %s in %s is not held in the hub", pool.Spec.CIDR, name, s.name)
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.looks++
	if waits {
		j.waits++
	}
}

// compareClaims reports whether one of the claims in the hub waits.
func (j *judge) compareClaims(claims []v1alpha1.IPClaim) (waits bool) {
	for i, c := range claims {
		block, err := netip.ParsePrefix(c.Status.AllocatedCIDR)
		if err != nil {
			waits = true
			continue
		}
		for _, other := range claims[:i] {
			if theirs, err := netip.ParsePrefix(other.Status.AllocatedCIDR); err == nil && block.Overlaps(theirs) {
				j.violate("TWO HOLDERS in the hub: %s of %s and %s of %s", block, c.Name, theirs, other.Name)
			}
		}
	}
	return waits
}

// openPools returns the pools of the provisioner that hand out blocks, by name; none if they cannot be read. One
// that was not opened may have a range that was returned: see the documentation of package provisioner.
func (s *spoke) openPools(ctx context.Context) map[string]v1alpha1.IPPool {
	pools, open := &v1alpha1.IPPoolList{}, map[string]v1alpha1.IPPool{}
	if s.List(ctx, pools, client.HasLabels{provisioner.LabelProvisioner}) != nil {
		return nil
	}
	for _, pool := range pools.Items {
		if pool.DeletionTimestamp.IsZero() && pool.Annotations[v1alpha1.AnnotationPaused] == "" {
			open[pool.Name] = pool
		}
	}
	return open
}

// isClaimed reports whether a claim of the hub holds the range of a pool, or also asks for it.
func (s *spoke) isClaimed(pool v1alpha1.IPPool, claims []v1alpha1.IPClaim, orAsks bool) bool {
	for _, c := range claims {
		if c.Namespace == s.namespace() && s.poolOf(c) == pool.Name {
			return c.Status.AllocatedCIDR == pool.Spec.CIDR || orAsks && c.Status.AllocatedCIDR == "" && c.Spec.CIDR == pool.Spec.CIDR
		}
	}
	return false
}

// end adds the violations that the witnesses found, and what is left.
func (j *judge) end() {
	for _, s := range j.world.spokes {
		for _, v := range s.witness.Violations() {
			j.violate("%s: %s %v", s.name, v.What, v.Objects)
		}
		if left := j.world.left(j.world.Context(), s); len(left) > 0 {
			j.violate("%s: %v is left", s.name, left)
		}
	}
}
