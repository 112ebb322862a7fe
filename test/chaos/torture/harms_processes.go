package torture

import (
	"context"
	"errors"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

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
