// Package leader has controllers run on one replica at a time. A replica that loses the
// lease ends its controllers, and its process goes on: its webhooks answer, its caches
// are kept up, and when it is elected again it makes controllers anew. (The manager of
// controller-runtime ends the process.)
package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options are how the leader is elected.
type Options struct {
	// Lock is what replicas compete for. Without one this replica leads until it ends.
	Lock resourcelock.Interface
	// Name is that of the election in the metrics.
	Name string
	// The times of client-go's leader election.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// Setup registers, with the manager of a term, what runs for as long as the term.
type Setup func(manager.Manager) error

// Election has controllers made at the beginning of each term of this replica, and ended
// at its end. Its methods may be called concurrently.
type Election struct {
	mgr     manager.Manager
	options Options
	log     logr.Logger
	elector *leaderelection.LeaderElector // nil without a lock
	// terms has a context at the beginning of each term, which is done at its end.
	terms chan context.Context

	mu     sync.Mutex
	setups []Setup
	term   *term // nil while this replica does not lead
}

// New makes an election among the replicas of mgr, which begins when mgr is started. The
// manager is to have no leader election of its own.
func New(mgr manager.Manager, o Options) (*Election, error) {
	e := &Election{mgr: mgr, options: o, log: mgr.GetLogger().WithName("leader"), terms: make(chan context.Context)}
	if o.Lock != nil {
		var err error
		if e.elector, err = e.newElector(); err != nil {
			return nil, err
		}
	}
	return e, mgr.Add(manager.RunnableFunc(e.run))
}

// EachTerm has f called at the beginning of each term, after those that were given before,
// and at once where this replica leads. It is never called twice at a time, nor at the
// time of another. Where it fails at once it is not called again.
func (e *Election) EachTerm(f Setup) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != nil {
		if err := e.term.setup(f); err != nil {
			return err
		}
	}
	e.setups = append(e.setups, f)
	return nil
}

// run takes part in the election until ctx is done, or until what runs in a term fails.
func (e *Election) run(ctx context.Context) error {
	if e.elector == nil {
		return e.lead(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	var electing sync.WaitGroup
	electing.Go(func() {
		for ctx.Err() == nil {
			e.elector.Run(ctx)
		}
	})
	defer func() { // in this order: the lock is for one call at a time
		cancel()
		electing.Wait()
		e.release()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case term := <-e.terms:
			if err := e.lead(term); err != nil {
				return err
			}
		}
	}
}

func (e *Election) newElector() (*leaderelection.LeaderElector, error) {
	begin := func(term context.Context) {
		select {
		case e.terms <- term:
		case <-term.Done():
		}
	}
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.options.Lock, Name: e.options.Name,
		LeaseDuration: e.options.LeaseDuration, RenewDeadline: e.options.RenewDeadline, RetryPeriod: e.options.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: begin, OnStoppedLeading: func() {}},
		// The elector would give the lease back before the controllers have ended, and
		// without a look at who has it by then.
		ReleaseOnCancel: false,
	})
}

// lead runs what there is to run until ctx is done, and returns when all of it has ended.
func (e *Election) lead(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	t := &term{Manager: e.mgr, watches: &watches{Cache: e.mgr.GetCache()}, ctx: ctx, running: running}
	running.Go(func() error {
		if err := e.begin(t); err != nil {
			return fmt.Errorf("setting up what a leader runs: %w", err)
		}
		<-ctx.Done()
		e.end()
		return nil
	})
	err := running.Wait()
	return errors.Join(err, t.watches.end())
}

// begin sets up what runs in a term.
func (e *Election) begin(t *term) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.setups {
		if err := t.setup(f); err != nil {
			return err
		}
	}
	e.term = t
	return nil
}

// end has nothing set up any more for the term that is over.
func (e *Election) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = nil
}

// release gives the lease back, if it is still this replica's, so that another need not
// wait until it has run out.
func (e *Election) release() {
	ctx, cancel := context.WithTimeout(context.Background(), e.options.RenewDeadline)
	defer cancel()
	record, _, err := e.options.Lock.Get(ctx)
	if err == nil && record.HolderIdentity == e.options.Lock.Identity() {
		// The API server refuses it where the lease has been written since it was read.
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		err = e.options.Lock.Update(ctx, *record)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		e.log.Error(err, "Could not release the leader lease; another replica acquires it when it expires", "lease", e.options.Lock.Describe())
	}
}
