package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// clusterSteps are the steps between the first claim of a Cluster and its claims' finalizers.
var clusterSteps = []struct {
	name string
	is   func(event watch.Event, claims int) bool
}{
	{"the first claim", func(_ watch.Event, claims int) bool { return claims == 1 }},
	{"the second claim", func(_ watch.Event, claims int) bool { return claims == 2 }},
	{"the third claim", func(_ watch.Event, claims int) bool { return claims == 3 }},
	{"the stored Cluster", func(event watch.Event, _ int) bool {
		_, isCluster := event.Object.(*clusterv1.Cluster)
		return isCluster
	}},
	{"the first owner", func(event watch.Event, _ int) bool {
		claim, isClaim := event.Object.(*v1alpha1.IPClaim)
		return isClaim && len(claim.OwnerReferences) > 0
	}},
}

var _ = Describe("all replicas are killed while a Cluster gets its networks", Ordered, func() {
	var w *world
	var team string
	stored := map[string]*clusterv1.Cluster{}
	refused := 0

	BeforeAll(func(ctx context.Context) {
		w = start(cluster.Options{Managers: 2, ClusterAPICRDs: true, ControllerManager: true})
		team = specs.Namespace(ctx, w, "killed")
		specs.Created(ctx, w, build.Class("networks").Length(28).Obj())
		specs.Pool(ctx, w, build.Pool("networks").CIDR("10.0.0.0/16").Classes("networks").Obj())
	})

	asking := func(name string) *clusterv1.Cluster {
		return build.Networked(build.Cluster(team, name), map[string]string{
			v1alpha1.AnnotationPods: "networks", v1alpha1.AnnotationServices: "networks", v1alpha1.AnnotationControlPlaneEndpoint: "networks/32",
		})
	}

	It("at every step", func(ctx context.Context) {
		for i := range suite.Sized(100, 10) {
			obj, step := asking(fmt.Sprintf("c-%03d", i)), clusterSteps[i%len(clusterSteps)]
			events := w.follow(ctx, team, obj.Name)
			created := make(chan error, 1)
			go func() { created <- w.Create(ctx, obj) }()
			claims := map[string]bool{}
			for event := range events {
				if claim, ok := event.Object.(*v1alpha1.IPClaim); ok {
					claims[claim.Name] = true
				}
				if step.is(event, len(claims)) {
					break
				}
			}
			for _, manager := range w.Managers {
				Expect(manager.Kill()).To(Succeed())
			}
			if err := <-created; err != nil {
				Expect(err).To(MatchError(ContainSubstring("cluster.ipam.cadastre.dev")), step.name)
				refused++
			} else {
				stored[obj.Name] = obj
			}
			for _, manager := range w.Managers {
				Expect(manager.Start(ctx)).To(Succeed())
			}
			if again := asking(obj.Name); stored[obj.Name] == nil && i%2 == 0 {
				Eventually(func() error { return w.Create(ctx, again) }).Should(Succeed(), step.name)
				stored[again.Name] = again
			}
		}
		GinkgoWriter.Printf("%d Clusters are stored, %d creates were refused\n", len(stored), refused)
		Expect(refused).To(BeNumerically(">", 0))
	})

	It("and each stored Cluster has its blocks, and nothing is left of the others", func(ctx context.Context) {
		Eventually(func() error { return w.wrongClaims(ctx, team, stored) }).Should(Succeed())
		claims := w.claims(ctx, team)
		Expect(claims).To(HaveLen(3 * len(stored)))
		Eventually(func() []v1alpha1.IPAllocation { return w.records(ctx, team) }).Should(HaveLen(len(claims)))
		expectHeld(claims, w.records(ctx, team))
	})
})

// follow returns the events of a Cluster and of its claims from now on.
func (w *world) follow(ctx context.Context, namespace, name string) <-chan watch.Event {
	GinkgoHelper()
	events := make(chan watch.Event, 100)
	for _, list := range []client.ObjectList{&v1alpha1.IPClaimList{}, &clusterv1.ClusterList{}} {
		Expect(w.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		following, err := w.Watch(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(following.Stop)
		go func() {
			for event := range following.ResultChan() {
				if obj, ok := event.Object.(client.Object); ok && strings.HasPrefix(obj.GetName(), name) {
					select {
					case events <- event:
					default: // nobody reads any more
					}
				}
			}
		}()
	}
	return events
}

// wrongClaims returns what is wrong with the claims: each is of a stored Cluster that owns it and has its block.
func (w *world) wrongClaims(ctx context.Context, namespace string, stored map[string]*clusterv1.Cluster) error {
	var wrong []error
	var blocks []netip.Prefix
	for _, claim := range w.claims(ctx, namespace) {
		owner := stored[claim.Labels[clusterv1.ClusterNameLabel]]
		switch {
		case owner == nil:
			wrong = append(wrong, fmt.Errorf("%s is of no stored Cluster", claim.Name))
			continue
		case len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].UID != owner.UID || len(claim.Finalizers) != 1:
			wrong = append(wrong, fmt.Errorf("%s has the owners %v and the finalizers %v", claim.Name, claim.OwnerReferences, claim.Finalizers))
		}
		value := claim.Status.AllocatedCIDR
		if claim.Status.Address != "" {
			value = claim.Status.Address
		}
		if !strings.Contains(owner.Annotations[v1alpha1.AnnotationNetworksFilled], "="+value+"@networks") {
			wrong = append(wrong, fmt.Errorf("%s holds %q, and the Cluster has %s", claim.Name, value, owner.Annotations[v1alpha1.AnnotationNetworksFilled]))
		}
		if block, err := netip.ParsePrefix(claim.Status.AllocatedCIDR); err == nil {
			blocks = append(blocks, block)
		}
	}
	expectDisjoint(blocks)
	return errors.Join(wrong...)
}
