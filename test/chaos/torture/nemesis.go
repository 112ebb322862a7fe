package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// nemesis injects one fault after the other.
type nemesis struct {
	*party
	random *rand.Rand
	serial int
	// ending has the namespaces that go away in the background.
	ending errgroup.Group

	mu     sync.Mutex
	active bool
	calm   time.Time // when the last fault was corrected
	faults []fault
}

// harm represents a kind of fault. do injects it, lets it last, and corrects it again, the last
// even when ctx is done. It returns errNothing if it had no effect.
type harm struct {
	kind string
	// weight is how often it is picked, relative to the others.
	weight int
	do     func(*nemesis, context.Context) error
}

// errNothing is a fault that harmed nothing: it does not count.
var errNothing = errors.New("there was nothing to harm")

// slowFirstList is the fault that shows whether a manager answers too early.
const slowFirstList = "kill the managers, the first list of one is slow"

// poolsReplaced is the fault that shows whether a block outlives its pool.
const poolsReplaced = "delete a pool, and make another on its CIDR"

func harms() []harm {
	return []harm{
		{"kill a manager", 12, (*nemesis).killManager},
		{slowFirstList, 6, (*nemesis).killManagersSlowList},
		{"pause a manager beyond its lease", 5, (*nemesis).pauseManager},
		{"kill the API server", 3, (*nemesis).killAPIServer},
		{"kill etcd", 4, (*nemesis).killEtcd},
		{"cut a manager's watches", 12, (*nemesis).cutWatches},
		{"delay a manager's watches", 10, (*nemesis).delayWatches},
		{"silence a manager's watches", 6, (*nemesis).silenceWatches},
		{"fill the API server's seats", 5, (*nemesis).fillSeats},
		{"revoke the webhook's certificate", 6, (*nemesis).revokeCertificate},
		{"delete claims while all managers are down", 5, (*nemesis).deleteUnseen},
		{"force finalizers off claims", 6, (*nemesis).forceClaims},
		{"force finalizers off records", 4, (*nemesis).forceRecords},
		{"delete a namespace", 5, (*nemesis).deleteNamespace},
		{poolsReplaced, 8, (*nemesis).replacePool},
		{"force a pool away, and make it or another on its CIDR", 5, (*nemesis).forcePool},
	}
}

// rage injects faults until ctx is done, and returns when the last of them is corrected again. An
// error means that one could not be.
func (n *nemesis) rage(ctx context.Context) error {
	err := n.harm(ctx)
	n.mark(true, nil)
	defer n.mark(false, nil)
	return errors.Join(err, n.ending.Wait())
}

func (n *nemesis) harm(ctx context.Context) error {
	all := harms()
	n.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	often := slices.IndexFunc(all, func(h harm) bool { return h.kind == n.config.Often })
	for i := 0; ctx.Err() == nil; i++ {
		h := all[i%len(all)] // each once, in any order,
		if i >= len(all) {   // and then by weight
			h = pick(all, n.random)
		}
		if often >= 0 && i%2 == 0 {
			h = all[often]
		}
		if err := n.inject(ctx, h); err != nil {
			return fmt.Errorf("%s: %w", h.kind, err)
		}
		longest := 2 * n.config.Pause
		if n.lags() {
			longest = n.config.Pause / 2
		}
		wait(ctx, between(n.random, n.config.Pause/4, longest))
	}
	return nil
}

// lags reports whether there are fewer faults yet than allocations, as shares of the wanted
// numbers.
func (n *nemesis) lags() bool {
	return len(n.injected())*n.config.Allocations < n.witness.Figures().Allocations*n.config.Faults
}

func pick(all []harm, random *rand.Rand) harm {
	sum := 0
	for _, h := range all {
		sum += h.weight
	}
	dice := random.IntN(sum)
	for _, h := range all {
		if dice -= h.weight; dice < 0 {
			return h
		}
	}
	return all[0]
}

func (n *nemesis) inject(ctx context.Context, h harm) error {
	f := fault{Kind: h.kind, Began: time.Now()}
	n.mark(true, nil)
	err := h.do(n, ctx)
	f.Ended = time.Now()
	result, counts := fmt.Sprintf("over after %.1f s", f.Ended.Sub(f.Began).Seconds()), &f
	if errors.Is(err, errNothing) {
		result, counts, err = err.Error(), nil, nil
	}
	if err = errors.Join(err, n.reviveManagers(ctx)); err != nil {
		result = err.Error()
	}
	n.mark(false, counts)
	_, _ = fmt.Fprintf(n.config.Progress, "torture: %7.1f s: %s: %s\n", time.Since(n.timeline.begin).Seconds(), h.kind, result)
	n.timeline.add(moment{Began: f.Began, Ended: f.Ended, Who: n.who, What: "FAULT: " + h.kind, Result: result})
	return err
}

func (n *nemesis) mark(active bool, f *fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.active = active
	n.calm = time.Now()
	if f != nil {
		n.faults = append(n.faults, *f)
	}
}

// excuses reports whether a fault was active, or could still be felt, at any time since then.
func (n *nemesis) excuses(since time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.active || n.calm.Add(settling).After(since)
}

func (n *nemesis) injected() []fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]fault(nil), n.faults...)
}

// reviveManagers starts those that have ended by themselves and were not revived, because they had
// only just begun: a kubelet would try again.
func (n *nemesis) reviveManagers(ctx context.Context) error {
	var errs []error
	for _, m := range n.Managers {
		if !m.Running() {
			errs = append(errs, n.startManager(ctx, m))
		}
	}
	return errors.Join(errs...)
}

// startManager starts a manager, though it may take several tries while other
// parts come back.
func (n *nemesis) startManager(ctx context.Context, m *cluster.Manager) error {
	ctx, cancel := n.healing(ctx)
	defer cancel()
	for {
		err := m.Start(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// healing returns a context for the correction of a fault, also when the storm is over.
func (n *nemesis) healing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
}

func (n *nemesis) anyManager() *cluster.Manager { return n.Managers[n.random.IntN(len(n.Managers))] }

// last waits while a fault lasts.
func (n *nemesis) last(ctx context.Context, from, to time.Duration) {
	wait(ctx, between(n.random, from, to))
}

func (n *nemesis) killManager(ctx context.Context) error {
	m := n.anyManager()
	if err := m.Kill(); err != nil {
		return err
	}
	n.last(ctx, 0, time.Second)
	return n.startManager(ctx, m)
}

// killManagersSlowList makes a manager begin with a list of records that takes a while. As soon as
// that one is ready the others are killed, so that it gets the requests.
func (n *nemesis) killManagersSlowList(ctx context.Context) error {
	m, held := n.anyManager(), between(n.random, 2*time.Second, 5*time.Second)
	m.API.HoldReads("ipallocations", held)
	defer m.API.HoldReads("", 0)
	if err := m.Kill(); err != nil {
		return err
	}
	deadline := time.Now().Add(held)
	errs := []error{n.startManager(ctx, m)}
	for _, other := range n.Managers {
		if other != m {
			errs = append(errs, other.Kill())
		}
	}
	wait(ctx, time.Until(deadline)) // one that was ready too early
	return errors.Join(errs...)
}

// pauseManager stops a manager for longer than its lease lasts. Now and then all connections to it
// stay with it, as if no balancer checks readiness.
func (n *nemesis) pauseManager(ctx context.Context) error {
	m := n.anyManager()
	if n.random.IntN(4) > 0 {
		n.Balancer.Withdraw(m.WebhookAddress)
		defer n.Balancer.Restore(m.WebhookAddress)
	}
	if err := m.Pause(); err != nil {
		return err
	}
	n.last(ctx, lease+500*time.Millisecond, 2*lease)
	return m.Resume()
}

func (n *nemesis) killAPIServer(ctx context.Context) error {
	if err := n.APIServer.Kill(); err != nil {
		return err
	}
	n.last(ctx, 0, time.Second)
	ctx, cancel := n.healing(ctx)
	defer cancel()
	return n.APIServer.Start(ctx)
}

// killEtcd also starts the API server again if that did not survive it.
func (n *nemesis) killEtcd(ctx context.Context) error {
	if err := n.Etcd.Kill(); err != nil {
		return err
	}
	n.last(ctx, 0, time.Second)
	ctx, cancel := n.healing(ctx)
	defer cancel()
	if err := n.Etcd.Start(ctx); err != nil {
		return err
	}
	if until(ctx, 10*time.Second, func() bool { return n.answers(ctx) }) {
		return nil
	}
	_ = n.APIServer.Kill()
	return n.APIServer.Start(ctx)
}

// answers reports whether the API server answers from etcd.
func (n *nemesis) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return n.admin.Get(ctx, keyOf("default"), build.Namespace("")) == nil
}

func (n *nemesis) cutWatches(ctx context.Context) error {
	m := n.anyManager()
	for range 1 + n.random.IntN(4) {
		m.API.Cut()
		n.last(ctx, 10*time.Millisecond, 500*time.Millisecond)
	}
	return nil
}

func (n *nemesis) delayWatches(ctx context.Context) error {
	m := n.anyManager()
	m.API.Delay(between(n.random, 50*time.Millisecond, 2*time.Second))
	defer m.API.Delay(0)
	n.last(ctx, 2*time.Second, 5*time.Second)
	return nil
}

// silenceWatches ends with the arrival of all held-back events at once, or with broken connections.
func (n *nemesis) silenceWatches(ctx context.Context) error {
	m := n.anyManager()
	m.API.Silence(true)
	defer m.API.Silence(false)
	n.last(ctx, time.Second, 6*time.Second)
	if n.random.IntN(2) == 0 {
		m.API.Cut()
	}
	return nil
}

// deleteUnseen deletes claims while no manager runs, or all are stopped.
func (n *nemesis) deleteUnseen(ctx context.Context) error {
	kill := n.random.IntN(2) == 0
	var errs []error
	for _, m := range n.Managers {
		if kill {
			errs = append(errs, m.Kill())
		} else {
			errs = append(errs, m.Pause())
		}
	}
	deleted := n.deleteSomeClaims(ctx, 20)
	for _, m := range n.Managers {
		if kill {
			errs = append(errs, n.startManager(ctx, m))
		} else {
			errs = append(errs, m.Resume())
		}
	}
	if err := errors.Join(errs...); err != nil || deleted > 0 {
		return err
	}
	return errNothing
}
