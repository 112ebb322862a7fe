package clusterctl

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

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
		out, err := r.command(ctx, "make", "release-manifests", "VERSION="+version, "OUT="+r.path("ipam-cadastre", version))
		Expect(err).NotTo(HaveOccurred(), out)
	}
	module, err := m.ClusterAPIDir(ctx)
	Expect(err).NotTo(HaveOccurred())
	_, r.core, _ = strings.Cut(module, "@")
	components, err := m.Kubectl(ctx, "kustomize", filepath.Join(module, "core", "config", "default"))
	Expect(err).NotTo(HaveOccurred())
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

// clusterctl runs clusterctl, and returns its standard output and its log. If it retries for
// minutes it has failed.
func (r *repo) clusterctl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := r.command(ctx, filepath.Join(r.root, "bin", "capi", "clusterctl"), append(args, "--config="+r.path("clusterctl.yaml"))...)
	GinkgoWriter.Println(out)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// command runs without the configuration and the home of the user that runs the tests.
func (r *repo) command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "XDG_CONFIG_HOME="+r.path("xdg"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
