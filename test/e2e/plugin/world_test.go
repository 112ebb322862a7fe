package plugin

import (
	"context"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// world holds a cluster with an address space in it:
//
//	domain default   core 10.0.0.0/8 ── east 10.0.0.0/16 ── nodes 10.0.0.0/24 with a network
//	                                 └─ west 10.1.0.0/16
//	                 vips 192.0.2.0/29, full, two claims wait
//	                 v6 2001:db8::/32 ── v6-east 2001:db8::/40
//	domain lab       lab 10.0.0.0/16
//	namespace team-a a LocalIPPool own 172.16.0.0/24
//
// team-a and team-b hold blocks, one of which is retained. alice has the role edit in team-a, and
// bob in team-b.
type world struct {
	*suite.World
	// historyFile is the file to which the operator writes the history.
	historyFile string
}

func TestPlugin(t *testing.T) {
	w := &world{historyFile: filepath.Join(t.TempDir(), "history.jsonl")}
	w.World = suite.Start(t, cluster.Options{
		Managers: 1, ControllerManager: true, ClusterAPICRDs: true, ManagerArgs: []string{"--history-file=" + w.historyFile},
	})
	w.fill()
	t.Run("check", w.check)
	t.Run("doctor", w.doctor)
	t.Run("pools", w.pools)
	t.Run("reading", w.reading)
	t.Run("history", w.history)
	t.Run("rights", w.rights)
	t.Run("create", w.create)
	t.Run("pause", w.pause)
	t.Run("claim", w.claim)
	t.Run("explain", w.explain)
	t.Run("release", w.release)
	t.Run("interrupted", w.interrupted)
	t.Run("default-class", w.defaultClass)
	t.Run("support-bundle", w.supportBundle)
	t.Run("version", w.version)
	t.Run("cluster", w.clusterNetworks)
	t.Run("hub", w.hub)
	t.Run("import", w.imports)
}

func (w *world) fill() {
	for _, name := range []string{"team-a", "team-b"} {
		w.Namespace(name)
	}
	w.Created(
		build.Editor("alice", "team-a"), build.Editor("bob", "team-b"),
		build.Class("cluster-nodes").Length(32).Obj(),
		build.Class("subnets").Default().Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.AllowRetain = new(true) }).Obj(),
	)
	w.Pools(
		build.Pool("core").CIDR("10.0.0.0/8").Obj(),
		build.Pool("east").Child("core", 16).Obj(),
		build.Pool("west").Child("core", 16).Classes("subnets").Obj(),
		build.Pool("nodes").Child("east", 24).Classes("cluster-nodes").Network(24, "10.0.0.1").Obj(),
		build.Pool("vips").CIDR("192.0.2.0/29").Reserved("192.0.2.0/30").Obj(),
		build.Pool("v6").CIDR("2001:db8::/32").Obj(),
		build.Pool("v6-east").Child("v6", 40).Obj(),
		build.Pool("lab").CIDR("10.0.0.0/16").Domain("lab").Obj(),
		build.Pool("own").CIDR("172.16.0.0/24").In("team-a"),
	)
	for _, claim := range []*v1alpha1.IPClaim{
		build.Claim("team-a", "apps").Class("subnets").Obj(),
		build.Claim("team-a", "keep").Class("subnets").With(func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj(),
		build.Claim("team-b", "batch").Class("subnets").Length(22).Obj(),
		build.Claim("team-b", "lab").Pool("lab").Length(20).Obj(),
		build.Claim("team-a", "six").Pool("v6-east").Length(64).Obj(),
		build.Claim("team-a", "private").LocalPool("own").Length(28).Obj(),
		build.Claim("team-a", "vip").Pool("vips").Length(31).Obj(),
		build.Claim("team-b", "vip").Pool("vips").Length(31).Obj(),
		build.Claim("team-a", "vip-2").Pool("vips").Length(32).Obj(),
		build.Claim("team-b", "vip-2").Pool("vips").Length(31).Obj(),
	} {
		w.Created(claim)
	}
	claim := build.AddressClaim("team-a", "machine-0").Pool("nodes").Cluster("prod").Obj()
	w.Created(build.Cluster("team-a", "prod"), claim)
	w.Served(claim)
	w.Retained("team-a", "keep")
	w.phase("vips", v1alpha1.PoolExhausted)
}

// phase waits until a pool has a phase, so that the manager has seen the earlier changes.
func (w *world) phase(name string, phase v1alpha1.PoolPhase) {
	w.Helper()
	pool := &v1alpha1.IPPool{}
	w.Await(name+" is "+string(phase), func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Name: name}, pool) == nil && pool.Status.Phase == phase
	})
}
