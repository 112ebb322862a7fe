package play

import (
	"context"
	"fmt"
	"os"
)

// cores measures creates with etcd and the API server limited to one CPU, and to two. It is not part of a full run.
func (w *World) cores(ctx context.Context) error {
	const limit = "CONTROL_PLANE_GOMAXPROCS"
	defer func() { _ = os.Unsetenv(limit) }()
	for _, cpus := range []int{1, 2} {
		if err := os.Setenv(limit, fmt.Sprint(cpus)); err != nil {
			return err
		}
		if err := w.anotherCluster(ctx); err != nil {
			return err
		}
		contenders := []contender{bare(), twoWrites(), byPool("by-pool")}
		if err := w.warmUp(ctx, contenders...); err != nil {
			return err
		}
		for i, c := range contenders {
			contenders[i].variant, contenders[i].scenario = title(c), "cores"
		}
		if err := w.measure(ctx, contenders, plan{closed(8), w.slice(), either(w, 5, 1), cpus}); err != nil {
			return err
		}
	}
	return nil
}
