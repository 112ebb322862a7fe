package contract

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1" //nolint:staticcheck // deprecated, but served until it is removed
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// kinds has those that an IPAddressClaim may name.
var kinds = []string{"IPPool", "IPClass", "LocalIPPool"}

var _ = Describe("Data Types", Ordered, func() {
	for _, kind := range kinds {
		It(kind+`: 1. "Must belong to an API group served by the Kubernetes apiserver", 2. "The CRD name must have the format produced by CalculateCRDName", 3. "type metadata and object metadata"`, func(ctx context.Context) {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			name := contract.CalculateCRDName(v1alpha1.GroupVersion.Group, kind)
			Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, definition)).To(Succeed())
			Expect(apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established)).To(BeTrue())
			Expect(definition.Spec.Names.Kind).To(Equal(kind))
			schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
			for _, field := range []string{"apiVersion", "kind", "metadata"} {
				Expect(schema.Properties).To(HaveKey(field))
			}
			Expect(schema.Properties["status"].Properties).To(HaveKey("conditions"))
		})
	}

	It(`4. "Should have a status.conditions field with … a Ready condition"`, func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("data-types").CIDR("10.1.0.0/24").Classes("data-types").Obj())
		Expect(meta.IsStatusConditionTrue(pool.Status.Conditions, "Ready")).To(BeTrue())
		class := specs.Created(ctx, k8s, build.Class("data-types").Obj())
		Eventually(func() bool {
			return meta.IsStatusConditionTrue(specs.Stored(ctx, k8s, class).Status.Conditions, "Ready")
		}).Should(BeTrue())
	})
})

var _ = Describe("Normal IPAddressClaim", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "normal")
		specs.Pool(ctx, k8s, build.Pool("normal").CIDR("10.2.0.0/24").Network(22, "10.2.3.254").Obj())
		capiCluster(ctx, team, "running", false)
	})

	It(`1. "If the IPAddressClaim does not reference a pool managed by the provider in it's spec.poolRef, abort the reconciliation"`, func(ctx context.Context) {
		var otherClaims []*ipamv1.IPAddressClaim
		for name, ref := range map[string][2]string{
			"of-another-group":    {"ipam.cluster.x-k8s.io", "IPPool"},
			"of-another-provider": {"ipam.metal3.io", "InClusterIPPool"},
		} {
			otherClaims = append(otherClaims, specs.Created(ctx, k8s, build.AddressClaim(team, name).From(ref[0], ref[1], "normal").Finalizer("theirs.example.com/f").Obj()))
		}
		passed(ctx, team, "after-the-others", "normal")
		for _, claim := range otherClaims {
			as := claim.ResourceVersion
			Expect(specs.Stored(ctx, k8s, claim).ResourceVersion).To(Equal(as), "touched: %v", claim)
			Expect(claim.Finalizers).To(Equal([]string{"theirs.example.com/f"}))
		}
	})

	for _, reference := range []struct {
		name       string
		name2      string
		setCluster func(*build.AddressClaimBuilder, string) *build.AddressClaimBuilder
	}{
		{"spec.clusterName", "spec", (*build.AddressClaimBuilder).Cluster},
		{"the label cluster-name", "label", (*build.AddressClaimBuilder).ClusterLabel},
	} {
		It(`2.1. "The related Cluster is referenced using the spec.clusterName field or a cluster.x-k8s.io/cluster-name label": by `+reference.name, func(ctx context.Context) {
			claim := specs.Created(ctx, k8s, reference.setCluster(build.AddressClaim(team, "running-"+reference.name2).Pool("normal"), "running").Obj())
			address := served(ctx, claim)
			Expect(address.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "running"))
		})

		It(`2.3. "If the referenced cluster is not found, abort reconciliation", and go on when it is there: by `+reference.name, func(ctx context.Context) {
			name := "late-" + reference.name2
			claim := specs.Created(ctx, k8s, reference.setCluster(build.AddressClaim(team, name).Pool("normal"), name).Obj())
			passed(ctx, team, "after-"+name, "normal")
			Eventually(reason(ctx, claim)).Should(Equal("False/ClusterNotFound"))
			capiCluster(ctx, team, name, false)
			served(ctx, claim)
		})

		It(`2.4. "If the referenced cluster has spec.paused set …, skip reconciliation", 2.2. "If the paused field is empty … reconciliation can continue": by `+reference.name, func(ctx context.Context) {
			name := "paused-" + reference.name2
			paused := capiCluster(ctx, team, name, true)
			claim := specs.Created(ctx, k8s, reference.setCluster(build.AddressClaim(team, name).Pool("normal"), name).Obj())
			passed(ctx, team, "after-"+name, "normal")
			Eventually(reason(ctx, claim)).Should(Equal("False/Paused"))
			for _, record := range specs.RecordsIn(ctx, k8s, "normal") {
				Expect(record.Spec.ClaimRef.Name).NotTo(Equal(name), "nothing is allocated while paused")
			}
			specs.Edited(ctx, k8s, paused, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
			served(ctx, claim)
		})
	}

	It(`2.4. "If the referenced cluster has … a cluster.x-k8s.io/paused annotation, skip reconciliation"`, func(ctx context.Context) {
		annotated := capiCluster(ctx, team, "annotated", false)
		specs.Edited(ctx, k8s, annotated, pause)
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "annotated").Pool("normal").Cluster("annotated").Obj())
		passed(ctx, team, "after-annotated", "normal")
		Eventually(reason(ctx, claim)).Should(Equal("False/Paused"))
		specs.Edited(ctx, k8s, annotated, goOn)
		served(ctx, claim)
	})

	It("2. pauses by the annotation on the claim, and on the pool, and continues", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "paused-itself").Pool("normal").Annotation(clusterv1.PausedAnnotation, "").Obj())
		passed(ctx, team, "after-paused-itself", "normal")
		Eventually(reason(ctx, claim)).Should(Equal("False/Paused"))
		specs.Edited(ctx, k8s, claim, goOn)
		served(ctx, claim)

		pool := specs.Pool(ctx, k8s, build.Pool("paused").CIDR("10.2.4.0/24").Obj())
		specs.Edited(ctx, k8s, pool, pause)
		Eventually(func() bool {
			return meta.IsStatusConditionTrue(specs.Stored(ctx, k8s, pool).Status.Conditions, "Ready")
		}).Should(BeFalse())
		held := specs.Created(ctx, k8s, build.AddressClaim(team, "of-paused-pool").Pool("paused").Obj())
		passed(ctx, team, "after-of-paused-pool", "normal")
		Eventually(reason(ctx, held)).Should(Equal("False/PoolNotReady"))
		Expect(specs.RecordsIn(ctx, k8s, "paused")).To(BeEmpty())
		specs.Edited(ctx, k8s, pool, goOn)
		served(ctx, held)
	})

	It(`3. "Add any required provider-specific finalizers": at admission`, func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "finalizer").Pool("normal").Obj())
		Expect(claim.Finalizers).To(ContainElement(v1alpha1.FinalizerRelease), "in the answer to the create call")
		By("and by patch if it is missing")
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = nil })
		Eventually(func() []string { return specs.Stored(ctx, k8s, claim).Finalizers }).Should(ContainElement(v1alpha1.FinalizerRelease))
	})

	It(`4. "Allocate an IP address for the claim", 5. "Create an IPAddress object"`, func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "address").Pool("normal").Obj())
		address := served(ctx, claim)
		By(`5.1. "It should have the same name as the claim"`)
		Expect(address.Name).To(Equal(claim.Name))
		Expect(address.Spec.ClaimRef.Name).To(Equal(claim.Name))
		Expect(address.Spec.PoolRef).To(Equal(claim.Spec.PoolRef))
		By("with the prefix and the gateway of the pool's network")
		Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(22)))
		Expect(address.Spec.Gateway).To(Equal("10.2.3.254"))
		By(`5.2. "It must have a owner reference with controller: true and blockOwnerDeletion: true to the Claim"`)
		Expect(address.OwnerReferences).To(ContainElement(metav1.OwnerReference{
			APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim", Name: claim.Name, UID: claim.UID,
			Controller: new(true), BlockOwnerDeletion: new(true),
		}))
		By(`5.3. "It must have a owner reference with controller: false and blockOwnerDeletion: true to the referenced Pool"`)
		pool := &v1alpha1.IPPool{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "normal"}, pool)).To(Succeed())
		Expect(address.OwnerReferences).To(ContainElement(metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPPool", Name: pool.Name, UID: pool.UID,
			Controller: new(false), BlockOwnerDeletion: new(true),
		}))
		By(`5.4. "It should have a Finalizer that prevents accidental deletion"`)
		Expect(address.Finalizers).To(ContainElement(v1alpha1.FinalizerProtect))
		Expect(k8s.Delete(ctx, address)).To(Succeed())
		passed(ctx, team, "after-address", "normal")
		Expect(addressOf(ctx, claim).UID).To(Equal(address.UID))
	})

	It(`5. gives no gateway and the pool's own length where the pool has no network`, func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("plain").CIDR("2001:db8:2::/64").Obj())
		address := served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "plain").Pool("plain").Obj()))
		Expect(address.Spec.Address).To(Equal("2001:db8:2::"))
		Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(64)))
		Expect(address.Spec.Gateway).To(BeEmpty())
	})

	It(`6. "Set the status.addressRef on the IPAddressClaim to the created IPAddress", together with Ready`, func(ctx context.Context) {
		watch, err := k8s.Watch(ctx, &ipamv1.IPAddressClaimList{}, client.InNamespace(team), client.MatchingFields{"metadata.name": "together"})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		specs.Created(ctx, k8s, build.AddressClaim(team, "together").Pool("normal").Obj())
		for event := range watch.ResultChan() {
			claim := event.Object.(*ipamv1.IPAddressClaim)
			isReady := meta.IsStatusConditionTrue(claim.Status.Conditions, "Ready")
			Expect(isReady).To(Equal(claim.Status.AddressRef.Name != ""), "one exists without the other")
			if isReady {
				break
			}
		}
	})

	It("serves claims that are made through v1beta1", func(ctx context.Context) {
		if testing.Short() {
			Skip("Cluster API's manager converts between the versions")
		}
		group := v1alpha1.GroupVersion.Group
		old := &ipamv1beta1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "v1beta1"}}
		old.Spec.PoolRef.APIGroup, old.Spec.PoolRef.Kind, old.Spec.PoolRef.Name = &group, "IPPool", "normal"
		specs.Created(ctx, k8s, old)
		Expect(old.Finalizers).To(ContainElement(v1alpha1.FinalizerRelease))
		Eventually(func() string { return specs.Stored(ctx, k8s, old).Status.AddressRef.Name }).Should(Equal("v1beta1"))
		address := &ipamv1beta1.IPAddress{}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(old), address)).To(Succeed())
		Expect(address.Spec.Prefix).To(Equal(22))
	})
})

func pause[T client.Object](obj T) {
	obj.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
}

func goOn[T client.Object](obj T) { obj.SetAnnotations(nil) }

var _ = Describe("Deleted IPAddressClaim", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "deleted")
		specs.Pool(ctx, k8s, build.Pool("deleted").CIDR("10.3.0.0/24").Obj())
	})

	It(`1. "If the related Cluster is paused, abort reconciliation"`, func(ctx context.Context) {
		cluster := capiCluster(ctx, team, "pausing", false)
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "pausing").Pool("deleted").Cluster("pausing").Obj())
		address := served(ctx, claim)
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		passed(ctx, team, "after-pausing", "deleted")
		Expect(specs.Stored(ctx, k8s, address).DeletionTimestamp).To(BeNil())
		Expect(specs.Stored(ctx, k8s, claim).Finalizers).To(ContainElement(v1alpha1.FinalizerRelease))
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
	})

	It("1. does not wait for a Cluster that is gone", func(ctx context.Context) {
		cluster := capiCluster(ctx, team, "going", false)
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "going").Pool("deleted").Cluster("going").Obj())
		served(ctx, claim)
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Finalizers = nil })
		Expect(k8s.Delete(ctx, cluster)).To(Succeed())
		Eventually(func() bool {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err == nil && len(cluster.Finalizers) > 0 {
				cluster.Finalizers = nil // that of Cluster API, which waits for infrastructure that does not exist
				_ = k8s.Update(ctx, cluster)
			}
			return specs.IsGone(ctx, k8s, cluster)()
		}).Should(BeTrue())
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
	})

	It(`2. "Deallocate the IP address", 3. "Delete the IPAddress object", 3.1. "Remove any Finalizers that were set to prevent deletion", 4. "Remove the Finalizer from the claim"`, func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "whole").Pool("deleted").Obj())
		address := served(ctx, claim)
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
		Expect(specs.IsGone(ctx, k8s, address)()).To(BeTrue(), "the IPAddress goes before the claim")
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "deleted", "whole") }).Should(BeEmpty())
		By("after which the address is handed out again")
		again := build.AddressClaim(team, "again").Pool("deleted").Annotation(v1alpha1.AnnotationAddress, address.Spec.Address).Obj()
		Expect(served(ctx, specs.Created(ctx, k8s, again)).Spec.Address).To(Equal(address.Spec.Address))
	})

	It("2. works in the foreground as well", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "foreground").Pool("deleted").Obj())
		address := served(ctx, claim)
		Expect(k8s.Delete(ctx, claim, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
		Eventually(specs.IsGone(ctx, k8s, address)).Should(BeTrue())
	})

	It("2. gives back the addresses of a deleted namespace", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "deleted-whole")
		served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "inside").Pool("deleted").Obj()))
		ns := build.Namespace(team)
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, ns)).WithTimeout(time.Minute).Should(BeTrue())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "deleted", "inside") }).Should(BeEmpty())
	})
})
