// Package clusterctl installs the output of `make release-manifests` with the real clusterctl,
// upgrades it, and moves clusters with their addresses from one control plane to another.
package clusterctl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
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
		m.initialize(ctx, cluster.Namespace)
	}
})

// management holds a control plane with a client.
type management struct{ *suite.World }

// boot starts a control plane on which nothing is installed but the CRDs of testdata: those by
// which clusterctl recognizes cert-manager, and those of an infrastructure provider that is played.
func boot(ctx context.Context) *management {
	GinkgoHelper()
	running := suite.Start(GinkgoTB(), cluster.Options{Bare: true, ControllerManager: true})
	running.RunKubectl("apply", "--server-side", "-f", "test/e2e/clusterctl/testdata")
	Expect(running.AwaitKinds(ctx)).To(Succeed())
	return &management{running}
}

// initialize installs Cluster API and Cadastre with clusterctl, and runs the installed programs,
// Cadastre in the namespace that CADASTRE_NAMESPACE names.
func (m *management) initialize(ctx context.Context, namespace string) {
	GinkgoHelper()
	repository.clusterctl(ctx, "init", "--kubeconfig="+m.Kubeconfig(),
		"--core=cluster-api:"+repository.core, "--bootstrap=-", "--control-plane=-", "--ipam=cadastre:"+release)
	Expect(m.StartClusterAPI(ctx)).To(Succeed())
	Expect(m.StartInstalled(ctx, namespace, 1)).To(Succeed())
}

// release is the version that is installed, and next the one that it is upgraded to.
const release, next = "v0.1.0", "v0.1.1"

// repo holds a local repository of providers, and the configuration by which clusterctl finds it.
type repo struct {
	root, dir string
	// core is the version of Cluster API.
	core string
}

// newRepo writes two releases of Cadastre, and one of Cluster API's core.
func newRepo(ctx context.Context, m *management) *repo {
	GinkgoHelper()
	root := suite.ModuleRoot(GinkgoTB())
	r := &repo{root: root, dir: GinkgoT().TempDir()}
	for _, version := range []string{release, next} {
		Expect(r.command(ctx, GinkgoWriter, "make", "release-manifests", "VERSION="+version, "OUT="+r.path("ipam-cadastre", version))).To(Succeed())
	}
	module, err := m.ClusterAPIDir(ctx)
	Expect(err).NotTo(HaveOccurred())
	_, r.core, _ = strings.Cut(module, "@")
	components := suite.Kustomized(GinkgoTB(), filepath.Join(module, "core", "config", "default"))
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	Expect(err).NotTo(HaveOccurred())
	r.write(components, "cluster-api", r.core, "core-components.yaml")
	r.write(string(metadata), "cluster-api", r.core, "metadata.yaml")
	r.write(fmt.Sprintf(`
providers:
- {name: cluster-api, type: CoreProvider, url: %s}
- {name: cadastre, type: IPAMProvider, url: %s}
# It is taken for installed when its kinds are there, and never fetched.
cert-manager: {externallyProvisioned: "true", timeout: 30s}
`, r.path("cluster-api", r.core, "core-components.yaml"), r.path("ipam-cadastre", release, "ipam-components.yaml")), "clusterctl.yaml")
	return r
}

func (r *repo) path(elements ...string) string {
	return filepath.Join(append([]string{r.dir}, elements...)...)
}

func (r *repo) write(content string, elements ...string) {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Dir(r.path(elements...)), 0o700)).To(Succeed())
	Expect(os.WriteFile(r.path(elements...), []byte(content), 0o600)).To(Succeed())
}

// clusterctl runs clusterctl, and returns its standard output and its log.
func (r *repo) clusterctl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	var log bytes.Buffer
	err := r.try(ctx, io.MultiWriter(&log, GinkgoWriter), args...)
	Expect(err).NotTo(HaveOccurred(), log.String())
	return log.String()
}

// try runs clusterctl, and returns its error, too. If it retries for minutes it has failed.
func (r *repo) try(ctx context.Context, log io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return r.command(ctx, log, filepath.Join(r.root, "bin", "capi", "clusterctl"), append(args, "--config="+r.path("clusterctl.yaml"))...)
}

// command runs without the configuration and the home of the user that runs the tests.
func (r *repo) command(ctx context.Context, log io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, log, log
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "XDG_CONFIG_HOME="+r.path("xdg"))
	return cmd.Run()
}

var ours = client.MatchingLabels{"cluster.x-k8s.io/provider": "ipam-cadastre"}

var _ = Describe("the installation by clusterctl init", func() {
	in := func(kind string) client.ObjectKey {
		return client.ObjectKey{Namespace: cluster.Namespace, Name: kind}
	}

	It("is one restricted namespace with a Deployment whose container is called manager", func(ctx context.Context) {
		namespaces := &corev1.NamespaceList{}
		Expect(source.List(ctx, namespaces, ours)).To(Succeed())
		Expect(namespaces.Items).To(HaveLen(1))
		Expect(namespaces.Items[0].Name).To(Equal(cluster.Namespace))
		Expect(namespaces.Items[0].Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))

		deployments := &appsv1.DeploymentList{}
		Expect(source.List(ctx, deployments, ours)).To(Succeed())
		Expect(deployments.Items).To(HaveLen(1))
		Expect(*deployments.Items[0].Spec.Replicas).To(BeEquivalentTo(2))
		containers := deployments.Items[0].Spec.Template.Spec.Containers
		Expect(containers).To(HaveLen(1))
		Expect(containers[0].Name).To(Equal("manager"))
		Expect(containers[0].Image).To(HaveSuffix(":" + release))
		Expect(containers[0].Args).To(ContainElements("--diagnostics-address=:8443", "--insecure-diagnostics=false"))
	})

	It("is admitted by the pod security that its namespace demands", func(ctx context.Context) {
		deployment := &appsv1.Deployment{}
		Expect(source.Get(ctx, in(cluster.ServiceAccount), deployment)).To(Succeed())
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, GenerateName: "try-", Labels: deployment.Spec.Template.Labels},
			Spec:       deployment.Spec.Template.Spec,
		}
		Expect(source.Create(ctx, pod, client.DryRunAll)).To(Succeed())
		pod.Spec.Containers[0].SecurityContext = nil
		Expect(source.Create(ctx, pod, client.DryRunAll)).To(MatchError(ContainSubstring("violates PodSecurity")))
	})

	It("is protected from eviction, strangers and starvation", func(ctx context.Context) {
		Expect(source.Get(ctx, in(cluster.ServiceAccount), &policyv1.PodDisruptionBudget{})).To(Succeed())
		Expect(source.Get(ctx, in(cluster.ServiceAccount), &networkingv1.NetworkPolicy{})).To(Succeed())
		schema := &flowcontrolv1.FlowSchema{}
		Expect(source.Get(ctx, client.ObjectKey{Name: "cadastre"}, schema)).To(Succeed())
		Expect(schema.Spec.Rules[0].Subjects[0].ServiceAccount.Namespace).To(Equal(cluster.Namespace))
		Expect(source.Get(ctx, client.ObjectKey{Name: "cadastre"}, &flowcontrolv1.PriorityLevelConfiguration{})).To(Succeed())
	})

	It("has CRDs with the names and labels that Cluster API looks for", func(ctx context.Context) {
		crds := &apiextensionsv1.CustomResourceDefinitionList{}
		Expect(source.List(ctx, crds, ours)).To(Succeed())
		moved := map[string]bool{}
		for _, crd := range crds.Items {
			Expect(crd.Name).To(Equal(contract.CalculateCRDName(crd.Spec.Group, crd.Spec.Names.Kind)))
			Expect(crd.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", v1alpha1.GroupVersion.Version))
			Expect(crd.Labels).To(HaveKey("clusterctl.cluster.x-k8s.io"))
			Expect(crd.Labels).NotTo(HaveKey("clusterctl.cluster.x-k8s.io/move-hierarchy"))
			_, moved[crd.Spec.Names.Kind] = crd.Labels["clusterctl.cluster.x-k8s.io/move"]
		}
		Expect(moved).To(HaveKeyWithValue("IPPool", true))
		Expect(moved).To(HaveKeyWithValue("LocalIPPool", true))
		Expect(moved).To(HaveKeyWithValue("IPClass", true))
		Expect(moved).To(HaveKeyWithValue("IPClaim", false))
		Expect(moved).To(HaveKeyWithValue("IPAllocation", false))
	})
})
