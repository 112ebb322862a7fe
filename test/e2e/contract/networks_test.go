package contract

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("The networks of a Cluster", Ordered, ContinueOnFailure, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "networks")
		for name, test := range map[string]struct {
			cidr   string
			length int32
		}{"pod-networks": {"10.100.0.0/16", 24}, "service-networks": {"10.101.0.0/16", 24}, "vips": {"10.102.0.0/24", 32}, "one": {"10.103.0.0/24", 24}} {
			specs.Created(ctx, k8s, build.Class(name).Length(test.length).Obj())
			specs.Pool(ctx, k8s, build.Pool(name).CIDR(test.cidr).Classes(name).Obj())
		}
	})

	// asking returns a Cluster with the label and annotations, each without the prefix of the group.
	asking := func(name string, annotations ...string) *clusterv1.Cluster {
		cluster := build.Networked(build.Cluster(team, name), map[string]string{})
		for i := 0; i < len(annotations); i += 2 {
			cluster.Annotations["ipam.cadastre.dev/"+annotations[i]] = annotations[i+1]
		}
		return cluster
	}
	claimsOf := func(ctx context.Context, cluster *clusterv1.Cluster) []v1alpha1.IPClaim {
		GinkgoHelper()
		claims := &v1alpha1.IPClaimList{}
		Expect(k8s.List(ctx, claims, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})).To(Succeed())
		return claims.Items
	}
	// remove deletes a Cluster whose infrastructure provider is missing, for which Cluster API waits.
	remove := func(ctx context.Context, cluster *clusterv1.Cluster) {
		GinkgoHelper()
		Expect(k8s.Delete(ctx, cluster)).To(Succeed())
		Expect(client.IgnoreNotFound(k8s.Patch(ctx, cluster, build.Merge(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	}
	isOwned := And(HaveField("OwnerReferences", HaveLen(1)), HaveField("Finalizers", ContainElement(v1alpha1.FinalizerClusterNetwork)),
		HaveField("Annotations", Not(HaveKey(v1alpha1.AnnotationAttempt))))
	refused := func(ctx context.Context, cluster *clusterv1.Cluster, code int32, messages ...string) {
		GinkgoHelper()
		err := k8s.Create(ctx, cluster)
		Expect(err).To(HaveOccurred())
		Expect(err.(apierrors.APIStatus).Status().Code).To(Equal(code), err.Error())
		for _, message := range messages {
			Expect(err.Error()).To(ContainSubstring(message))
		}
		Expect(claimsOf(ctx, cluster)).To(BeEmpty())
	}

	It("are in the answer to its create, claimed, and released when it is gone", func(ctx context.Context) {
		cluster := asking("prod", "pods", "pod-networks/20", "services", "service-networks", "control-plane-endpoint", "vips:443")
		specs.Created(ctx, k8s, cluster)
		Expect(cluster.Spec.ClusterNetwork.Pods.CIDRBlocks).To(Equal([]string{"10.100.0.0/20"}))
		Expect(cluster.Spec.ClusterNetwork.Services.CIDRBlocks).To(Equal([]string{"10.101.0.0/24"}))
		Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: "10.102.0.0", Port: 443}))
		Expect(cluster.Annotations[v1alpha1.AnnotationNetworksFilled]).To(Equal(
			"pods=10.100.0.0/20@pod-networks,services=10.101.0.0/24@service-networks,control-plane-endpoint=10.102.0.0@vips"))
		Eventually(claimsOf).WithArguments(ctx, cluster).Should(HaveEach(isOwned))
		Eventually(func() []string { return specs.EventsOf(ctx, k8s, cluster) }).Should(ContainElement("Normal " + v1alpha1.EventNetworksClaimed))
		claims := claimsOf(ctx, cluster)
		Expect(claims).To(HaveLen(3))
		Expect(specs.Stored(ctx, k8s, specs.RecordOf(&claims[0])).Spec.RequestedBy).To(Equal("admin"))

		By("keeping a block whose claim is deleted by hand")
		Expect(k8s.Delete(ctx, &claims[0])).To(Succeed())
		passed(ctx, team, "after-deletion", "vips")
		Expect(specs.Stored(ctx, k8s, &claims[0]).DeletionTimestamp).NotTo(BeNil())

		remove(ctx, cluster)
		Eventually(claimsOf).WithArguments(ctx, cluster).Should(BeEmpty())
	})

	It("of Clusters that are created at once are disjoint, and each claimed once", func(ctx context.Context) {
		clients, namespace := 10, specs.Namespace(ctx, k8s, "many") // of their own, as each has events
		clusters := make([]*clusterv1.Cluster, suite.Sized(200, 40))
		create := func(client int) error {
			for i := client; i < len(clusters); i += clients {
				clusters[i] = asking(fmt.Sprint("many-", i), "pods", "pod-networks/28", "services", "service-networks/28", "control-plane-endpoint", "vips")
				clusters[i].Namespace = namespace
				if err := k8s.Create(ctx, clusters[i]); err != nil {
					return err
				}
			}
			return nil
		}
		var group errgroup.Group
		for client := range clients {
			group.Go(func() error { return create(client) })
		}
		Expect(group.Wait()).To(Succeed())
		blocks := sets.New[string]()
		for _, cluster := range clusters {
			blocks.Insert(cluster.Spec.ClusterNetwork.Pods.CIDRBlocks[0], cluster.Spec.ClusterNetwork.Services.CIDRBlocks[0], cluster.Spec.ControlPlaneEndpoint.Host)
			Eventually(claimsOf).WithArguments(ctx, cluster).Should(And(HaveLen(3), HaveEach(isOwned)))
		}
		Expect(blocks).To(HaveLen(3 * len(clusters))) // of one length in each pool
		for _, cluster := range clusters {
			remove(ctx, cluster)
		}
		for _, cluster := range clusters {
			Eventually(claimsOf).WithArguments(ctx, cluster).Should(BeEmpty())
		}
	})

	It("follow the defaults of the Namespace, unless the Cluster opts out", func(ctx context.Context) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "defaults-", Labels: map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksEnabled},
			Annotations: map[string]string{v1alpha1.AnnotationPods: "pod-networks"},
		}}
		specs.Created(ctx, k8s, namespace)
		cluster := specs.Created(ctx, k8s, build.Cluster(namespace.Name, "a"))
		Expect(cluster.Spec.ClusterNetwork.Pods.CIDRBlocks).To(HaveLen(1))
		none := build.Cluster(namespace.Name, "b")
		none.Labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksDisabled}
		specs.Created(ctx, k8s, none)
		Expect(none.Spec.ClusterNetwork.Pods.CIDRBlocks).To(BeEmpty())
		Eventually(claimsOf).WithArguments(ctx, cluster).Should(And(HaveLen(1), HaveEach(isOwned)))
	})

	It("are refused with the annotation that is wrong, and leave no claim", func(ctx context.Context) {
		refused(ctx, asking("bad"), http.StatusUnprocessableEntity, "add ipam.cadastre.dev/pods: <IPClass>")
		refused(ctx, asking("bad", "pods", "a,b,c"), http.StatusUnprocessableEntity, "metadata.annotations[ipam.cadastre.dev/pods]")
		refused(ctx, asking("bad", "pods", "pod-networks", "services", "missing"), http.StatusUnprocessableEntity,
			`metadata.annotations[ipam.cadastre.dev/services]: Invalid value: "missing"`, "missing")
		refused(ctx, asking("bad", "pods", "pod-networks/40"), http.StatusUnprocessableEntity, `"pod-networks/40"`)
		refused(ctx, asking("bad", "pods", "pod-networks/15"), http.StatusUnprocessableEntity, `"pod-networks/15"`)
		refused(ctx, asking("bad", "control-plane-endpoint", "pod-networks"), http.StatusUnprocessableEntity, "an endpoint is one address")
		Expect(k8s.Create(ctx, asking(strings.Repeat("x", 64), "pods", "pod-networks"))).To(MatchError(ContainSubstring("at most 63 characters")))
	})

	It("are claimed as the Cluster states them", func(ctx context.Context) {
		cluster := asking("stated", "pods", "one")
		cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.103.0.0/24"}
		specs.Created(ctx, k8s, cluster)
		other := asking("other", "pods", "one")
		other.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.103.0.0/25"}
		refused(ctx, other, http.StatusConflict, "10.103.0.0/25", cluster.Name+"-pods-")
		refused(ctx, asking("full", "services", "service-networks", "pods", "one"), http.StatusInsufficientStorage, "no free /24 in pool one")
	})

	It("are shown by a dry run, each another block, and stay free", func(ctx context.Context) {
		cluster := asking("dry", "pods", "pod-networks", "services", "pod-networks")
		Expect(k8s.Create(ctx, cluster, client.DryRunAll)).To(Succeed())
		Expect(cluster.Spec.ClusterNetwork.Pods.CIDRBlocks).NotTo(Equal(cluster.Spec.ClusterNetwork.Services.CIDRBlocks))
		again := asking("dry", "pods", "pod-networks", "services", "pod-networks")
		Expect(k8s.Create(ctx, again, client.DryRunAll)).To(Succeed())
		Expect(again.Spec.ClusterNetwork).To(Equal(cluster.Spec.ClusterNetwork))
		Expect(claimsOf(ctx, cluster)).To(BeEmpty())
	})

	It("stay after a refusal by another webhook for the next attempt, or until the grace is over", func(ctx context.Context) {
		policy, binding := build.Refusal("refused-clusters", "refused", team)
		rule := &policy.Spec.MatchConstraints.ResourceRules[0].Rule
		rule.APIGroups, rule.Resources = []string{clusterv1.GroupVersion.Group}, []string{"clusters"}
		specs.Created(ctx, k8s, policy)
		specs.Created(ctx, k8s, binding)
		refusedLater := func(name string) *clusterv1.Cluster {
			invalid := asking(name, "pods", "pod-networks")
			invalid.Labels["refused"] = ""
			return invalid
		}
		Eventually(func() error { return k8s.Create(ctx, refusedLater("awaited"), client.DryRunAll) }).Should(MatchError(ContainSubstring("has the label")))
		invalid := refusedLater("retried")
		Expect(k8s.Create(ctx, invalid)).To(MatchError(ContainSubstring("has the label")))
		left := claimsOf(ctx, invalid)
		Expect(left).To(HaveLen(1))
		cluster := specs.Created(ctx, k8s, asking("retried", "pods", "pod-networks"))
		Expect(cluster.Spec.ClusterNetwork.Pods.CIDRBlocks).To(Equal([]string{left[0].Spec.CIDR}))
		Eventually(claimsOf).WithArguments(ctx, cluster).Should(And(HaveLen(1), HaveEach(isOwned)))

		invalid = refusedLater("given-up")
		Expect(k8s.Create(ctx, invalid)).To(MatchError(ContainSubstring("has the label")))
		Expect(claimsOf(ctx, invalid)).To(HaveLen(1))
		By("asking for another block under its name, which the client tries until the grace is over")
		other := specs.Created(ctx, k8s, asking("given-up", "pods", "pod-networks/20"))
		Expect(other.Spec.ClusterNetwork.Pods.CIDRBlocks[0]).To(HaveSuffix("/20"))

		invalid = refusedLater("never")
		Expect(k8s.Create(ctx, invalid)).To(MatchError(ContainSubstring("has the label")))
		Expect(claimsOf(ctx, invalid)).To(HaveLen(1))
		Eventually(claimsOf).WithArguments(ctx, invalid).Should(BeEmpty())
	})

	It("are claimed only for a user that can create claims, within the quota of the namespace", func(ctx context.Context) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "clusters-alone"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters"}, Verbs: []string{"*"}},
		}}
		specs.Created(ctx, k8s, role)
		specs.Created(ctx, k8s, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "clara"}}})
		clara := running.As("clara")
		Eventually(func() error { return clara.List(ctx, &clusterv1.ClusterList{}) }).Should(Succeed())
		Expect(clara.Create(ctx, asking("claras", "pods", "pod-networks"))).To(MatchError(ContainSubstring(`user "clara", which cannot create ipclaims`)))
		forged := build.Cluster(team, "claras")
		forged.Annotations = map[string]string{v1alpha1.AnnotationNetworksFilled: "pods=10.100.0.0/20@pod-networks"}
		Expect(clara.Create(ctx, forged)).To(MatchError(ContainSubstring("have the right to create ipclaims")))
		forged.Annotations[clusterctlv1.DeleteForMoveAnnotation] = "" // which clusterctl sets only on what it deletes
		Expect(clara.Create(ctx, forged)).To(MatchError(ContainSubstring("have the right to create ipclaims")))
		plain := build.Cluster(team, "claras")
		Expect(clara.Create(ctx, plain)).To(Succeed())
		for _, annotations := range []map[string]string{nil, {v1alpha1.AnnotationPods: "pod-networks", clusterctlv1.DeleteForMoveAnnotation: ""}} {
			Expect(specs.Update(ctx, k8s, clara, plain, func(c *clusterv1.Cluster) { build.Networked(c, annotations) })).
				To(MatchError(ContainSubstring("have the right to create ipclaims")))
		}

		namespace := specs.Namespace(ctx, k8s, "quota")
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claims"}}
		quota.Spec.Hard = corev1.ResourceList{"count/ipclaims.ipam.cadastre.dev": resource.MustParse("1")}
		specs.Created(ctx, k8s, quota)
		Eventually(func() corev1.ResourceList { return specs.Stored(ctx, k8s, quota).Status.Hard }).ShouldNot(BeEmpty())
		cluster := asking("quota", "pods", "pod-networks", "services", "service-networks")
		cluster.Namespace = namespace
		refused(ctx, cluster, http.StatusForbidden, "exceeded quota")
	})

	It("are restored when an update removes them, and kept without the operator", func(ctx context.Context) {
		cluster := specs.Created(ctx, k8s, asking("kept", "pods", "pod-networks", "control-plane-endpoint", "vips"))
		Eventually(claimsOf).WithArguments(ctx, cluster).Should(And(HaveLen(2), HaveEach(isOwned)))
		filled := *cluster.DeepCopy()
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) {
			c.Spec.ClusterNetwork, c.Spec.ControlPlaneEndpoint = clusterv1.ClusterNetwork{}, clusterv1.APIEndpoint{}
			delete(c.Annotations, v1alpha1.AnnotationNetworksFilled)
		})
		Expect(cluster.Spec.ClusterNetwork).To(Equal(filled.Spec.ClusterNetwork))
		Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(filled.Spec.ControlPlaneEndpoint))
		Expect(cluster.Annotations).To(Equal(filled.Annotations))
		Expect(specs.Update(ctx, k8s, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.9.0.0/16"} })).
			To(MatchError(ContainSubstring("first set the label ipam.cadastre.dev/cluster-networks to disabled")))

		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) {
			c.Labels[v1alpha1.LabelClusterNetworks] = v1alpha1.ClusterNetworksDisabled
			c.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.9.0.0/16"}
		})
		claims := claimsOf(ctx, cluster)
		Expect(claims).To(HaveLen(2))
		for i := range claims {
			Expect(k8s.Delete(ctx, &claims[i])).To(Succeed())
		}
		Eventually(claimsOf).WithArguments(ctx, cluster).Should(HaveLen(1)) // the block that it does not have any more is released
		Expect(claimsOf(ctx, cluster)[0].Spec.ClassName).To(Equal("vips"))
	})

	It("of a Cluster that exists are claimed as they are, and a conflict is shown", func(ctx context.Context) {
		existing := func(name, block string) *clusterv1.Cluster {
			cluster := build.Cluster(team, name)
			cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{block}
			specs.Created(ctx, k8s, cluster)
			return specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) {
				build.Networked(c, map[string]string{v1alpha1.AnnotationPods: "pod-networks"})
			})
		}
		first := existing("first", "10.100.200.0/24")
		Eventually(claimsOf).WithArguments(ctx, first).Should(And(HaveLen(1), HaveEach(isOwned), HaveEach(HaveField("Status.AllocatedCIDR", "10.100.200.0/24"))))
		second := existing("second", "10.100.200.0/24")
		Eventually(claimsOf).WithArguments(ctx, second).Should(And(HaveLen(1), HaveEach(isOwned)))
		ready := claimsOf(ctx, second)[0].Status.Conditions[0]
		Expect(ready.Reason).To(Equal(v1alpha1.ReasonConflict), fmt.Sprint(ready))
		Eventually(func() []string { return specs.EventsOf(ctx, k8s, second) }).Should(ContainElement("Warning " + v1alpha1.EventNetworkConflict))
		remove(ctx, first)
		Eventually(claimsOf).WithArguments(ctx, second).Should(HaveEach(HaveField("Status.AllocatedCIDR", "10.100.200.0/24")))

		By("replacing its block, whose claim can be deleted then")
		specs.Edited(ctx, k8s, second, func(c *clusterv1.Cluster) { c.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.100.201.0/24"} })
		Expect(k8s.Delete(ctx, &claimsOf(ctx, second)[0])).To(Succeed())
		Eventually(claimsOf).WithArguments(ctx, second).Should(And(HaveLen(1), HaveEach(HaveField("Status.AllocatedCIDR", "10.100.201.0/24"))))
	})

	It("are not there if a user invents them, and the Cluster can be edited", func(ctx context.Context) {
		cluster := asking("invented", "pods", "pod-networks", "networks-filled", "pods=10.100.0.0/24@pod-networks,services=x")
		specs.Created(ctx, k8s, cluster)
		Expect(cluster.Spec.ClusterNetwork).To(Equal(clusterv1.ClusterNetwork{}))
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Labels["added"] = "" })
		Expect(cluster.Spec.ClusterNetwork).To(Equal(clusterv1.ClusterNetwork{}))
		Expect(claimsOf(ctx, cluster)).To(BeEmpty())
	})

	It("reach the objects that a topology makes, with a required variable", func(ctx context.Context) {
		if testing.Short() {
			Skip("Cluster API's manager makes them")
		}
		for _, file := range []string{"topology-crds.yaml", "topology.yaml"} {
			text, err := os.ReadFile(filepath.Join("testdata", file))
			Expect(err).NotTo(HaveOccurred())
			objects, err := manifests.Decode(text)
			Expect(err).NotTo(HaveOccurred())
			for _, object := range objects {
				if object.GetKind() != "CustomResourceDefinition" {
					object.SetNamespace(team)
				}
				Eventually(func() error { return k8s.Create(ctx, object) }).Should(Succeed()) // once its kind is served
			}
		}
		class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "networked"}}
		Eventually(func() bool {
			return conditions.IsTrue(specs.Stored(ctx, k8s, class), clusterv1.ClusterClassVariablesReadyCondition)
		}).Should(BeTrue())

		without := topologyOf(asking("without"))
		without.Labels = nil
		Expect(k8s.Create(ctx, without)).To(MatchError(ContainSubstring("required variable")))
		cluster := specs.Created(ctx, k8s, topologyOf(asking("topology", "pods", "pod-networks", "services", "service-networks",
			"variables", "vip=vips", "control-plane-endpoint", "variable:vip:6443")))
		Expect(cluster.Spec.Topology.Variables).To(HaveLen(1))
		vip := cluster.Spec.ControlPlaneEndpoint.Host
		Expect(string(cluster.Spec.Topology.Variables[0].Value.Raw)).To(Equal(strconv.Quote(vip)))
		Expect(claimsOf(ctx, cluster)).To(HaveLen(3))
		made := &unstructured.UnstructuredList{}
		made.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
		made.SetKind("NetClusterList")
		Eventually(func() []unstructured.Unstructured {
			Expect(k8s.List(ctx, made, client.InNamespace(team), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})).To(Succeed())
			return made.Items
		}).Should(HaveLen(1))
		Expect(made.Items[0].Object["spec"]).To(Equal(map[string]any{
			"region": "here", "vip": vip, "pods": cluster.Spec.ClusterNetwork.Pods.CIDRBlocks[0], "services": cluster.Spec.ClusterNetwork.Services.CIDRBlocks[0],
		}))
	})

	It("need the operator to be filled in, and not to stay", func(ctx context.Context) {
		cluster := specs.Created(ctx, k8s, asking("unattended", "pods", "pod-networks", "control-plane-endpoint", "vips"))
		Eventually(claimsOf).WithArguments(ctx, cluster).Should(And(HaveLen(2), HaveEach(isOwned)))
		for _, manager := range running.Managers {
			Expect(manager.Kill()).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(manager.Start(ctx)).To(Succeed()) })
		}
		Expect(k8s.Create(ctx, asking("refused", "pods", "pod-networks"))).To(MatchError(ContainSubstring("create.cluster.ipam.cadastre.dev")))
		specs.Created(ctx, k8s, build.Cluster(team, "plain"))

		By("updating it as Cluster API's controllers do")
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) {
			c.Spec.Paused = new(true)
			c.Labels["added"], c.Annotations["added"] = "", ""
			c.Finalizers = append(c.Finalizers, "example.com/added")
		})
		cluster.Status.ObservedGeneration++
		Expect(k8s.Status().Update(ctx, cluster)).To(Succeed())

		if !testing.Short() {
			By("upgrading a topology")
			upgrade(ctx, build.Cluster(team, "topology"))
		}

		By("removing them by an update, and by server-side apply")
		Expect(specs.Update(ctx, k8s, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.ClusterNetwork = clusterv1.ClusterNetwork{} })).
			To(MatchError(ContainSubstring("are claimed for this Cluster")))
		applied := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "Cluster",
			"metadata": map[string]any{"namespace": team, "name": cluster.Name},
			"spec":     map[string]any{"clusterNetwork": map[string]any{"pods": map[string]any{"cidrBlocks": []any{"10.99.0.0/16"}}}},
		}}
		Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("flux"), client.ForceOwnership)).
			To(MatchError(ContainSubstring("are claimed for this Cluster")))

		By("deleting it")
		Expect(k8s.Delete(ctx, cluster)).To(Succeed())
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) {
			c.Spec.ClusterNetwork, c.Spec.ControlPlaneEndpoint, c.Annotations, c.Finalizers = clusterv1.ClusterNetwork{}, clusterv1.APIEndpoint{}, nil, nil
		})
		Expect(specs.IsGone(ctx, k8s, cluster)()).To(BeTrue())
	})
})
