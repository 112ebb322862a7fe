// Package replicas plays several replicas of the operator against each other,
// and looks at what the API server says of it, not at what they remember.
package replicas

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/build"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
)

// orphanGrace is short here: tests wait for it.
const orphanGrace = 5 * time.Second

func TestReplicas(t *testing.T) {
	RegisterFailHandler(Fail)
	log.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(90 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Replicas")
}

// sized is how much a test does: all of it, or less with go test -short.
func sized(all, short int) int {
	if testing.Short() {
		return short
	}
	return all
}

// world is a cluster with a client.
type world struct {
	*cluster.Cluster
	client.WithWatch
}

func start(ctx context.Context, options cluster.Options) *world {
	GinkgoHelper()
	options.Progress = GinkgoWriter
	options.ManagerArgs = append(options.ManagerArgs, "--orphan-grace="+orphanGrace.String())
	running, err := cluster.Start(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
	return &world{Cluster: running, WithWatch: clientFor(running.Config())}
}

func clientFor(cfg *rest.Config) client.WithWatch {
	GinkgoHelper()
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func (w *world) namespace(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
}

// pool makes a root pool and waits until it hands out blocks.
func (w *world) pool(ctx context.Context, name, cidr string) {
	GinkgoHelper()
	pool := build.Pool(name).CIDR(cidr).Obj()
	Expect(w.Create(ctx, pool)).To(Succeed())
	Eventually(func() v1alpha1.PoolPhase {
		Expect(w.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
		return pool.Status.Phase
	}).Should(Equal(v1alpha1.PoolReady))
}

func (w *world) claims(ctx context.Context, namespace string) []v1alpha1.IPClaim {
	GinkgoHelper()
	list := &v1alpha1.IPClaimList{}
	Expect(w.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

func (w *world) records(ctx context.Context, namespace string) []v1alpha1.IPAllocation {
	GinkgoHelper()
	list := &v1alpha1.IPAllocationList{}
	Expect(w.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// available is how many addresses a pool says are free.
func (w *world) available(ctx context.Context, pool string) string {
	GinkgoHelper()
	obj := &v1alpha1.IPPool{}
	Expect(w.Get(ctx, client.ObjectKey{Name: pool}, obj)).To(Succeed())
	return obj.Status.Capacity.Available
}

// expectDisjoint fails where two blocks overlap: sorted, those would be
// neighbours.
func expectDisjoint(blocks []netip.Prefix) {
	GinkgoHelper()
	slices.SortFunc(blocks, netip.Prefix.Compare)
	for i := 1; i < len(blocks); i++ {
		Expect(blocks[i].Overlaps(blocks[i-1])).To(BeFalse(), "two holders: %s and %s", blocks[i-1], blocks[i])
	}
}

// expectHeld fails where a claim with a block has no record that says the same.
func expectHeld(claims []v1alpha1.IPClaim, records []v1alpha1.IPAllocation) {
	GinkgoHelper()
	by := map[string]v1alpha1.IPAllocation{}
	for _, r := range records {
		by[r.Namespace+"/"+r.Name] = r
	}
	for _, c := range claims {
		if c.Spec.AllocationName == "" {
			continue
		}
		r, ok := by[c.Namespace+"/"+c.Spec.AllocationName]
		Expect(ok).To(BeTrue(), "claim %s without its record %s", c.Name, c.Spec.AllocationName)
		Expect(r.Spec.CIDR).To(Equal(c.Spec.CIDR))
		Expect(r.Spec.ClaimRef.Name).To(Equal(c.Name))
	}
}
