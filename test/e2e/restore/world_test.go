// Package restore brings a cluster back: from a snapshot of etcd that was taken
// under load, from a dump without IPAllocations, and, while claims come in, from
// the previous build of the operator to this one. What came of it is read from the
// API server alone.
package restore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/build"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
)

// orphanGrace is short here: tests wait for it.
const orphanGrace = 4 * time.Second

// team is the namespace of all claims.
const team = "team"

// world is a cluster with a client, for one test.
type world struct {
	*cluster.Cluster
	client.WithWatch
	*WithT
	t *testing.T
}

func start(t *testing.T, options cluster.Options) *world {
	t.Helper()
	options.Progress, options.ClusterAPICRDs = t.Output(), true
	options.ManagerArgs = append(options.ManagerArgs, "--orphan-grace="+orphanGrace.String())
	log.SetLogger(logr.Discard())
	running, err := cluster.Start(t.Context(), options)
	w := &world{Cluster: running, WithT: newGomega(t), t: t}
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { w.Expect(running.Stop()).To(Succeed()) })
	w.WithWatch = w.client(running.Config())
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}})
	return w
}

func newGomega(t *testing.T) *WithT {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	g.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	return g
}

func (w *world) client(config *rest.Config) client.WithWatch {
	w.t.Helper()
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, ipamv1.AddToScheme} {
		w.Expect(add(scheme)).To(Succeed())
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	w.Expect(err).NotTo(HaveOccurred())
	return c
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		w.Expect(w.Create(w.t.Context(), obj)).To(Succeed())
	}
}

// ready waits until the pools hand out blocks.
func (w *world) ready(pools ...v1alpha1.Pool) {
	w.t.Helper()
	for _, pool := range pools {
		w.Eventually(func(g Gomega) {
			g.Expect(w.Get(w.t.Context(), client.ObjectKeyFromObject(pool), pool)).To(Succeed())
			g.Expect(pool.PoolStatus().Phase).To(Equal(v1alpha1.PoolReady))
		}).Should(Succeed())
	}
}

// agrees waits until all that is stored agrees.
func (w *world) agrees() {
	w.t.Helper()
	begin := time.Now()
	w.Eventually(func() ([]string, error) { return w.wrong(w.t.Context(), nil) }).Should(BeEmpty())
	w.t.Logf("all agrees after %v", time.Since(begin).Round(time.Millisecond))
}

// serves has new claims served, with blocks that nobody else has.
func (w *world) serves(prefix string) {
	w.t.Helper()
	for i := range 30 {
		claim := build.Claim(team, fmt.Sprintf("%s-%d", prefix, i)).Pool(claimsPool).Length(int32(26 + i%7)).Obj()
		w.create(claim, build.AddressClaim(team, claim.Name).Pool(hostsPool).Obj())
		w.Expect(claim.Spec.CIDR).NotTo(BeEmpty(), "%s is %s and says %+v", claim.Name, claim.Status.Phase, claim.Status.Conditions)
	}
	w.agrees()
}

// list is List that fails the test in no other way than by its error.
func (w *world) list(ctx context.Context, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := w.List(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
