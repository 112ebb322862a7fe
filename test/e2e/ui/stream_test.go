package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// kubectlSays returns the items that kubectl lists in all namespaces, read as T, by UID.
func kubectlSays[T any, P interface {
	*T
	client.Object
}](t *testing.T, w *world, resource string) map[string]P {
	t.Helper()
	kubectl, err := cluster.Binary("kubectl")
	suite.Must(t, err)
	out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+w.Kubeconfig(), "--cache-dir="+t.TempDir(), "get", resource, "-A", "-o", "json").Output()
	suite.Must(t, err)
	var list struct{ Items []T }
	suite.Must(t, json.Unmarshal(out, &list))
	all := map[string]P{}
	for i := range list.Items {
		item := P(&list.Items[i])
		all[string(item.GetUID())] = item
	}
	return all
}

// says is the form in which the stream and kubectl are compared: a line for each object.
type says []string

func (s *says) add(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }

func (s *says) addPool(id string, pool v1alpha1.Pool) {
	status := pool.PoolStatus()
	s.add("pool %s %s %s: %s free of %s, %d blocks", id, status.AllocatedCIDR, status.Phase, status.Capacity.Available, status.Capacity.Total, status.Allocations)
}

// fromKubectl returns the state by kubectl.
func fromKubectl(t *testing.T, w *world) says {
	var all says
	for _, pool := range kubectlSays[v1alpha1.IPPool](t, w, "ippools") {
		all.addPool("IPPool/"+pool.Name, pool)
	}
	for _, pool := range kubectlSays[v1alpha1.LocalIPPool](t, w, "localippools") {
		all.addPool("LocalIPPool/"+pool.Namespace+"/"+pool.Name, pool)
	}
	for uid, record := range kubectlSays[v1alpha1.IPAllocation](t, w, "ipallocations") {
		state, pool := string(record.Spec.State), ""
		if record.Spec.Purpose == v1alpha1.PurposePool {
			state = "Carved"
		}
		if ref := record.Spec.PoolRef; ref != nil && ref.Kind == v1alpha1.PoolKindIPPool {
			pool = "IPPool/" + ref.Name
		} else if ref != nil {
			pool = "LocalIPPool/" + record.Namespace + "/" + ref.Name
		}
		all.add("block %s %s %s of %q, held by %s %s, as %s/%s, project %q", uid, record.Spec.CIDR, state, pool,
			record.Spec.ClaimRef.Kind, record.Spec.ClaimRef.Name, record.Namespace, record.Name, record.Spec.Project)
	}
	for uid, claim := range kubectlSays[v1alpha1.IPClaim](t, w, "ipclaims") {
		if claim.Status.Phase != v1alpha1.ClaimBound {
			all.add("claim %s %s/%s", uid, claim.Namespace, claim.Name)
		}
	}
	slices.Sort(all)
	return all
}

// says returns the state by the stream.
func (s viewState) says() says {
	var all says
	for id, pool := range s.pools {
		if pool.Usage == nil {
			all.add("pool %s, without usage", id)
			continue
		}
		all.add("pool %s %s %s: %s free of %s, %d blocks", id, pool.CIDR, pool.Phase, pool.Usage.Free, pool.Usage.Total, pool.Usage.Blocks)
	}
	for id, block := range s.blocks {
		all.add("block %s %s %s of %q, held by %s %s, as %s, project %q", id, block.CIDR, block.State, block.Pool,
			block.Holder.Kind, block.Holder.Name, block.Allocation, block.Project)
	}
	for id, claim := range s.claims {
		all.add("claim %s %s/%s", id, claim.Namespace, claim.Name)
	}
	slices.Sort(all)
	return all
}

// same waits until the stream has the same state as kubectl.
func (w *world) same(t *testing.T, v *view) {
	t.Helper()
	var diff string
	w.For(t).Await("the stream has the same state as kubectl", func(context.Context) bool {
		want := fromKubectl(t, w)
		v.mu.Lock()
		defer v.mu.Unlock()
		if diff = cmp.Diff(want, v.says()); diff != "" && t.Context().Err() == nil {
			return false
		}
		return true
	})
	if diff != "" {
		t.Errorf("(-kubectl +stream)\n%s", diff)
	}
}

// begins compares the first state with that of kubectl.
func (w *world) begins(t *testing.T) {
	c := w.start(t, "")
	v := c.views().isReady(t)
	w.same(t, v)
	v.mu.Lock()
	defer v.mu.Unlock()
	if hello := v.hello; hello.Version == "" || hello.Namespace != "default" || !hello.ReadOnly || v.unread.Text != "" {
		t.Errorf("%+v, unread: %q", v.hello, v.unread.Text)
	}
	if first := strings.Join(slices.Compact(v.order), " "); !strings.HasPrefix(first, "hello unread pools") || !strings.HasSuffix(first, "blocks waiting ready") {
		t.Errorf("messages: %s", first)
	}
	for _, id := range []string{"core", "east", "nodes"} {
		if pool := v.pools["IPPool/"+id]; pool.Domain != "default" || pool.UsageFrom != "records" {
			t.Errorf("%+v", pool)
		}
	}
	if nodes := v.pools["IPPool/nodes"]; nodes.Parent != "IPPool/east" || !nodes.HostAddresses || len(nodes.Withheld) != 3 {
		t.Errorf("%+v", nodes)
	}
}

// changes follows an allocation and a release, and a claim that waited.
func (w *world) changes(t *testing.T) {
	testWorld := w.For(t)
	c := w.start(t, "")
	v, other := c.views().isReady(t), c.views().isReady(t)
	claim := build.Claim("team-b", "live").Class("subnets").Length(26).Obj()
	testWorld.Created(claim)
	holder := live.Object{Kind: "IPClaim", Namespace: "team-b", Name: "live"}
	for _, each := range []*view{v, other} {
		each.awaits(t, "the block has come", func(s viewState) bool {
			b, held := s.holds(holder)
			return held && b.CIDR == claim.Status.AllocatedCIDR
		})
	}
	testWorld.Deleted(claim)
	v.awaits(t, "the block has gone", func(s viewState) bool { _, held := s.holds(holder); return !held })
	testWorld.Deleted(&v1alpha1.IPClaim{ObjectMeta: build.Claim("team-b", "vip").Obj().ObjectMeta})
	v.awaits(t, "team-a/vip-2, which is older than team-b/vip-2, does not wait any more", func(s viewState) bool {
		_, held := s.holds(live.Object{Kind: "IPClaim", Namespace: "team-a", Name: "vip-2"})
		return held && len(s.claims) == 1
	})
	cluster := build.Networked(build.Cluster("team-b", "edge"), map[string]string{v1alpha1.AnnotationPods: "subnets"})
	testWorld.Created(cluster)
	isEdge := func(block live.Block) bool { return block.Cluster == "edge" }
	v.awaits(t, "the pods of the Cluster have come, with its name", func(s viewState) bool { return s.any(isEdge) })
	testWorld.Await("the Cluster owns its claim", func(ctx context.Context) bool { // before, the claim outlasts it by the grace period
		claims := &v1alpha1.IPClaimList{}
		err := testWorld.List(ctx, claims, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
		return err == nil && len(claims.Items) == 1 && len(claims.Items[0].OwnerReferences) == 1
	})
	testWorld.Deleted(cluster)
	v.awaits(t, "they have gone", func(s viewState) bool { return !s.any(isEdge) })
	pool := build.Pool("late").CIDR("192.168.0.0/24").Obj()
	testWorld.Pools(pool)
	v.awaits(t, "the pool has come", func(s viewState) bool { return s.pools["IPPool/late"].Phase == "Ready" })
	testWorld.Deleted(pool)
	v.awaits(t, "the pool has gone", func(s viewState) bool { _, ok := s.pools["IPPool/late"]; return !ok })
	w.same(t, v)
	w.same(t, other)
}

// ends ends the command as Ctrl-C does.
func (w *world) ends(t *testing.T) {
	c := w.start(t, "")
	v := c.views().isReady(t)
	v.awaits(t, "it is in step", func(s viewState) bool { return s.beats > 0 && s.behind == "" })
	if err := c.Stop(); err != nil || c.Errors(t) != "" {
		t.Errorf("it ends with %v, and says %q", err, c.Errors(t))
	}
	var dialer net.Dialer
	if conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(c.Origin, "http://")); err == nil {
		t.Error("something is still served", conn.Close())
	}
}

// restarts restarts the API server, and changes objects before the command can see them.
func (w *world) restarts(t *testing.T) {
	testWorld := w.For(t)
	deletedClaim := build.Claim("team-a", "gone-later").Class("subnets").Obj()
	testWorld.Created(deletedClaim)
	c := w.start(t, "")
	v := c.views().isReady(t)
	suite.Must(t, w.APIServer.Stop())
	v.awaits(t, "it says that it is behind", func(s viewState) bool { return strings.Contains(s.behind, "ipallocations") })
	suite.Must(t, c.Signal(syscall.SIGSTOP))
	suite.Must(t, w.APIServer.Start(t.Context()))
	testWorld.AwaitUnlessFailed("a claim is served", func(ctx context.Context) (bool, error) {
		return w.Create(ctx, build.Claim("team-a", "come-later").Class("subnets").Obj()) == nil, nil
	})
	testWorld.Deleted(deletedClaim)
	testWorld.Gone(deletedClaim)
	testWorld.Await("its record is gone", func(ctx context.Context) bool {
		return client.IgnoreNotFound(w.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: deletedClaim.Spec.AllocationName}, &v1alpha1.IPAllocation{})) == nil &&
			w.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: deletedClaim.Spec.AllocationName}, &v1alpha1.IPAllocation{}) != nil
	})
	suite.Must(t, c.Signal(syscall.SIGCONT))
	v.awaits(t, "it is in step again, with the changes", func(s viewState) bool {
		_, come := s.holds(live.Object{Kind: "IPClaim", Namespace: "team-a", Name: "come-later"})
		_, left := s.holds(live.Object{Kind: "IPClaim", Namespace: "team-a", Name: "gone-later"})
		return s.behind == "" && come && !left
	})
	w.same(t, v)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unread.Text != "" {
		t.Errorf("after the restart it says: %s", v.unread.Text)
	}
}
