// Package clusterctl installs the output of `make release-manifests` with the real clusterctl,
// upgrades it, and moves clusters with their addresses from one control plane to another.
package clusterctl

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

func TestClusterctl(t *testing.T) {
	specs.Run(t, "clusterctl", 30*time.Second, 100*time.Millisecond)
}

// The two management clusters: clusters move from source to target. Both are installed by
// clusterctl from one repository.
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

// management holds a control plane with a client.
type management struct{ *suite.World }

// boot starts a control plane on which nothing is installed but the CRDs of testdata: those by
// which clusterctl recognizes cert-manager, and those of an infrastructure provider that is played.
func boot(ctx context.Context) *management {
	GinkgoHelper()
	running := suite.Start(GinkgoTB(), cluster.Options{Bare: true, ControllerManager: true})
	_, err := running.Kubectl(ctx, "apply", "--server-side", "-f", "test/e2e/clusterctl/testdata")
	Expect(err).NotTo(HaveOccurred())
	Expect(running.AwaitKinds(ctx)).To(Succeed())
	return &management{running}
}

// initialize installs Cluster API and Cadastre with clusterctl, and runs the installed programs.
func (m *management) initialize(ctx context.Context) {
	GinkgoHelper()
	m.initializeIn(ctx, cluster.Namespace)
}

// initializeIn does the same with CADASTRE_NAMESPACE set to a namespace.
func (m *management) initializeIn(ctx context.Context, namespace string) {
	GinkgoHelper()
	repository.clusterctl(ctx, "init", "--kubeconfig="+m.Kubeconfig(),
		"--core=cluster-api:"+repository.core, "--bootstrap=-", "--control-plane=-", "--ipam=cadastre:"+release)
	Expect(m.StartClusterAPI(ctx)).To(Succeed())
	Expect(m.StartInstalled(ctx, namespace, 1)).To(Succeed())
}
