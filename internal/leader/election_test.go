package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// lease is what an API server keeps of a Lease.
type lease struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
}

func (l *lease) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.HolderIdentity
}

// lock is how one replica sees the lease.
type lock struct {
	*lease
	identity string
	seen     int
	away     bool // the API server does not answer
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.away:
		return nil, nil, context.DeadlineExceeded
	case l.record == nil:
		return nil, nil, apierrors.NewNotFound(leases, "x")
	}
	l.seen = l.version
	record := *l.record
	return &record, fmt.Append(nil, record), nil
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.away:
		return context.DeadlineExceeded
	case l.seen != l.version:
		return apierrors.NewConflict(leases, "x", errors.New("it has been written"))
	}
	l.version++
	l.record, l.seen = &record, l.version
	return nil
}

func (l *lock) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return l.identity }
func (l *lock) Describe() string   { return "the lease" }

// replica is a manager with an election, and what it ran.
type replica struct {
	manager.Manager
	*lock
	election *Election
	stop     func()
	ended    chan error

	mu    sync.Mutex
	added manager.Runnable
	// notes are what began and ended, in this order.
	notes []string
}

func (r *replica) GetLogger() logr.Logger           { return logr.Discard() }
func (r *replica) GetCache() cache.Cache            { return nil }
func (r *replica) Add(added manager.Runnable) error { r.added = added; return nil }

func (r *replica) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, what)
}

// expect compares what was noted since it was called last.
func (r *replica) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.notes, want) {
		t.Errorf("%s: got %q, want %q", when, r.notes, want)
	}
	r.notes = nil
}

const (
	leaseDuration = 8 * time.Second
	renewDeadline = 6 * time.Second
	retryPeriod   = time.Second
)

// start starts a replica that runs "controller" in each term.
func start(t *testing.T, lease *lease, name string) *replica {
	t.Helper()
	r := &replica{ended: make(chan error, 1)}
	options := Options{LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod}
	if lease != nil {
		r.lock = &lock{lease: lease, identity: name}
		options.Lock = r.lock
	}
	var err error
	if r.election, err = New(r, options); err != nil {
		t.Fatal(err)
	}
	r.eachTerm(t, "controller")
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = func() {
		cancel()
		if err := <-r.ended; err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	}
	go func() { r.ended <- r.added.Start(ctx) }()
	return r
}

// eachTerm runs what notes when it begins and ends.
func (r *replica) eachTerm(t *testing.T, what string) {
	t.Helper()
	err := r.election.EachTerm(func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			r.note(what + " begins")
			<-ctx.Done()
			r.note(what + " ends")
			return ctx.Err()
		}))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // of the time in the bubble
	synctest.Wait()
}

func TestAReplicaThatLosesTheLeaseEndsItsControllersAndMakesThemAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &lease{}
		a := start(t, lease, "a")
		a.expect(t, "at first", "controller begins")
		b := start(t, lease, "b")
		pass(time.Minute)
		b.expect(t, "while a leads")

		a.setAway(true)
		pass(leaseDuration - time.Second) // a gave up after the deadline, and nobody has the lease yet
		a.expect(t, "when it has not been able to renew the lease", "controller ends")
		b.expect(t, "before the lease has run out")
		pass(6 * time.Second) // replicas look at the lease every 1 to 2.2 s
		b.expect(t, "when the lease has run out", "controller begins")
		a.setAway(false)
		pass(time.Minute)
		a.expect(t, "while b leads")

		b.stop()
		b.expect(t, "at its end", "controller ends")
		pass(3 * retryPeriod)
		a.expect(t, "when it is elected again", "controller begins")
		a.stop()
		a.expect(t, "at its end", "controller ends")
	})
}

func TestTheLeaseIsGivenBackWhenTheControllersHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &lease{}
		a := start(t, lease, "a")
		slow := make(chan string, 1)
		err := a.election.EachTerm(func(mgr manager.Manager) error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				<-ctx.Done()
				pass(time.Second)
				slow <- lease.holder()
				return nil
			}))
		})
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		a.stop()
		if holder := <-slow; holder != "a" {
			t.Errorf("the lease was %q's while a controller was ending", holder)
		}
		if lease.holder() != "" {
			t.Errorf("the lease is %q's still", lease.holder())
		}
	})
}

func TestTheLeaseOfAnotherIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &lease{}
		a := start(t, lease, "a")
		synctest.Wait()
		b := start(t, lease, "b")
		a.setAway(true)
		pass(time.Minute)
		a.setAway(false)
		a.stop()
		if lease.holder() != "b" {
			t.Errorf("the lease is %q's, want that b keeps it", lease.holder())
		}
		b.expect(t, "meanwhile", "controller begins")
		b.stop()
	})
}

func TestWhatComesLaterRunsInThisTermAndInEachThatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &lease{}
		a := start(t, lease, "a")
		a.expect(t, "at first", "controller begins")
		a.eachTerm(t, "late")
		a.expect(t, "at once", "late begins")
		a.setAway(true)
		pass(leaseDuration)
		a.eachTerm(t, "between")
		a.setAway(false)
		pass(leaseDuration)
		a.mu.Lock()
		slices.Sort(a.notes)
		a.mu.Unlock()
		a.expect(t, "in the second term", "between begins", "controller begins", "controller ends", "late begins", "late ends")
		a.stop()
	})
}

func TestWithoutALockTheReplicaLeadsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, nil, "a")
		a.expect(t, "at first", "controller begins")
		a.stop()
		a.expect(t, "at its end", "controller ends")
	})
}

func TestWhatFailsEndsTheReplica(t *testing.T) {
	failed := errors.New("no cache")
	fails := func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(context.Context) error { return failed }))
	}
	for name, test := range map[string]struct {
		setup Setup
		lock  bool
		want  string
	}{
		"what runs in a term":      {fails, true, "no cache"},
		"what runs without a lock": {fails, false, "no cache"},
		"what sets up a term":      {func(manager.Manager) error { return failed }, true, "setting up what a leader runs: no cache"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := Options{LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod}
				lease := &lease{record: &resourcelock.LeaderElectionRecord{}}
				if test.lock {
					options.Lock = &lock{lease: lease, identity: "a"}
				}
				a := &replica{}
				election, err := New(a, options)
				if err != nil {
					t.Fatal(err)
				}
				if err := election.EachTerm(test.setup); err != nil {
					t.Fatal(err)
				}
				if err := a.added.Start(t.Context()); err == nil || err.Error() != test.want {
					t.Errorf("it ended with %v, want %s", err, test.want)
				}
				if lease.holder() != "" {
					t.Errorf("the lease is %q's still", lease.holder())
				}
			})
		})
	}
}

func TestWhatIsAddedStartsAfterSetup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &lease{}, "a")
		err := a.election.EachTerm(func(mgr manager.Manager) error {
			err := mgr.Add(manager.RunnableFunc(func(context.Context) error {
				a.note("starts")
				return nil
			}))
			time.Sleep(time.Second) //nolint:forbidigo // of the time in the bubble
			a.note("is set up")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		a.expect(t, "at first", "controller begins", "is set up", "starts")
		a.stop()
	})
}

func TestASetUpThatFailsWhenItsTermIsOverIsDoneAgainInTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &lease{}, "a")
		synctest.Wait()
		a.setAway(true)
		pass(leaseDuration) // the first term is over
		called := 0
		err := a.election.EachTerm(func(manager.Manager) error {
			if called++; called > 1 {
				return nil
			}
			a.setAway(true)
			pass(leaseDuration) // and so is the second
			a.setAway(false)
			return errors.New("its context is done")
		})
		a.setAway(false)
		pass(3 * leaseDuration)
		if err != nil || called != 2 {
			t.Errorf("it was called %d times, %v; want once in each term", called, err)
		}
		a.stop()
	})
}

func TestTimesByWhichNobodyCanLeadAreRefused(t *testing.T) {
	_, err := New(&replica{}, Options{Lock: &lock{}, LeaseDuration: leaseDuration, RenewDeadline: leaseDuration, RetryPeriod: retryPeriod})
	if err == nil {
		t.Error("no error")
	}
}

func TestWhatFailsAtOnceIsNotSetUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, failed := &lease{}, errors.New("no cache")
		a := start(t, lease, "a")
		synctest.Wait()
		called := 0
		err := a.election.EachTerm(func(manager.Manager) error {
			called++
			return failed
		})
		a.setAway(true)
		pass(leaseDuration)
		a.setAway(false)
		pass(leaseDuration)
		a.expect(t, "in two terms", "controller begins", "controller ends", "controller begins")
		if !errors.Is(err, failed) || called != 1 {
			t.Errorf("it failed with %v, and was called %d times, want once", err, called)
		}
		a.stop()
	})
}

func TestALeaseThatCannotBeGivenBackIsLogged(t *testing.T) {
	for name, away := range map[string]bool{"it can be": false, "it cannot be": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logged := 0
				log := funcr.New(func(string, string) { logged++ }, funcr.Options{})
				l := &lock{lease: &lease{record: &resourcelock.LeaderElectionRecord{HolderIdentity: "a"}}, identity: "a", away: away}
				(&Election{options: Options{Lock: l, RenewDeadline: renewDeadline}, log: log}).release()
				if logged > 0 != away {
					t.Errorf("%d are logged", logged)
				}
			})
		})
	}
}

// refusing is a manager that takes nothing any more.
type refusing struct{ replica }

func (*refusing) Add(manager.Runnable) error { return errors.New("ended") }

func TestAManagerThatHasEndedHasNoElection(t *testing.T) {
	if _, err := New(&refusing{}, Options{}); err == nil {
		t.Error("no error")
	}
}
