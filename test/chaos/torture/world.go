package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// world holds the state that all participants share.
type world struct {
	*cluster.Cluster
	config   Config
	admin    client.Client
	operator client.Client // under the operator's account, for acts of people by force
	unasked  client.Client // the operator is not asked about its deletions of pools
	tenant   *rest.Config
	witness  *witness.Witness
	timeline *timeline
	service  *service

	lastAttempt atomic.Int64
	mu          sync.Mutex
	// asked is when an attempt was first made; releasing when the end of a holder was first
	// requested, by UID.
	asked, releasing map[string]time.Time
	// freed holds blocks that were released lately, to be asked for again.
	freed []netip.Prefix
}

// The pools of the harness. All are small enough for the witness to count them
// address by address.
const (
	poolBig    = "big"    // room for all claims, all sizes, backs the class shared
	poolTight  = "tight"  // never enough: claims wait
	poolReject = "reject" // never enough: claims are refused
	poolHosts  = "hosts"  // single addresses, some of them withheld
	poolKeep   = "keep"   // blocks are retained, backs the class keeping
	poolCool   = "cool"   // blocks cool down
	poolRandom = "random" // strategy Random
	poolParent = "parent" // of child pools
)

// namespaces is the number of namespaces, team-0 and so on. The nemesis deletes them.
const namespaces = 6

func namespaceName(n int) string { return "team-" + strconv.Itoa(n) }

// holdFinalizer is the finalizer of a user of a block.
const holdFinalizer = "torture/in-use"

// furnish makes the tenant, namespaces, classes and pools.
func (w *world) furnish(ctx context.Context) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "torture"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "torture"}},
	}
	keeping := build.Class("keeping").Length(28).With(func(s *v1alpha1.IPClassSpec) {
		s.ReclaimPolicy, s.RetentionPeriod = v1alpha1.ReclaimRetain, &metav1.Duration{Duration: retention}
	}).Obj()
	objects := []client.Object{
		binding, keeping, build.Class("shared").Length(28).Obj(),
		build.Pool(poolBig).CIDR("10.0.0.0/12").Classes("shared").Obj(),
		build.Pool(poolTight).CIDR("10.64.0.0/26").Obj(),
		build.Pool(poolReject).CIDR("10.65.0.0/26").Rejects().Obj(),
		build.Pool(poolHosts).CIDR("10.66.0.0/24").Network(24, "10.66.0.1").Reserved("10.66.0.64-10.66.0.95").Obj(),
		build.Pool(poolKeep).CIDR("10.67.0.0/22").Classes("keeping").Obj(),
		build.Pool(poolCool).CIDR("10.68.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.ReuseDelay = &metav1.Duration{Duration: time.Second}
		}).Obj(),
		build.Pool(poolRandom).CIDR("10.69.0.0/22").Strategy(v1alpha1.StrategyRandom).Obj(),
		build.Pool(poolParent).CIDR("10.80.0.0/18").Obj(),
	}
	for site := range sites {
		objects = append(objects, sitePool(site, 0))
	}
	objects = append(objects, build.Namespace(siteNamespace))
	for n := range namespaces {
		objects = append(objects, build.Namespace(namespaceName(n)))
	}
	for _, obj := range objects {
		if pool, ok := obj.(*v1alpha1.IPPool); ok {
			pool.Annotations = map[string]string{witness.AskedAnnotation: "yes"}
		}
		if err := w.admin.Create(ctx, obj); err != nil {
			return fmt.Errorf("furnishing the world: %w", err)
		}
	}
	return w.leaveUnasked(ctx)
}

// wait waits for so long; false if ctx is done before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// between returns any time from one to the other.
func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

// until checks a condition again and again, at most for so long, and reports whether it became
// true.
func until(ctx context.Context, within time.Duration, condition func() bool) bool {
	return untilEvery(ctx, within, 50*time.Millisecond, condition)
}

func untilEvery(ctx context.Context, within, every time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for !condition() {
		if !wait(ctx, every) {
			return false
		}
	}
	return true
}
