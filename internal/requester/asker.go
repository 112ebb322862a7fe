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

// The right of a waiting object is asked for again after soonest, then after twice as long each
// time, at most latest.
const soonest, latest = time.Second, time.Minute

// Asker asks again whether the users that created waiting objects can use their pools. Only the
// leader asks. Its methods may be called concurrently, for one object at a time.
type Asker struct {
	ring   *Ring
	rights *Rights
	client client.Client
	clock  clock.PassiveClock

	mu sync.Mutex
	// asked holds the attempt for each object, and swept is the time when the attempts that are
	// not due any more were dropped.
	asked map[types.UID]attempt
	swept time.Time
}

// attempt holds the time of the next question about an object, and its distance from the last
// one.
type attempt struct {
	next  time.Time
	after time.Duration
}

// NewAsker returns an Asker that writes through the client.
func NewAsker(ring *Ring, rights *Rights, c client.Client, clock clock.PassiveClock) *Asker {
	return &Asker{ring: ring, rights: rights, client: c, clock: clock, asked: map[types.UID]attempt{}}
}

// Ask asks whether the user that made the object can use the pool now. If so, it notes that in
// the object, removes the user from it, and returns granted as true. Otherwise it is to be
// called again after the returned time, which is zero if the object names no user.
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

// grant writes the right into the object, if the object has not changed since it was read.
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

// Forget drops the attempts for an object that does not wait any more.
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

// later records that the right of an object was asked for, and returns the time until the next
// question.
func (a *Asker) later(object types.UID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	after := min(max(2*a.asked[object].after, soonest), latest)
	a.sweep(now)
	a.asked[object] = attempt{next: now.Add(after), after: after}
	return after
}

// sweep forgets objects that were due long ago: they are gone, or do not wait any more.
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
