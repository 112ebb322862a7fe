package contract

import (
	"context"
	"io/fs"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("Without Cluster API", Ordered, func() {
	It("the operator runs, and serves its claims when it comes, which it logs once", func(ctx context.Context) {
		dir := GinkgoT().TempDir()
		bare := suite.Start(GinkgoTB(), cluster.Options{Managers: 1, Dir: dir})
		shared := k8s
		k8s = bare
		DeferCleanup(func() { k8s = shared })

		team := specs.Namespace(ctx, k8s, "arrival")
		specs.Pool(ctx, k8s, build.Pool("arrival").CIDR("10.30.0.0/24").Obj())
		Expect(specs.Created(ctx, k8s, build.Claim(team, "ours").Pool("arrival").Length(32).Obj()).Spec.CIDR).To(Equal("10.30.0.0/32"))
		Expect(said(dir, "Cluster API is not installed")).To(Equal(1))

		Expect(bare.InstallClusterAPICRDs(ctx)).To(Succeed())
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "theirs").Pool("arrival").Obj())
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.30.0.1"))
		Expect(said(dir, "Cluster API is installed")).To(Equal(1))
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "arrival", "theirs") }).Should(BeEmpty())
	})
})

// said counts the log lines of the managers of a cluster that contain a text.
func said(dir, what string) int {
	GinkgoHelper()
	logs := os.DirFS(dir)
	count := 0
	for _, name := range managerLogs(logs) {
		text, err := os.ReadFile(dir + "/" + name)
		Expect(err).NotTo(HaveOccurred())
		count += strings.Count(string(text), what)
	}
	return count
}

func managerLogs(dir fs.FS) []string {
	GinkgoHelper()
	names, err := fs.Glob(dir, "logs/manager*.log")
	Expect(err).NotTo(HaveOccurred())
	Expect(names).NotTo(BeEmpty())
	return names
}
