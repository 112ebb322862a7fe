package clusterctl

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/framework/installed"
)

// elsewhere is the namespace of the operator that is upgraded.
const elsewhere = "addresses"

var _ = Describe("clusterctl upgrade", func() {
	It("loses no held block, in another namespace and while claims arrive", func(ctx context.Context) {
		GinkgoT().Setenv("CADASTRE_NAMESPACE", elsewhere)
		upgraded := boot(ctx)
		upgraded.initialize(ctx, elsewhere)
		installed.IsHealthy(upgraded.World, elsewhere, "default")
		upgraded.Pools(build.Pool("kept").CIDR("10.201.0.0/16").Obj())
		held := build.Claim("default", "held").Pool("kept").Length(28).Obj()
		Expect(upgraded.Create(ctx, held)).To(Succeed())

		load := upgraded.keepClaiming(ctx)
		repository.clusterctl(ctx, "upgrade", "apply", "--kubeconfig="+upgraded.Kubeconfig(), "--ipam="+elsewhere+"/cadastre:"+next)
		deployment := &appsv1.Deployment{}
		Expect(upgraded.Get(ctx, client.ObjectKey{Namespace: elsewhere, Name: cluster.ServiceAccount}, deployment)).To(Succeed())
		Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(HaveSuffix(":" + next))
		Expect(upgraded.LeadToBalancer(ctx)).To(Succeed())
		Expect(upgraded.RenewCredentials(ctx)).To(Succeed())
		Expect(upgraded.Managers[0].Restart(ctx)).To(Succeed())
		load.judge(ctx, upgraded)
		installed.IsHealthy(upgraded.World, elsewhere, "default")
		Expect(upgraded.Get(ctx, client.ObjectKeyFromObject(held), held)).To(Succeed())
		Expect(held.Spec.CIDR).To(Equal("10.201.0.0/28"))

		By("with --namespace it serves the claims of that one alone, and knows the blocks of the others")
		upgraded.Namespace("watched")
		upgraded.Managers[0].Args = append(upgraded.Managers[0].Args, "--namespace=watched")
		Expect(upgraded.Managers[0].Restart(ctx)).To(Succeed())
		outside := build.AddressClaim("default", "outside").Pool("kept").Obj()
		Expect(upgraded.Create(ctx, outside)).To(Succeed())
		Expect(upgraded.Create(ctx, build.AddressClaim("watched", "inside").Pool("kept").Obj())).To(Succeed())
		Expect(upgraded.answered(ctx, "watched", 1)).To(HaveKey("inside"))
		Expect(upgraded.Get(ctx, client.ObjectKeyFromObject(outside), outside)).To(Succeed())
		Expect(outside.Status.Conditions).To(BeEmpty())

		By("it is removed as documented, and leaves the objects of Cluster API")
		installed.PrepareRemoval(upgraded.World, elsewhere, cluster.ServiceAccount)
		repository.clusterctl(ctx, "delete", "--kubeconfig="+upgraded.Kubeconfig(), "--ipam=cadastre", "--include-namespace")
		upgraded.RunKubectl("delete", "crd", "--timeout=60s", "-l", "cluster.x-k8s.io/provider=ipam-cadastre")
		Expect(upgraded.Managers[0].Stop()).To(Succeed())
		Eventually(func(g Gomega) {
			crds := &apiextensionsv1.CustomResourceDefinitionList{}
			g.Expect(upgraded.List(ctx, crds, ours)).To(Succeed())
			g.Expect(crds.Items).To(BeEmpty())
			g.Expect(upgraded.Get(ctx, client.ObjectKey{Name: elsewhere}, &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		}).Should(Succeed())
		Expect(upgraded.Get(ctx, client.ObjectKeyFromObject(outside), outside)).To(Succeed())
	})
})

// claimant creates one claim after the other, each until it is stored.
type claimant struct {
	end     context.CancelFunc
	done    chan struct{}
	names   []string
	others  []error // refusals for another reason than that no replica answers, or has new credentials
	refused int
	longest time.Duration // that a claim was not stored
}

// keepClaiming starts the claimant, and returns when some claims are stored.
func (m *management) keepClaiming(ctx context.Context) *claimant {
	GinkgoHelper()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	l := &claimant{end: end, done: make(chan struct{})}
	some := make(chan struct{})
	config := cluster.NoRetry(m.Config())
	config.QPS, config.Burst = 20, 1
	k8s, err := client.New(config, client.Options{Scheme: m.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(end)
	go func() {
		defer close(l.done)
		for n := 0; life.Err() == nil; n++ {
			name := fmt.Sprint("during-", n)
			if l.store(life, k8s, name) {
				l.names = append(l.names, name)
			}
			if n == 20 {
				close(some)
			}
		}
	}()
	Eventually(some).Should(BeClosed())
	return l
}

// store creates a claim until it is stored.
func (l *claimant) store(ctx context.Context, k8s client.Client, name string) bool {
	begin := time.Now()
	for ctx.Err() == nil {
		err := k8s.Create(ctx, build.Claim("default", name).Pool("kept").Length(32).Obj())
		if err == nil {
			l.longest = max(l.longest, time.Since(begin))
			return true
		}
		if l.refused++; ctx.Err() == nil && !strings.Contains(err.Error(), "failed calling webhook") && !apierrors.IsTooManyRequests(err) {
			l.others = append(l.others, err)
		}
	}
	return false
}

// judge ends the claimant, and fails if a claim is lost, stays without a block, or shares one.
func (l *claimant) judge(ctx context.Context, m *management) {
	GinkgoHelper()
	l.end()
	Eventually(l.done).Should(BeClosed())
	GinkgoWriter.Printf("%d claims were stored, %d creates refused, %v the longest without a stored claim\n", len(l.names), l.refused, l.longest)
	Expect(l.others).To(BeEmpty())
	holders := map[netip.Prefix]string{}
	for _, name := range l.names {
		claim := build.Claim("default", name).Obj()
		Eventually(func(g Gomega) {
			g.Expect(m.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
			g.Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimBound), "%s: %v", name, claim.Status.Conditions)
		}).Should(Succeed())
		block := netip.MustParsePrefix(claim.Status.AllocatedCIDR)
		Expect(holders).NotTo(HaveKey(block), "it belongs to %s, too", name)
		holders[block] = name
	}
}
