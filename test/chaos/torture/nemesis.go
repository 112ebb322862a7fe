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
