package requester

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// An object is asked about after soonest, then after twice as long each time, at
// most latest.
const soonest, latest = time.Second, time.Minute

// Asker asks again whether the users that created waiting objects may use their pools.
// Only the leader does. Its methods may be called concurrently, for one object at a
// time.
type Asker struct {
	ring   *Ring
	rights *Rights
	client client.Client
	clock  clock.PassiveClock

	mu sync.Mutex
	// asked is when which objects were asked about, and swept when those that are due
	// no more were dropped.
	asked map[types.UID]attempt
	swept time.Time
}

// attempt is when an object is asked about next, and how long that is after the last
// time.
type attempt struct {
	next  time.Time
	after time.Duration
}

// NewAsker writes through the client.
func NewAsker(ring *Ring, rights *Rights, c client.Client, clock clock.PassiveClock) *Asker {
	return &Asker{ring: ring, rights: rights, client: c, clock: clock, asked: map[types.UID]attempt{}}
}

// Ask asks whether who made the object may use the pool by now. If so, the object
// says so from then on, granted is true, and who made it is noted no more. Otherwise
// it is to be called again after a while, which is zero where there is nobody to ask
// about.
func (a *Asker) Ask(ctx context.Context, obj client.Object, kind string, pool ipam.PoolKey) (granted bool, after time.Duration, err error) {
	sealed := obj.GetAnnotations()[v1alpha1.AnnotationRequester]
	if sealed == "" {
		return false, 0, nil
	}
	if left := a.left(obj.GetUID()); left > 0 {
		return false, left, nil
	}
	of := Subject{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Pool: pool.Name}
	user, err := a.ring.Open(ctx, sealed, of)
	if err != nil {
		if !errors.Is(err, ErrNoKey) && ctx.Err() == nil {
			log.FromContext(ctx).V(1).Info("Cannot read the requester of an object", "error", err.Error(), "annotation", v1alpha1.AnnotationRequester)
		}
		return false, a.later(obj.GetUID()), nil
	}
	may, err := a.rights.MayUse(ctx, user, pool)
	if err != nil || !may {
		return false, a.later(obj.GetUID()), err
	}
	if err := a.grant(ctx, obj, pool); err != nil {
		return false, 0, err
	}
	a.Forget(obj.GetUID())
	return true, 0, nil
}

// grant writes the right into the object, if that is still as it was read.
func (a *Asker) grant(ctx context.Context, obj client.Object, pool ipam.PoolKey) error {
	before := obj.DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	delete(annotations, v1alpha1.AnnotationRequester)
	annotations[v1alpha1.AnnotationUseGranted] = pool.Name
	obj.SetAnnotations(annotations)
	if err := a.client.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing that %s may be used: %w", pool, err)
	}
	return nil
}

// Forget drops what is known of an object that waits no more.
func (a *Asker) Forget(object types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.asked, object)
}

func (a *Asker) left(object types.UID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[object].next.Sub(a.clock.Now())
}

// later notes that an object was asked about, and returns when to do so again.
func (a *Asker) later(object types.UID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	after := min(max(2*a.asked[object].after, soonest), latest)
	a.sweep(now)
	a.asked[object] = attempt{next: now.Add(after), after: after}
	return after
}

// sweep forgets objects that were due long ago: they are gone, or wait no more.
func (a *Asker) sweep(now time.Time) {
	if now.Sub(a.swept) < latest {
		return
	}
	a.swept = now
	for object, attempt := range a.asked {
		if now.Sub(attempt.next) > latest {
			delete(a.asked, object)
		}
	}
}
