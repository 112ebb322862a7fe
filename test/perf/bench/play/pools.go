package play

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// makePools makes the pools and the class of the scenarios. Each scenario has
// one of its own, so that none finds another's blocks in use.
func (w *World) makePools(ctx context.Context) error {
	if err := w.k8s.Create(ctx, build.Class("bench").Length(28).Obj()); err != nil {
		return err
	}
	pools := []*v1alpha1.IPPool{
		build.Pool("by-pool").CIDR("10.0.0.0/12").Obj(),
		build.Pool("ipv6").CIDR("2001:db8::/32").Obj(),
		build.Pool("hosts").CIDR("172.16.0.0/16").Network(16, "172.16.0.1").Obj(),
		build.Pool("mixed").CIDR("11.0.0.0/8").Obj(),
		build.Pool("replicas").CIDR("10.32.0.0/12").Obj(),
		build.Pool("fill").CIDR("10.16.0.0/12").Obj(),
		build.Pool("machines").CIDR("10.48.0.0/15").Network(15, "10.48.0.1").Obj(),
	}
	for i := range 4 {
		pools = append(pools, build.Pool(fmt.Sprintf("of-class-%d", i)).CIDR(fmt.Sprintf("12.%d.0.0/16", i)).Classes("bench").Obj())
	}
	for _, pool := range pools {
		if err := w.pool(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// pool makes a pool and waits until it hands out blocks.
func (w *World) pool(ctx context.Context, pool *v1alpha1.IPPool) error {
	if err := w.k8s.Create(ctx, pool); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := w.k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		return pool.Status.Phase == v1alpha1.PoolReady, err
	})
	if err != nil {
		return fmt.Errorf("waiting for pool %s: %w", pool.Name, err)
	}
	return nil
}
