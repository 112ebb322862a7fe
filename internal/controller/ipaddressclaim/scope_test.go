package ipaddressclaim

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// TestUnservedClaimStatesReason reconciles claims without address that the controller must not
// serve, each of them twice: the second pass writes nothing.
func TestUnservedClaimStatesReason(t *testing.T) {
	cluster := func(paused bool, annotations map[string]string) *clusterv1.Cluster {
		return &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "fleet", Annotations: annotations},
			Spec:       clusterv1.ClusterSpec{Paused: &paused},
		}
	}
	mark := map[string]string{clusterv1.PausedAnnotation: ""}
	var rows []messages.Row
	for name, test := range map[string]struct {
		change          func(*ipamv1.IPAddressClaim)
		cluster         *clusterv1.Cluster
		reason, message string
	}{
		"its Cluster is missing": {
			change: func(c *ipamv1.IPAddressClaim) { c.Spec.ClusterName = "fleet" },
			reason: "ClusterNotFound", message: `there is no Cluster "fleet": create it, or delete this claim`,
		},
		"its Cluster, by label, is missing": {
			change: func(c *ipamv1.IPAddressClaim) { c.Labels = map[string]string{clusterv1.ClusterNameLabel: "fleet"} },
			reason: "ClusterNotFound", message: `there is no Cluster "fleet": create it, or delete this claim`,
		},
		"its Cluster is paused": {
			change: func(c *ipamv1.IPAddressClaim) { c.Spec.ClusterName = "fleet" }, cluster: cluster(true, nil),
			reason: "Paused", message: `the Cluster "fleet" is paused: set its spec.paused to false, and remove its annotation cluster.x-k8s.io/paused`,
		},
		"its Cluster is paused by an annotation": {
			change: func(c *ipamv1.IPAddressClaim) { c.Spec.ClusterName = "fleet" }, cluster: cluster(false, mark),
			reason: "Paused", message: `the Cluster "fleet" is paused: set its spec.paused to false, and remove its annotation cluster.x-k8s.io/paused`,
		},
		"it is paused itself": {
			change: func(c *ipamv1.IPAddressClaim) { c.Annotations = mark },
			reason: "Paused", message: "this claim is paused: remove its annotation cluster.x-k8s.io/paused",
		},
		"its kind does not exist": {
			change: func(c *ipamv1.IPAddressClaim) { c.Spec.PoolRef.Kind = "IPPol" },
			reason: "AllocationFailed", message: `spec.poolRef.kind: Unsupported value: "IPPol": supported values: "IPPool", "LocalIPPool", "IPClass": make another claim`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := servedClaim()
			test.change(s.claim)
			objects := []client.Object{s.claim}
			if test.cluster != nil {
				objects = append(objects, test.cluster)
			}
			writes := 0
			there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme, clusterv1.AddToScheme)).
				WithObjects(objects...).WithStatusSubresource(s.claim).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					writes++
					return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
				},
			}).Build()
			c := attachReplica(emptyAllocator(t), &Controller{Client: there, Live: there, Clock: clocktesting.NewFakePassiveClock(metav1.Now().Time), Events: events.NewFakeRecorder(10)})
			for range 2 {
				if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.claim)}); err != nil {
					t.Fatal(err)
				}
			}
			claim := &ipamv1.IPAddressClaim{}
			if err := there.Get(t.Context(), client.ObjectKeyFromObject(s.claim), claim); err != nil {
				t.Fatal(err)
			}
			ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition)
			if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != test.reason || ready.Message != test.message {
				t.Errorf("Ready is %+v, want False, %s: %s", ready, test.reason, test.message)
			}
			rows = append(rows, messages.Row{Object: "IPAddressClaim", On: "condition Ready", Answer: "False, " + test.reason, Message: test.message})
			if writes != 1 {
				t.Errorf("the status was written %d times, want once", writes)
			}
			if c.Queue.Has(s.holder()) {
				t.Error("it is queued, and others wait for it")
			}
		})
	}
	messages.Golden(t, rows)
}

func TestForeignFinalizerMarksAddressInUse(t *testing.T) {
	for finalizer, want := range map[string]bool{
		"example.com/vm":                             true,
		v1alpha1.FinalizerRelease:                    false,
		"metal3data.infrastructure.cluster.x-k8s.io": false,
		"ipam.cluster.x-k8s.io/ReleaseAddress":       false,
		"foregroundDeletion":                         false,
	} {
		if got := isInUse(build.AddressClaim("team", "a").Finalizer(finalizer).Obj()); got != want {
			t.Errorf("%s: in use is %t, want %t", finalizer, got, want)
		}
	}
}

// TestFormerAddressOfOtherProviderIsKept covers an IPAddress of a claim that was made again for another
// pool: only an IPAddress of a pool that is served is deleted.
func TestFormerAddressOfOtherProviderIsKept(t *testing.T) {
	claim := build.AddressClaim("team", "a").Pool("p").Obj()
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"ipam.cluster.x-k8s.io/ProtectAddress"}}}
	address.Spec.PoolRef = ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "p"}
	for _, isServed := range []bool{false, true} {
		s := &scope{targets: convert.Targets{InCluster: isServed}, claim: claim, address: address}
		if got := s.hasFormerAddress(); got != isServed {
			t.Errorf("in-cluster pools are served %t: the IPAddress is deleted %t", isServed, got)
		}
	}
}

// TestDeletionInOtherNamespaceIsNotNoted covers requests of other namespaces, which are dropped
// before they reach the controller, so that a noted deletion would stay for ever.
func TestDeletionInOtherNamespaceIsNotNoted(t *testing.T) {
	_, record := servedClaim()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	c := attachReplica(allocatorWith(t, record), &Controller{Within: kubeutil.NamespacesOf("inside")})
	for _, namespace := range []string{"inside", "outside"} {
		claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "uid"}}
		c.claims().Delete(t.Context(), event.DeleteEvent{Object: claim}, q)
	}
	if _, ok := c.expectations.deletedClaim(ipam.Name{Namespace: "inside", Name: "a"}); !ok {
		t.Error("the deletion in namespace inside is not noted")
	}
	if _, ok := c.expectations.deletedClaim(ipam.Name{Namespace: "outside", Name: "a"}); ok {
		t.Error("the deletion in namespace outside is noted")
	}
}

// TestConditionHidesHolderFromOtherProjects expects the condition of a claim, with an
// IPAddress or without, to name the holder of the address to the claim's own project alone.
func TestConditionHidesHolderFromOtherProjects(t *testing.T) {
	_, record := servedClaim()
	c := attachReplica(allocatorWith(t, record), &Controller{})
	for namespace, project := range map[string]string{"team": "red", "friends": "red", "strangers": "blue"} {
		c.Catalog.SetProject(namespace, project)
	}
	block := netip.MustParsePrefix("10.0.0.1/32")
	taken := &ipam.TakenError{Block: block, Pool: record.Pool, Holder: record.Holder, Overlap: block}
	for _, withAddress := range []bool{true, false} {
		for namespace, named := range map[string]bool{"friends": true, "strangers": false} {
			s, _ := servedClaim()
			s.name.Namespace, s.claim.Namespace = namespace, namespace
			if !withAddress {
				s.address = nil
			}
			_ = c.applyResult(s, taken)
			message := s.claim.Status.Conditions[0].Message
			if strings.Contains(message, "team/a") != named || !strings.Contains(message, "10.0.0.1/32") {
				t.Errorf("in namespace %s, with an IPAddress: %t: %q; the holder is named: want %t", namespace, withAddress, message, named)
			}
		}
	}
}
