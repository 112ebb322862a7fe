// Package clusterctl has the real clusterctl install what `make release-manifests`
// writes, upgrade it, and move clusters with their addresses from one control
// plane to another.
package clusterctl

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
)

func TestClusterctl(t *testing.T) {
	RegisterFailHandler(Fail)
	log.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "clusterctl")
}

// The two management clusters: what is moved goes from source to target. Both
// are installed by clusterctl from one repository.
var (
	repository     *repo
	source, target *management
)

var _ = BeforeSuite(func(ctx context.Context) {
	source, target = boot(ctx), boot(ctx)
	repository = newRepo(ctx, source)
	for _, m := range []*management{source, target} {
		m.initialize(ctx)
	}
})

// management is a control plane with a client.
type management struct {
	*cluster.Cluster
	client.Client
}

// boot starts a control plane on which nothing is installed but the CRDs of
// testdata: those by which clusterctl recognizes cert-manager, and those of an
// infrastructure provider that is played.
func boot(ctx context.Context) *management {
	GinkgoHelper()
	running, err := cluster.Start(ctx, cluster.Options{Bare: true, ControllerManager: true, Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(running.Stop()).To(Succeed()) })
	_, err = running.Kubectl(ctx, "apply", "--server-side", "-f", "test/e2e/clusterctl/testdata")
	Expect(err).NotTo(HaveOccurred())
	Expect(running.AwaitKinds(ctx)).To(Succeed())
	return &management{Cluster: running}
}

// initialize has clusterctl install Cluster API and Cadastre, and runs what it
// has installed.
func (m *management) initialize(ctx context.Context) {
	GinkgoHelper()
	repository.clusterctl(ctx, "init", "--kubeconfig="+m.Kubeconfig(),
		"--core=cluster-api:"+repository.core, "--bootstrap=-", "--control-plane=-", "--ipam=cadastre:"+release)
	Expect(m.StartClusterAPI(ctx)).To(Succeed())
	Expect(m.StartInstalled(ctx, 1)).To(Succeed())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	cfg := m.Config()
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	m.Client = c
}
