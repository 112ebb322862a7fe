// Package uninstall removes the operator the documented way, from a cluster in
// which blocks are held.
package uninstall

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/changes"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/installed"
)

const claims = `apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {name: NAME, namespace: tenant}
spec: {poolRef: {apiGroup: ipam.cadastre.dev, kind: IPPool, name: POOL}}
`

const pools = `apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: removed}
spec: {cidr: 198.18.7.0/29}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: busy}
spec: {cidr: 198.19.0.0/16}
`

const laterPool = `apiVersion: ipam.cadastre.dev/v1alpha1
kind: LocalIPPool
metadata: {name: later, namespace: tenant}
spec: {cidr: 198.18.8.0/29}
`

const laterAddress = `apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata: {name: later, namespace: tenant}
spec: {address: 198.18.7.5, claimRef: {name: later}, poolRef: {apiGroup: ipam.cadastre.dev, kind: IPPool, name: removed}}
`

// addresses lists Cluster API's kinds by their full names: Kubernetes also has IPAddresses.
const addresses = "ipaddressclaims.ipam.cluster.x-k8s.io,ipaddresses.ipam.cluster.x-k8s.io"

// ours finds the operator's finalizers in the lists of kubectl.
const ours = `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.finalizers}{"\n"}{end}`

// world holds a cluster in which the operator runs.
type world struct{ *suite.World }

func (w *world) kubectl(args ...string) string {
	w.Helper()
	out := w.RunKubectl(args...)
	w.Log(out)
	return out
}

func (w *world) apply(manifest string) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "manifest.yaml")
	suite.Must(w, os.WriteFile(path, []byte(manifest), 0o600))
	w.kubectl("apply", "--server-side", "-f", path)
}

// isNotPermitted fails if the operator can install the policy of the removal before the right
// to that is bound, or any other.
func (w *world) isNotPermitted() {
	w.Helper()
	err := installed.RemoveFinalizers(w.World, cluster.Namespace, cluster.ServiceAccount)
	if err == nil || !strings.Contains(err.Error(), "kubectl create clusterrolebinding cadastre-removal") {
		w.Errorf("finalizers are removed without the right: %v", err)
	}
	if there := w.kubectl("get", installed.RemovalKinds, "-o", "name"); strings.Contains(there, installed.RemovalName) {
		w.Errorf("without the right it has installed %s", there)
	}
}

func (w *world) served(name, pool string) {
	w.Helper()
	w.apply(strings.NewReplacer("NAME", name, "POOL", pool).Replace(claims))
	w.kubectl("-n", "tenant", "wait", "--for=condition=Ready", "ipaddressclaims.ipam.cluster.x-k8s.io", name, "--timeout=30s")
}

// expectFree fails if an object of the kinds has one of our finalizers.
func (w *world) expectFree(kinds string) {
	w.Helper()
	for line := range strings.Lines(w.kubectl("get", kinds, "-A", "-o", ours)) {
		if strings.Contains(line, "ipam.cadastre.dev/") {
			w.Errorf("a finalizer is left: %s", line)
		}
	}
}

// start starts a control plane and the operator; root is the folder of the module's files.
func start(t *testing.T) (w *world, root string) {
	t.Helper()
	w = &world{suite.Start(t, cluster.Options{Managers: 1, ControllerManager: true})}
	return w, suite.ModuleRoot(w)
}

func TestDeletionCompletesWithoutOperator(t *testing.T) {
	w, root := start(t)
	suite.Must(w, w.InstallClusterAPICRDs(t.Context()))
	w.kubectl("create", "namespace", "tenant")
	w.kubectl("apply", "--server-side", "-k", filepath.Join(root, "config/samples"))
	w.kubectl("wait", "--for=condition=Ready", "ipclaims", "--all", "-A", "--timeout=30s")
	w.apply(pools)
	w.served("machine", "removed")
	networked := w.networked()
	clients := w.keepClaiming()
	clients.await(clients.stored)

	asAdministrator := exec.CommandContext(t.Context(), filepath.Join(root, "bin/manager"), "--kubeconfig="+w.Kubeconfig(), "remove-finalizers")
	if out, err := asAdministrator.CombinedOutput(); err == nil || !strings.Contains(string(out), "in a pod of the operator") {
		t.Fatalf("an administrator may remove finalizers: %v: %s", err, out)
	}
	if there := w.kubectl("get", installed.RemovalKinds, "-o", "name"); strings.Contains(there, installed.RemovalName) {
		t.Errorf("refused, it has installed %s", there)
	}

	w.isNotPermitted()
	installed.PrepareRemoval(w.World, cluster.Namespace, cluster.ServiceAccount)
	w.kubectl("-n", "tenant", "label", addresses, "machine", "changed=after")
	w.isRefused(laterPool, laterAddress, strings.NewReplacer("NAME", "later", "POOL", "removed").Replace(claims))
	clients.await(clients.refused)
	w.expectFree(addresses + ",ipclaims,ipallocations,ippools,localippools")

	w.kubectl("delete", "--timeout=120s", "--ignore-not-found", "-k", filepath.Join(root, "config/default"))
	suite.Must(w, w.Managers[0].Stop()) // in a cluster it goes with its Deployment
	installed.FinishRemoval(w.World)
	w.kubectl("-n", "tenant", "get", addresses, "machine") // it is Cluster API's, and stays
	w.kubectl("-n", "tenant", "label", "clusters", networked.Name, "changed=after")
	stays := &clusterv1.Cluster{}
	suite.Must(w, w.Get(t.Context(), client.ObjectKeyFromObject(networked), stays))
	if diff := cmp.Diff(networked.Spec, stays.Spec); diff != "" {
		t.Errorf("the Cluster has changed (-before +after)\n%s", diff)
	}
	w.kubectl("delete", "namespace", "tenant", "--timeout=60s")
	if left := w.kubectl("get", addresses, "-A", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// networked makes a Cluster that has got its networks, whose claim is protected.
func (w *world) networked() *clusterv1.Cluster {
	w.Helper()
	w.Created(build.Class("networks").Length(28).Obj())
	w.Pools(build.Pool("networks").CIDR("198.20.0.0/16").Classes("networks").Obj())
	obj := build.Networked(build.Cluster("tenant", "networked"), map[string]string{v1alpha1.AnnotationPods: "networks"})
	w.Await("the Cluster is admitted", func(ctx context.Context) bool { return w.Create(ctx, obj) == nil })
	w.Await("the claim is protected", func(ctx context.Context) bool {
		claims := &v1alpha1.IPClaimList{}
		suite.Must(w, w.List(ctx, claims, client.InNamespace("tenant"), client.MatchingLabels{clusterv1.ClusterNameLabel: obj.Name}))
		return len(claims.Items) == 1 && len(claims.Items[0].Finalizers) == 1
	})
	return obj
}

// isRefused expects that the manifests are refused, one by one, because the operator is removed.
func (w *world) isRefused(manifests ...string) {
	w.Helper()
	for _, manifest := range manifests {
		path := filepath.Join(w.TempDir(), "manifest.yaml")
		suite.Must(w, os.WriteFile(path, []byte(manifest), 0o600))
		if out, err := w.Kubectl(w.Context(), "create", "-f", path); err == nil || !strings.Contains(err.Error(), refusal) {
			w.Errorf("got %s, %v of %s; want %q", out, err, manifest, refusal)
		}
	}
}

// kinds lists all kinds that the samples have.
const kinds = "ipclaims,ipclasses,ippools,localippools,ipallocations"

func TestSamplesCanBeDeletedAsApplied(t *testing.T) {
	w, root := start(t)
	samples := filepath.Join(root, "config/samples")
	w.kubectl("apply", "--server-side", "-k", samples)
	w.kubectl("wait", "--for=condition=Ready", "ipclaims", "--all", "-A", "--timeout=30s")

	w.kubectl("delete", "--timeout=60s", "-k", samples)
	w.kubectl("wait", "--for=delete", "ipallocations", "--all", "-A", "--timeout=30s")
	if left := w.kubectl("get", kinds, "-A", "-o", "name"); left != "" {
		t.Errorf("left over:\n%s", left)
	}
}

// refusal is the answer while the operator is removed.
const refusal = "Cadastre is being removed: nothing new is handed out"

// claimants continue to claim by both kinds of claims, until the test ends.
type claimants struct {
	*world
	mu changes.Mutex
	// stored and refused count claims by kind.
	stored, refused map[string]int
}

// keepClaiming starts a client for each kind of claim.
func (w *world) keepClaiming() *claimants {
	w.Helper()
	c := &claimants{world: w, stored: map[string]int{}, refused: map[string]int{}}
	cfg := cluster.NoRetry(w.Config())
	cfg.QPS, cfg.Burst = 20, 1
	k8s, err := client.New(cfg, client.Options{Scheme: w.Scheme()})
	suite.Must(w, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.Cleanup(func() {
		stop()
		running.Wait()
	})
	for kind, claim := range map[string]func(string) client.Object{
		"IPClaim": func(name string) client.Object { return build.Claim("tenant", name).Pool("busy").Length(32).Obj() },
		"IPAddressClaim": func(name string) client.Object {
			return build.AddressClaim("tenant", name).Pool("busy").Obj()
		},
	} {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.count(kind, k8s.Create(ctx, claim(fmt.Sprint("client-", n))))
			}
		})
	}
	return c
}

func (c *claimants) count(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.stored[kind]++
	case strings.Contains(err.Error(), refusal):
		c.refused[kind]++
	default:
		return
	}
	c.mu.Changed()
}

// await waits until claims of both kinds have been counted.
func (c *claimants) await(counts map[string]int) {
	c.Helper()
	if !c.mu.Await(c.Context(), func() bool { return len(counts) == 2 }) {
		c.Fatal("the test has ended before")
	}
}
