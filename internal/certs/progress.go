package certs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// recheck is how often a pass runs when nothing changes: often enough for all
// that is done when its time has come.
const recheck = time.Hour

// unreadyRecheck is how often it runs at least until one has reached its end: a replica
// that starts depends on no watch alone to become ready.
const unreadyRecheck = 5 * time.Second

// errWait ends a pass that can go on only after a write of somebody else. The
// watch of what they write starts the next one.
var errWait = errors.New("waiting")

// progress is how far the passes of one reconciler have got.
type progress struct {
	subject string                 // what its messages begin with
	trouble atomic.Pointer[string] // why the last pass did not reach its end
	ready   chan struct{}
	isReady sync.Once
}

// Ready is closed, for good, when a pass has reached its end.
func (p *progress) Ready() <-chan struct{} { return p.ready }

// succeeded notes that a pass has reached its end.
func (p *progress) succeeded() {
	p.trouble.Store(nil)
	p.isReady.Do(func() { close(p.ready) })
}

// conflictRecheck is how long the watch may take to show another replica's write.
const conflictRecheck = time.Second

// failed decides what the error of a pass means. A conflict is another replica's
// write, and on its way to the watch.
func (p *progress) failed(ctx context.Context, err error, again time.Duration) (reconcile.Result, error) {
	trouble := err.Error()
	before := p.trouble.Swap(&trouble)
	if p.check() != nil {
		again = min(again, unreadyRecheck)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: min(again, conflictRecheck)}, nil
	}
	if errors.Is(err, errWait) {
		if before == nil || *before != trouble {
			log.FromContext(ctx).Info(p.subject + ": " + trouble)
		}
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return reconcile.Result{}, err
}

// check returns why no pass has reached its end yet.
func (p *progress) check() error {
	select {
	case <-p.ready:
		return nil
	default:
		return errors.New(p.why())
	}
}

func (p *progress) why() string {
	subject := strings.ToLower(p.subject)
	if trouble := p.trouble.Load(); trouble != nil {
		return subject + ": " + *trouble
	}
	return subject + ": not loaded yet"
}
