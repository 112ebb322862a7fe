package ui

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/hack/reference"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/viewer"
)

// world holds a cluster with an address space in it:
//
//	domain default   core 10.0.0.0/8 ── east 10.0.0.0/16 ── nodes 10.0.0.0/24 with a network
//	                                 └─ west 10.1.0.0/16
//	                 vips 192.0.2.0/29, full, two claims wait
//	                 v6 2001:db8::/32
//	domain lab       lab 10.0.0.0/16
//	namespace team-a a LocalIPPool own 172.16.0.0/24
//
// team-a and team-b hold blocks, one of which is retained, and the Machine node-7 of Cluster API an
// address. alice has the role edit in team-a.
type world struct {
	*suite.World
	// plugin is the program.
	plugin string
}

func TestUI(t *testing.T) {
	w := &world{plugin: viewer.Build(t)}
	w.World = suite.Start(t, cluster.Options{Managers: 1, ControllerManager: true, ClusterAPICRDs: true})
	w.fill()
	t.Run("begins", w.begins)
	t.Run("questions", w.questions)
	t.Run("refuses", w.refuses)
	t.Run("tenant", w.tenant)
	t.Run("rights", w.comes)
	t.Run("changes", w.changes)
	t.Run("writes", w.writes)
	t.Run("restarts", w.restarts)
	t.Run("ends", w.ends)
}

func (w *world) fill() {
	for _, name := range []string{"team-a", "team-b"} {
		w.Namespace(name)
	}
	w.Created(build.Editor("alice", "team-a"))
	w.Created(
		build.Class("cluster-nodes").Length(32).Obj(),
		build.Class("subnets").Default().Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.AllowRetain = new(true) }).Obj(),
	)
	w.Pools(
		build.Pool("core").CIDR("10.0.0.0/8").Label("site", "all").Obj(),
		build.Pool("east").Child("core", 16).Obj(),
		build.Pool("west").Child("core", 16).Classes("subnets").Obj(),
		build.Pool("nodes").Child("east", 24).Classes("cluster-nodes").Network(24, "10.0.0.1").Obj(),
		build.Pool("vips").CIDR("192.0.2.0/29").Reserved("192.0.2.0/30").Obj(),
		build.Pool("v6").CIDR("2001:db8::/32").Obj(),
		build.Pool("lab").CIDR("10.0.0.0/16").Domain("lab").Obj(),
		build.Pool("own").CIDR("172.16.0.0/24").In("team-a"),
	)
	w.Created(
		build.Claim("team-a", "apps").Class("subnets").Obj(),
		build.Claim("team-a", "keep").Class("subnets").With(func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj(),
		build.Claim("team-b", "batch").Class("subnets").Length(22).Obj(),
		build.Claim("team-b", "rig").Pool("lab").Length(20).Obj(),
		build.Claim("team-a", "six").Pool("v6").Length(64).Obj(),
		build.Claim("team-a", "private").LocalPool("own").Length(28).Obj(),
		build.Claim("team-a", "vip").Pool("vips").Length(31).Obj(),
		build.Claim("team-b", "vip").Pool("vips").Length(31).Obj(),
		build.Claim("team-a", "vip-2").Pool("vips").Length(32).Obj(),
		build.Claim("team-b", "vip-2").Pool("vips").Length(31).Obj(),
		build.Cluster("team-a", "prod"),
	)
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "node-7"},
		Spec: clusterv1.MachineSpec{
			ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("node-7")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.example.com", Kind: "LabVM", Name: "node-7"},
		},
	}
	w.Created(machine)
	owner := metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))
	claim := build.AddressClaim("team-a", "machine-0").Pool("nodes").Cluster("prod").OwnedBy(*owner).Obj()
	w.Created(claim)
	w.Served(claim)
	w.Retained("team-a", "keep")
}

// readsAll gives a user the rights that are documented for the command.
func (w *world) readsAll(t *testing.T, user string) {
	all := reference.Rights()
	needs := all[slices.IndexFunc(all, func(needs reference.Needs) bool { return needs.Command == "ui" })]
	w.For(t).Created(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reads-all"}, Rules: append(needs.Needed, needs.Wanted...)}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reads-all"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}
