// Package specs runs the suites that are written in Ginkgo, and holds the steps that they share.
package specs

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// Run runs the specs of a package. within and every are the timeout and the
// interval of Eventually.
func Run(t *testing.T, name string, within, every time.Duration) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(within)
	gomega.SetDefaultEventuallyPollingInterval(every)
	ginkgo.RunSpecs(t, name)
}

// Namespace creates a namespace, and returns its name.
func Namespace(ctx context.Context, c client.Client, name string) string {
	ginkgo.GinkgoHelper()
	return Created(ctx, c, build.Namespace(name)).Name
}

// Created creates an object, and returns the answer of the API server.
func Created[T client.Object](ctx context.Context, c client.Client, obj T) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(c.Create(ctx, obj)).To(gomega.Succeed())
	return obj
}

// Stored reads an object again, and returns it.
func Stored[T client.Object](ctx context.Context, c client.Client, obj T) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(gomega.Succeed())
	return obj
}

// Update changes an object as the user of the client as, and retries if another client has
// changed it in between. It returns the error of the API server.
func Update[T client.Object](ctx context.Context, c, as client.Client, obj T, edit func(T)) error {
	ginkgo.GinkgoHelper()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		edit(Stored(ctx, c, obj))
		return as.Update(ctx, obj)
	})
}

// Edited changes an object as Update does, and returns it.
func Edited[T client.Object](ctx context.Context, c client.Client, obj T, edit func(T)) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(Update(ctx, c, c, obj, edit)).To(gomega.Succeed())
	return obj
}

// IsGone returns a function that reports whether an object does not exist any more.
func IsGone(ctx context.Context, c client.Client, obj client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(obj), obj))
	}
}

// Pool creates a pool, waits until it hands out blocks, and returns it.
func Pool[T v1alpha1.Pool](ctx context.Context, c client.Client, pool T) T {
	ginkgo.GinkgoHelper()
	return Ready(ctx, c, Created(ctx, c, pool))
}

// Ready waits until a pool hands out blocks, and returns it.
func Ready[T v1alpha1.Pool](ctx context.Context, c client.Client, pool T) T {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func() v1alpha1.PoolPhase { return Stored(ctx, c, pool).PoolStatus().Phase }).Should(gomega.Equal(v1alpha1.PoolReady))
	return pool
}

// Bound creates a claim, waits until it has its block, and returns it.
func Bound(ctx context.Context, c client.Client, claim *v1alpha1.IPClaim) *v1alpha1.IPClaim {
	ginkgo.GinkgoHelper()
	Created(ctx, c, claim)
	gomega.Eventually(func() v1alpha1.ClaimPhase { return Stored(ctx, c, claim).Status.Phase }).Should(gomega.Equal(v1alpha1.ClaimBound))
	return claim
}

// RecordOf returns an IPAllocation with the name of a claim's, to be read or deleted.
func RecordOf(claim *v1alpha1.IPClaim) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Spec.AllocationName}}
}

// RecordsIn returns the IPAllocations of a pool.
func RecordsIn(ctx context.Context, c client.Client, pool string) []v1alpha1.IPAllocation {
	ginkgo.GinkgoHelper()
	list := &v1alpha1.IPAllocationList{}
	gomega.Expect(c.List(ctx, list, client.MatchingFields{"spec.poolRef.name": pool})).To(gomega.Succeed())
	return list.Items
}

// EventsOf returns the events of an object, by type and reason, each kind of them once.
func EventsOf(ctx context.Context, k8s client.Client, obj client.Object) []string {
	ginkgo.GinkgoHelper()
	events := &eventsv1.EventList{}
	gomega.Expect(k8s.List(ctx, events, client.InNamespace(cmp.Or(obj.GetNamespace(), metav1.NamespaceDefault)))).To(gomega.Succeed())
	var all []string
	for _, e := range events.Items {
		if e.Regarding.UID == obj.GetUID() {
			all = append(all, e.Type+" "+e.Reason)
		}
	}
	slices.Sort(all)
	return all
}
