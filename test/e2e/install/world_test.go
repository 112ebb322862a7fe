// Package install installs the operator with the tools that people use, upgrades it while claims
// arrive, and removes it as documented.
package install

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/changes"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/helm"
	"github.com/cadastre-dev/cadastre/test/framework/installed"
)

// definitions lists the CRDs, whose kinds are the register.
const definitions = "ipallocations.ipam.cadastre.dev,ipclaims.ipam.cadastre.dev,ippools.ipam.cadastre.dev,localippools.ipam.cadastre.dev,ipclasses.ipam.cadastre.dev"

// world holds a control plane on which the operator is installed by one tool after the other.
type world struct {
	*suite.World
	root, home string
	helm       *helm.Helm
}

// TestInstall uses one control plane for all tools: the remains of one must not disturb the next.
func TestInstall(t *testing.T) {
	root := suite.ModuleRoot(t)
	home := t.TempDir()
	program, err := helm.New(root, home)
	suite.Must(t, err)
	w := &world{World: suite.Start(t, cluster.Options{Bare: true, ControllerManager: true}), root: root, home: home, helm: program}
	w.Namespace(team)
	for _, tool := range []struct {
		name string
		test func(*world)
	}{
		{"Helm", (*world).byHelm},
		{"kustomize", (*world).byKustomize},
		{"cert-manager", (*world).withCertManager},
	} {
		if !t.Run(tool.name, func(t *testing.T) {
			tool.test(&world{World: w.For(t), root: root, home: home, helm: program})
		}) {
			return // the next steps would fail because of the remains
		}
	}
}

// start runs two replicas of the operator installed in a namespace, and checks that nothing is
// missing.
func (w *world) start(namespace string) {
	w.Helper()
	suite.Must(w, w.AwaitKinds(w.Context()))
	suite.Must(w, w.StartInstalled(w.Context(), namespace, 2))
	installed.IsHealthy(w.World, namespace, team)
}

// runHelm fails the test if Helm fails, or takes too long.
func (w *world) runHelm(args ...string) string {
	w.Helper()
	out, err := w.tryHelm(args...)
	suite.Must(w, err)
	return out
}

func (w *world) tryHelm(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	out, err := w.helm.Run(ctx, append(args, "--kubeconfig="+w.Kubeconfig())...)
	w.Logf("helm %s %s took %v", args[0], args[1], time.Since(begin).Round(time.Millisecond))
	return out, err
}

// write writes a file below home, and returns its path.
func (w *world) write(content string, elements ...string) string {
	w.Helper()
	path := filepath.Join(append([]string{w.home}, elements...)...)
	suite.Must(w, os.MkdirAll(filepath.Dir(path), 0o700))
	suite.Must(w, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// register returns the blocks of allocations of the load's pool, by name.
func (w *world) register() map[string]string {
	w.Helper()
	records := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), records))
	blocks := map[string]string{}
	for i := range records.Items {
		blocks[records.Items[i].Namespace+"/"+records.Items[i].Name] = records.Items[i].Spec.CIDR
	}
	return blocks
}

// judge fails if a claim of the load was refused, was lost, or shares its block.
func (l *load) judge() {
	l.w.Helper()
	l.w.Log(l)
	if len(l.refused) > 0 {
		l.w.Errorf("%d requests were refused: %v", len(l.refused), l.refused)
	}
	if l.without > 0 {
		l.w.Errorf("%d claims were answered without a block", l.without)
	}
	l.w.keeps(l.held)
}

// keeps fails if a claim does not hold its block by a record.
func (w *world) keeps(held map[string]string) {
	w.Helper()
	records, owner := w.register(), map[netip.Prefix]string{}
	for name, block := range held {
		claim := build.Claim(team, name).Obj()
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			w.Errorf("claim %s is lost: %v", name, err)
			continue
		}
		record := team + "/" + claim.Spec.AllocationName
		if claim.Status.AllocatedCIDR != block || records[record] != block {
			w.Errorf("claim %s has %q and its record %q, want %s", name, claim.Status.AllocatedCIDR, records[record], block)
		}
		prefix := netip.MustParsePrefix(block)
		if other, twice := owner[prefix]; twice {
			w.Errorf("%s is held by %s and %s", block, name, other)
		}
		owner[prefix] = name
	}
}

// isGone fails if objects of the operator are left.
func (w *world) isGone(namespace string, kinds ...string) {
	w.Helper()
	for _, kind := range kinds {
		if left := w.RunKubectl("get", kind, "--all-namespaces", "-l", "app.kubernetes.io/name=cadastre", "-o", "name"); left != "" {
			w.Errorf("left: %s", left)
		}
	}
	if namespace == "" {
		return
	}
	suite.Must(w, client.IgnoreNotFound(w.Delete(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})))
	w.Gone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}

// The namespace and the pool of the load, whose clients continue to claim while the operator is
// upgraded.
const (
	team    = "team"
	pool    = "load"
	clients = 3
)

// load represents clients that create claims, and delete every fourth of them.
type load struct {
	w    *world
	end  context.CancelFunc
	done sync.WaitGroup

	mu      changes.Mutex
	held    map[string]string // blocks of claims, by name
	stored  int               // creates that were answered
	without int               // of those, without a block
	cut     int               // attempts whose connection was cut
	refused []error
	last    time.Time     // when a create was answered
	longest time.Duration // without an answered create
}

// begin starts clients that claim until stop. prefix makes the names of their claims unique.
func (w *world) begin(prefix string) *load {
	w.Helper()
	ctx, end := context.WithCancel(w.Context())
	l := &load{w: w, end: end, held: map[string]string{}, last: time.Now()}
	config := cluster.NoRetry(w.Config())
	config.QPS, config.Burst = 15, 1 // for each client, so that the processors are left to the upgrade
	for n := range clients {
		as, err := client.New(config, client.Options{Scheme: w.Scheme()})
		suite.Must(w, err)
		l.done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				claim := build.Claim(team, fmt.Sprintf("%s-%d-%d", prefix, n, i)).Pool(pool).Length(32).Obj()
				if l.count(ctx, claim, l.create(ctx, as, claim)) && i%4 == 0 {
					l.release(ctx, as, claim)
				}
			}
		})
	}
	w.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.end()
	l.done.Wait()
}

// create creates a claim, and tries again, as client-go does, if a connection was cut.
func (l *load) create(ctx context.Context, as client.Client, claim *v1alpha1.IPClaim) error {
	err := as.Create(ctx, claim)
	for range 2 {
		if ctx.Err() != nil || !suite.IsCut(err) {
			break
		}
		l.mu.Lock()
		l.cut++
		l.mu.Unlock()
		if err = as.Create(ctx, claim); apierrors.IsAlreadyExists(err) {
			err = as.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		}
	}
	return err
}

// count records the result of a create, and reports whether the claim is stored.
func (l *load) count(ctx context.Context, claim *v1alpha1.IPClaim, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		l.refused = append(l.refused, fmt.Errorf("%s: %w", claim.Name, err))
		return false
	}
	l.stored++
	if claim.Status.AllocatedCIDR == "" {
		l.without++
	}
	l.held[claim.Name] = claim.Status.AllocatedCIDR
	l.longest, l.last = max(l.longest, time.Since(l.last)), time.Now()
	l.mu.Changed()
	return true
}

// release deletes a claim. A delete that is cut may have happened.
func (l *load) release(ctx context.Context, as client.Client, claim *v1alpha1.IPClaim) {
	err := as.Delete(ctx, claim)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, claim.Name)
	if err != nil && ctx.Err() == nil && !suite.IsCut(err) {
		l.refused = append(l.refused, fmt.Errorf("deleting %s: %w", claim.Name, err))
	}
}

// creates waits until so many more creates were answered.
func (l *load) creates(more int) {
	l.w.Helper()
	l.mu.Lock()
	want := l.stored + more
	l.mu.Unlock()
	if !l.mu.Await(l.w.Context(), func() bool { return l.stored >= want }) {
		l.w.Fatalf("the test ended before so many claims were answered: %v", l)
	}
}

func (l *load) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d claims stored, %d of them without a block, %d attempts cut, %d refused %v, %v the longest without an answered create",
		l.stored, l.without, l.cut, len(l.refused), l.refused[:min(3, len(l.refused))], l.longest.Round(time.Millisecond))
}
