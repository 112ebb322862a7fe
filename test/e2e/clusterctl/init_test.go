package clusterctl

import (
	"context"

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
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

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

	It("answers claims", func(ctx context.Context) {
		source.Pools(build.Pool("answers").CIDR("10.200.0.0/24").Obj())
		claim := build.Claim("default", "answers").Pool("answers").Length(28).Obj()
		Expect(source.Create(ctx, claim)).To(Succeed())
		Expect(claim.Spec.CIDR).To(Equal("10.200.0.0/28"))
	})
})
