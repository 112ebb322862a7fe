package tenants

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// register watches all IPAllocations, and counts those of the hostile project.
type register struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu sync.Mutex
	// all has the records of the hostile project.
	all map[types.UID]*v1alpha1.IPAllocation
	// most is the highest number of its records at one time, by pool, and retained.
	most map[string]int
	// violations has records that should never have been made.
	violations []string
}

const retained = "retained"

// limits has those of the pools that have one for each project.
var limits = map[string]int{poolCommon: limitCommon, poolKept: limitKept, poolTight: limitTight}

// watchRegister begins to watch.
func (w *world) watchRegister() *register {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	r := &register{stop: stop, all: map[types.UID]*v1alpha1.IPAllocation{}, most: map[string]int{}}
	events, err := w.Watch(ctx, &v1alpha1.IPAllocationList{})
	suite.Must(w, err)
	r.done.Go(func() {
		for e := range events.ResultChan() {
			if ctx.Err() != nil {
				return
			}
			record, ok := e.Object.(*v1alpha1.IPAllocation)
			if !ok {
				r.violated(fmt.Sprintf("the watch failed: %v", e.Object))
				return
			}
			r.see(e.Type, record)
		}
		if ctx.Err() == nil {
			r.violated("the watch ended")
		}
	})
	return r
}

func (r *register) see(event watch.EventType, record *v1alpha1.IPAllocation) {
	if record.Spec.Project != hostileProject {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if event == watch.Deleted {
		delete(r.all, record.UID)
		return
	}
	r.all[record.UID] = record
	pool := record.Spec.PoolRef
	if pool != nil && pool.Kind == v1alpha1.PoolKindIPPool && slices.Contains([]string{poolOwn, poolOthers, poolInner}, pool.Name) {
		r.violations = append(r.violations, fmt.Sprintf("%s/%s records %s of pool %s", record.Namespace, record.Name, record.Spec.CIDR, pool.Name))
	}
	for name, count := range r.counts() {
		r.most[name] = max(r.most[name], count)
	}
}

// counts returns how many records there are, by IPPool, and retained.
func (r *register) counts() map[string]int {
	counts := map[string]int{}
	for _, record := range r.all {
		if pool := record.Spec.PoolRef; pool != nil && pool.Kind == v1alpha1.PoolKindIPPool {
			counts[pool.Name]++
		}
		if record.Spec.State == v1alpha1.AllocationRetained {
			counts[retained]++
		}
	}
	return counts
}

func (r *register) violated(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, how)
}

// tame returns the states that the hostile project never reached.
func (r *register) tame() (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pool, limit := range limits {
		if r.most[pool] < limit {
			missing = append(missing, fmt.Sprintf("pool %s: %d records at most, the limit is %d", pool, r.most[pool], limit))
		}
	}
	if r.most[retained] == 0 {
		missing = append(missing, "nothing was retained")
	}
	return missing
}

func (r *register) end() {
	r.stop()
	r.done.Wait()
}

// judge fails if the hostile project got blocks that it must not have, or more than it may.
func (r *register) judge(t *testing.T) {
	t.Helper()
	t.Logf("records of the hostile project, at most: %v; at the end: %v", r.most, r.counts())
	for _, violation := range r.violations[:min(len(r.violations), 10)] {
		t.Errorf("%s", violation)
	}
	for pool, limit := range limits {
		// A record that exceeds the limit exists until the request that made it gives way: one for
		// each client.
		if most := r.most[pool]; most > limit+attackers {
			t.Errorf("pool %s: %d records at once, the limit is %d", pool, most, limit)
		}
	}
	if most := r.most[poolOpen]; most > shareOpen+attackers {
		t.Errorf("pool %s: %d records of creates that were refused, the share of a namespace is %d", poolOpen, most, shareOpen)
	}
}
