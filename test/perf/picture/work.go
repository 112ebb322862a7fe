package picture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// job is one thing that happens again and again during a run.
type job struct {
	name string
	// every is the time between two.
	every time.Duration
	// claim is the nth one.
	claim func(n int) *v1alpha1.IPClaim
	// keep is how many there are at most before the oldest is deleted; 0: all stay.
	keep int
}

// pools of a run: one that fills up, one in which claims wait, one that refuses, one of which
// projects may have so much, one that keeps released blocks, one of IPv6, and one of a
// namespace's own.
func pools() []client.Object {
	limited := &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Addresses: new(intstr.FromInt32(128))}}
	return []client.Object{
		build.Class("sticky").Length(32).With(func(s *v1alpha1.IPClassSpec) {
			s.ReclaimPolicy, s.RetentionPeriod = v1alpha1.ReclaimRetain, &metav1.Duration{Duration: time.Minute}
		}).Obj(),
		build.Pool("machines").CIDR("10.0.0.0/23").Network(23, "10.0.0.1").Obj(),
		build.Pool("regions").CIDR("10.64.0.0/16").Obj(),
		build.Pool("vips").CIDR("192.0.2.0/27").Obj(),
		build.Pool("edge").CIDR("198.51.100.0/28").Rejects().Obj(),
		build.Pool("shared").CIDR("10.32.0.0/22").With(func(s *v1alpha1.IPPoolSpec) { s.Limits = limited }).Obj(),
		build.Pool("databases").CIDR("10.48.0.0/24").Classes("sticky").With(func(s *v1alpha1.IPPoolSpec) {
			s.ReuseDelay = &metav1.Duration{Duration: 30 * time.Second}
		}).Obj(),
		build.Pool("sites").CIDR("2001:db8::/48").Obj(),
		build.Pool("lab").CIDR("172.20.0.0/26").In("team-b"),
	}
}

// jobs of a run of some length, in which one of the pools is nearly filled.
func jobs(length time.Duration) []job {
	of := func(namespace, pool string, bits int32) func(int) *v1alpha1.IPClaim {
		return func(n int) *v1alpha1.IPClaim {
			return build.Claim(namespace, fmt.Sprintf("%s-%d", pool, n)).Pool(pool).Length(bits).Obj()
		}
	}
	class := func(n int) *v1alpha1.IPClaim {
		return build.Claim("team-a", fmt.Sprintf("database-%d", n)).Class("sticky").Obj()
	}
	local := func(n int) *v1alpha1.IPClaim {
		return build.Claim("team-b", fmt.Sprintf("lab-%d", n)).LocalPool("lab").Length(32).Obj()
	}
	missing := func(n int) *v1alpha1.IPClaim {
		return build.Claim("team-b", fmt.Sprintf("missing-%d", n)).Pool("planned").Length(32).Obj()
	}
	return []job{
		{"a pool fills up", length / 470, of("team-a", "machines", 32), 0},
		{"clusters come and go", time.Second, of("team-a", "regions", 24), 40},
		{"claims wait for a pool", length / 60, of("team-b", "vips", 32), 40},
		{"a pool refuses", 8 * time.Second, of("team-b", "edge", 32), 0},
		{"a project reaches its limit", length / 150, of("team-a", "shared", 32), 0},
		{"another does not", length / 70, of("team-b", "shared", 32), 0},
		{"released blocks are kept", 2 * time.Second, class, 15},
		{"IPv6", 4 * time.Second, of("team-a", "sites", 64), 0},
		{"a namespace's own pool", length / 40, local, 0},
		{"a pool is missing", length / 4, missing, 0},
	}
}

// work makes claims for so long, and says what became of them.
func work(ctx context.Context, running *cluster.Cluster, o Options) error {
	k8s, err := cluster.NewClient(running.Config())
	if err != nil {
		return err
	}
	objects := append([]client.Object{build.NamespaceOf("shop", "team-a"), build.NamespaceOf("research", "team-b")}, pools()...)
	for _, object := range objects {
		if err := k8s.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	for _, object := range objects {
		if err := awaitReady(ctx, k8s, object); err != nil {
			return err
		}
	}
	var at sync.WaitGroup
	all := jobs(o.For)
	outcomes := make([]map[string]int, len(all))
	for i, j := range all {
		at.Go(func() { outcomes[i] = j.run(ctx, k8s, o.For) })
	}
	at.Wait()
	for i, j := range all {
		_, _ = fmt.Fprintf(o.Progress, "%-30s", j.name)
		for _, what := range slices.Sorted(maps.Keys(outcomes[i])) {
			_, _ = fmt.Fprintf(o.Progress, " %s: %d", what, outcomes[i][what])
		}
		_, _ = fmt.Fprintln(o.Progress)
	}
	return ctx.Err()
}

// run has a job happen for so long, and counts the answers.
func (j job) run(ctx context.Context, k8s client.Client, length time.Duration) map[string]int {
	var mu sync.Mutex
	outcomes := map[string]int{}
	// The steps of an open loop are so short that each job has one when it is due.
	const perSecond = 20
	due := max(int(j.every*perSecond/time.Second), 1)
	load.Run(ctx, load.Shape{PerSecond: perSecond}, load.Limit{For: length}, func(ctx context.Context, _, n int) error {
		if n%due != 0 {
			return nil
		}
		n /= due
		err := k8s.Create(ctx, j.claim(n))
		mu.Lock()
		outcomes[outcome(err)]++
		mu.Unlock()
		if j.keep > 0 && n >= j.keep {
			err = errors.Join(err, client.IgnoreNotFound(k8s.Delete(ctx, j.claim(n-j.keep))))
		}
		return err
	})
	return outcomes
}

// outcome of a create call in a word.
func outcome(err error) string {
	if err == nil {
		return "created"
	}
	return fmt.Sprintf("%s (%d)", apierrors.ReasonForError(err), code(err))
}

func code(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// awaitReady waits until a pool hands out blocks.
func awaitReady(ctx context.Context, k8s client.Client, object client.Object) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		switch pool := object.(type) {
		case *v1alpha1.IPPool:
			return pool.Status.Phase == v1alpha1.PoolReady, nil
		case *v1alpha1.LocalIPPool:
			return pool.Status.Phase == v1alpha1.PoolReady, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for pool %s: %w", object.GetName(), err)
	}
	return nil
}
