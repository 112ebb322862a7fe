package lifecycle

import (
	"context"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// losesTheLease gives the lease to another holder, for long: the leader ends and is started again,
// no replica reconciles, and both replicas answer.
func (w *world) losesTheLease(t *testing.T) {
	ctx := t.Context()
	for _, m := range w.Managers {
		m.Args = append(m.Args, "--leader-elect-lease-duration=2s")
		suite.Must(t, m.Restart(ctx))
	}
	pool, waits := build.Pool("late").CIDR("10.200.0.0/24").Obj(), build.Claim("team", "waits").Pool("late").Length(32).Obj()
	suite.Must(t, w.Create(ctx, waits))

	leader := w.Leader()
	w.writeLease(t, "somebody")
	w.Await("the leader ends", func(context.Context) bool { return !leader.Running() })
	suite.Must(t, leader.Start(ctx)) // as a kubelet does
	suite.Must(t, w.Create(ctx, pool))
	for i := range 40 {
		claim := build.Claim("team", fmt.Sprintf("without-leader-%d", i)).Pool("p").Length(32).Obj()
		suite.Must(t, w.Create(ctx, claim))
		if claim.Status.Phase != v1alpha1.ClaimBound {
			t.Errorf("%s is %s while no replica leads", claim.Name, claim.Status.Phase)
		}
	}
	suite.Must(t, w.Get(ctx, client.ObjectKeyFromObject(pool), pool))
	suite.Must(t, w.Get(ctx, client.ObjectKeyFromObject(waits), waits))
	if pool.Status.Phase == v1alpha1.PoolReady || waits.Status.Phase == v1alpha1.ClaimBound {
		t.Errorf("while no replica leads the new pool is %s, and the claim that waits for it %s", pool.Status.Phase, waits.Status.Phase)
	}

	w.writeLease(t, "")
	w.Bound(waits)
	for _, m := range w.Managers {
		if !m.Running() {
			t.Errorf("%s has ended", m.Name)
		}
	}
}

// writeLease gives the lease to a holder for an hour; to none if that is empty.
func (w *world) writeLease(t *testing.T, holder string) {
	t.Helper()
	suite.Must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		list := &coordinationv1.LeaseList{}
		if err := w.List(t.Context(), list, client.InNamespace(cluster.Namespace)); err != nil {
			return err
		}
		lease, now := &list.Items[0], metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, new(int32(3600)), &now
		return w.Update(t.Context(), lease)
	}))
}
