package uibrowser

import (
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/browser"
	"github.com/cadastre-dev/cadastre/test/framework/viewer"
)

// world holds the address space of a platform team, and a browser.
//
//	domain default      core 10.0.0.0/8 ── fra 10.0.0.0/13 ── fra-pods, fra-services, fra-nodes, fra-lb
//	                                    ├─ ams 10.8.0.0/13 ── ams-pods, ams-nodes
//	                                    └─ iad 10.64.0.0/10, sin 10.128.0.0/10
//	                    public-vips 192.0.2.0/28, full, two claims wait
//	                    v6 2001:db8::/32 ── fra-v6 2001:db8::/40
//	domain lab          lab 10.0.0.0/16
//	namespace storage   a LocalIPPool replication 192.168.40.0/24
//
// Blocks of payments and search are retained, cooling and drained. alice may read the namespace
// payments only.
type world struct {
	*suite.World
	browser *browser.Browser
	// plugin is the program, and view one that runs as the administrator and only reads.
	plugin string
	view   *viewer.Viewer
}

// namespaces returns them, with the project that each belongs to.
func namespaces() [][2]string {
	return [][2]string{
		{"payments", "shop"}, {"checkout", "shop"}, {"search", "search"}, {"storage", "platform"},
		{"observability", "platform"}, {"ml-training", "research"},
	}
}

func start(t *testing.T) *world {
	w := &world{browser: browser.Start(t), plugin: viewer.Build(t)}
	w.World = suite.Start(t, cluster.Options{Managers: 1, ControllerManager: true, ClusterAPICRDs: true})
	w.view = w.views(t)
	return w
}

// views starts the command as the administrator.
func (w *world) views(t *testing.T, flags ...string) *viewer.Viewer {
	t.Helper()
	return viewer.Start(t, w.plugin, viewer.Kubeconfig(t, w.Config(), "prod-eu", "payments"), flags...)
}

// open opens the page that a command serves, and waits until it is in step with the cluster.
// At the end of the test the browser must not have complained.
func (w *world) open(t *testing.T, v *viewer.Viewer, look browser.Look) *browser.Page {
	t.Helper()
	p := w.browser.Open(t, "about:blank", look)
	p.NoteDrawing()
	p.Prepare(noteLive)
	p.Go(v.Address)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page says %q, its maps %q", browser.Value[string](p, "document.body.innerText.slice(0,4000)"), labels(p))
		}
		if said := p.Errors(); len(said) > 0 {
			t.Errorf("the browser complains: %q", said)
		}
	})
	live(p)
	return p
}

// noteLive makes the page record how many entries the legend and the list have when it becomes in
// step with the cluster: window.whenLive.
const noteLive = `addEventListener('DOMContentLoaded',()=>{const sign=document.querySelector('#sign')
if(sign)new MutationObserver(()=>{if(sign.dataset.phase==='live')window.whenLive??=[legend.children.length,list.tBodies[0].rows.length]}).observe(sign,{attributes:true})})`

// live waits until the page is in step with the cluster.
func live(p *browser.Page) {
	p.Await("the page is in step", "document.querySelector('#sign')?.dataset.phase==='live'")
}

func (w *world) pools() {
	for _, entry := range namespaces() {
		w.Created(build.NamespaceOf(entry[1], entry[0]))
	}
	w.Created(
		build.Class("cluster-nodes").Length(32).Obj(),
		build.Class("load-balancers").Length(32).Obj(),
		build.Class("pod-networks").Default().Length(20).Lengths(18, 28).With(func(s *v1alpha1.IPClassSpec) { s.AllowRetain = new(true) }).Obj(),
	)
	w.Pools(
		build.Pool("core").CIDR("10.0.0.0/8").Label("owner", "platform").Obj(),
		build.Pool("fra").Child("core", 13).Label("site", "fra").Obj(),
		build.Pool("ams").Child("core", 13).Label("site", "ams").Obj(),
		build.Pool("iad").Child("core", 10).Label("site", "iad").Obj(),
		build.Pool("sin").Child("core", 10).Label("site", "sin").Obj(),
		build.Pool("fra-pods").Child("fra", 14).Classes("pod-networks").Obj(),
		build.Pool("fra-services").Child("fra", 16).Obj(),
		build.Pool("fra-nodes").Child("fra", 20).Classes("cluster-nodes").Network(20, "10.5.0.1").Reserved("10.5.15.0/24").Obj(),
		build.Pool("fra-lb").Child("fra", 26).Classes("load-balancers").With(func(s *v1alpha1.IPPoolSpec) {
			s.ReuseDelay = &metav1.Duration{Duration: 24 * time.Hour}
		}).Obj(),
		build.Pool("ams-pods").Child("ams", 14).Strategy(v1alpha1.StrategyWorstFit).Obj(),
		build.Pool("ams-nodes").Child("ams", 20).Obj(),
		build.Pool("public-vips").CIDR("192.0.2.0/28").Reserved("192.0.2.0/30").Obj(),
		build.Pool("v6").CIDR("2001:db8::/32").Obj(),
		build.Pool("fra-v6").Child("v6", 40).Obj(),
		build.Pool("lab").CIDR("10.0.0.0/16").Domain("lab").Obj(),
		build.Pool("replication").CIDR("192.168.40.0/24").In("storage"),
	)
}

// namespace returns that of the i-th claim of a pool.
func namespace(i int) string { return namespaces()[i%len(namespaces())][0] }

// claims creates claims, a pool after the other.
func (w *world) claims() {
	workloads := []string{"api", "worker", "cache", "ingest", "batch", "gateway", "index", "queue"}
	claim := func(pool, prefix string, length int32, count int) {
		for i := range count {
			team := namespace(i)
			w.Created(build.Claim(team, fmt.Sprintf("%s%s-%d", prefix, workloads[i%len(workloads)], i)).Pool(pool).Length(length).Obj())
		}
	}
	claim("fra-pods", "pods-", 19, 14)
	claim("fra-pods", "edge-", 20, 9)
	claim("fra-services", "svc-", 20, 11)
	claim("fra-lb", "lb-", 32, 24)
	claim("ams-pods", "pods-ams-", 18, 5)
	claim("ams-nodes", "node-", 28, 17)
	claim("fra-v6", "v6-", 56, 6)
	claim("fra-v6", "v6-net-", 44, 8)
	claim("lab", "rig-", 20, 7)
	claim("public-vips", "vip-", 32, 12)
	for _, team := range []string{"payments", "ml-training"} {
		w.Created(build.Claim(team, "vip-next").Pool("public-vips").Length(32).Obj())
	}
	w.Created(
		build.Claim("storage", "sync").LocalPool("replication").Length(28).Obj(),
		build.Claim("checkout", "staging").Pool("lab").Length(17).Obj(),
		build.Cluster("payments", "prod"),
	)
	for i := range 6 {
		w.machine(fmt.Sprintf("prod-worker-%d", i))
	}
}

// machine creates a machine's claim of an address, and waits until it has one.
func (w *world) machine(name string) {
	w.Helper()
	owner := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: name},
		Spec:       clusterv1.MachineSpec{ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("none")}, InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "FakeMachine", Name: name}},
	}
	w.Created(owner)
	claim := build.AddressClaim("payments", name+"-eth0").Pool("fra-nodes").Cluster("prod").
		OwnedBy(metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: owner.UID}).Obj()
	w.Created(claim)
	w.Served(claim)
}

// states brings blocks into the states that a claim alone does not: retained, cooling, and out of
// range.
func (w *world) states() {
	kept := build.Claim("payments", "pods-archive").Class("pod-networks").Length(22).With(func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj()
	w.Created(kept)
	w.Deleted(kept)
	for _, i := range []int{3, 8} {
		w.Deleted(w.claim(namespace(i), fmt.Sprintf("lb-%s-%d", []string{3: "ingest", 8: "api"}[i], i)))
	}
	pool := &v1alpha1.IPPool{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: "fra-services"}, pool))
	held := w.claim("payments", "svc-api-0")
	before := pool.DeepCopy()
	pool.Spec.Reserved = append(pool.Spec.Reserved, held.Status.AllocatedCIDR)
	suite.Must(w, w.Patch(w.Context(), pool, client.MergeFrom(before)))
}

// claim reads an IPClaim.
func (w *world) claim(namespace, name string) *v1alpha1.IPClaim {
	w.Helper()
	claim := &v1alpha1.IPClaim{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, claim))
	return claim
}

// tenant starts the command with a kubeconfig of alice, who may read her namespace alone.
func (w *world) tenant(t *testing.T) *viewer.Viewer {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "alice"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}
	suite.Must(t, client.IgnoreAlreadyExists(w.Create(t.Context(), binding)))
	config, err := w.User("alice")
	suite.Must(t, err)
	return viewer.Start(t, w.plugin, viewer.Kubeconfig(t, config, "prod-eu", "payments"))
}

// TestUIBrowser looks at the page as a person does, step by step, in one world.
func TestUIBrowser(t *testing.T) {
	w := start(t)
	for i, step := range []struct {
		name string
		run  func(*world, *testing.T)
	}{
		{"an address space without pools", (*world).empty},
		{"the page loads, and draws the map", (*world).loads},
		{"an address is found, and its holder", (*world).finds},
		{"an allocation and a release are followed", (*world).follows},
		{"a claim waits, and is served", (*world).waits},
		{"the table matches the map", (*world).tells},
		{"a link keeps the view", (*world).links},
		{"the list is exported", (*world).exports},
		{"free space is claimed from its row", (*world).claimsFree},
		{"everything can be done with keys", (*world).keys},
		{"less movement, themes, a phone, paper", (*world).looks},
		{"all can be read, and axe-core finds nothing serious", (*world).legible},
		{"only requests with the token, and from no other page", (*world).refuses},
		{"a tenant sees what it may read", (*world).tenants},
		{"the API server is started again", (*world).restarts},
		{"pictures", (*world).pictures},
	} {
		passed := t.Run(step.name, func(t *testing.T) {
			testWorld := *w
			testWorld.World = w.For(t)
			step.run(&testWorld, t)
		})
		if !passed && i < 2 {
			return // all others need the results of these two
		}
	}
}
