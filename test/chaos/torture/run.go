// Package torture runs real managers against a real API server and etcd, with clients that claim,
// release and claim again, while a nemesis kills, pauses, cuts and deletes; a witness judges the
// stored objects.
//
//	clients ──▶ kube-apiserver ──▶ balancer ──▶ managers
//	               ▲     │                        │
//	               │     └──▶ etcd ◀── witness    │
//	               └───── a proxy for each ◀──────┘
//
// All choices come from one seed, which is printed first. The decisions of the scheduling of
// processes are not repeated with it: the same seed makes the same clients ask for the same things
// and the nemesis do the same in the same order.
//
// A run has three parts: the storm, with clients and faults; the calm, with clients alone, in which
// no fault excuses anything; and the end, in which nothing happens until all is as required,
// waiting claims are served one after the other, and everything is given back.
//
// # Force
//
// Only the operator takes its finalizer off a record: a policy refuses it to all others. An
// administrator who does so under the operator's account has released the block by hand. The
// witness is notified before, and does not hold it against the operator if another holder gets the
// block; the claim that lost it has to report that it is in conflict, or to have its record again
// (see package witness).
//
// # Clients
//
// A client is an actor: see actors. To add one, write it in a separate file and list it there.
package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// ErrViolated means that a promise was broken: the report names it.
var ErrViolated = errors.New("a promise was broken")

// Run runs the torture, until it is over or the first violation. The report is
// complete also with ErrViolated; any other error means that the harness itself
// could not go on.
func Run(ctx context.Context, config Config) (*Report, error) {
	config = config.withDefaults()
	t := &torture{config: config, report: &Report{Seed: config.Seed, Clients: config.Clients, Managers: config.Managers, Pause: config.Pause.Seconds(), Duration: config.Storm.Seconds(), UntilGrants: config.Allocations, UntilFaults: config.Faults, GOGC: os.Getenv("GOGC"), Began: time.Now()}}
	t.say("seed %d: %s of faults, %d clients, %d managers", config.Seed, config.Storm, config.Clients, config.Managers)
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: config.Dir, ControllerManager: true, Managers: config.Managers, ManagerBinary: config.Binary,
		ManagerEnv: config.Env, ClusterAPICRDs: true, OrphanGrace: orphanGrace,
		ManagerArgs: []string{"--leader-elect-lease-duration=" + lease.String(), "--feature-gates=PoolRanges=true"},
		// Otherwise there are so many Events after an hour that a namespace's take longer to
		// delete than kube-controller-manager waits.
		APIServerFlags: map[string]string{"event-ttl": "5m"},
		Revive:         true, Proxied: true, Seats: seats, Progress: config.Progress,
	})
	if err != nil {
		return nil, err
	}
	err = t.play(ctx, c)
	if errors.Is(err, ErrViolated) {
		err = errors.Join(err, t.keepLogs(c))
	}
	t.finish(err)
	return t.report, errors.Join(err, t.write(), c.Stop())
}

// keepLogs keeps the logs of the managers beside the report, with the stacks of their goroutines at
// the end.
func (t *torture) keepLogs(c *cluster.Cluster) error {
	if t.config.Out == "" {
		return nil
	}
	errs := []error{os.MkdirAll(t.config.Out, 0o755)}
	for _, m := range c.Managers {
		errs = append(errs, m.Dump())
		log, err := os.ReadFile(m.LogPath())
		errs = append(errs, err, os.WriteFile(filepath.Join(t.config.Out, fmt.Sprintf("violation-%d-%s.log", t.config.Seed, m.Name)), log, 0o644))
	}
	return errors.Join(errs...)
}

// torture holds the state of one run.
type torture struct {
	config  Config
	world   *world
	nemesis *nemesis
	report  *Report
}

func (t *torture) say(format string, args ...any) {
	_, _ = fmt.Fprintf(t.config.Progress, "torture: "+format+"\n", args...)
}

func (t *torture) play(ctx context.Context, c *cluster.Cluster) error {
	if err := t.assemble(ctx, c); err != nil {
		return err
	}
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	follows := make(chan error, 1)
	go func() { follows <- witness.Follow(watching, c.EtcdURL(), t.world.witness.Take) }()
	go t.lookOut(watching, func() { stop(ErrViolated) })
	err := t.acts(watching)
	if errors.Is(context.Cause(watching), ErrViolated) {
		return ErrViolated
	}
	stop(nil)
	return errors.Join(err, <-follows)
}

func (t *torture) assemble(ctx context.Context, c *cluster.Cluster) error {
	var errs []error
	as := func(config *rest.Config, err error) client.WithWatch {
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		k8s, err := cluster.NewClient(config)
		errs = append(errs, err)
		return k8s
	}
	admin, operator, unasked := as(c.Config(), nil), as(c.OperatorConfig(ctx)), as(c.User(unaskedUser, "system:masters"))
	tenant, err := c.User("torture")
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	t.world = &world{
		Cluster: c, config: t.config, admin: admin, operator: operator, unasked: unasked, tenant: tenant,
		timeline: &timeline{begin: t.report.Began}, service: &service{},
		asked: map[string]time.Time{}, releasing: map[string]time.Time{},
	}
	t.nemesis = &nemesis{
		party:  &party{world: t.world, who: "nemesis", Client: admin},
		random: rand.New(rand.NewPCG(t.config.Seed, 0)),
	}
	t.world.witness = witness.New(t.nemesis.excuses)
	return t.world.furnish(ctx)
}

// acts runs storm, calm and end.
func (t *torture) acts(ctx context.Context) error {
	stage, curtain := context.WithCancel(ctx)
	defer curtain()
	playing, offStage := errgroup.WithContext(stage)
	for n, r := range cast(t.config.Clients) {
		playing.Go(func() error { return t.world.perform(offStage, r, n) })
	}
	t.report.storm = time.Now()
	storm, endStorm := context.WithTimeout(ctx, t.config.Storm)
	defer endStorm()
	go t.endWhenEnough(storm, endStorm)
	err := t.nemesis.rage(storm)
	t.report.Storm = time.Since(t.report.storm).Seconds()
	if err != nil {
		return err
	}
	t.say("%s: the storm is over: %d allocations, %d faults", t.elapsed(), t.world.witness.Figures().Allocations, len(t.nemesis.injected()))
	wait(ctx, settling+t.config.Calm)
	curtain()
	if err := playing.Wait(); err != nil {
		return err
	}
	t.say("%s: the calm is over: %d allocations", t.elapsed(), t.world.witness.Figures().Allocations)
	if err := t.world.quiet(ctx, "when the clients have stopped"); err != nil {
		return err
	}
	t.say("%s: all is quiet, and every holder has its block", t.elapsed())
	if err := t.world.serveInOrder(ctx); err != nil {
		return err
	}
	t.say("%s: waiting claims were served", t.elapsed())
	return t.world.giveBack(ctx)
}

// endWhenEnough ends the storm when there were as many allocations and faults as are
// wanted.
func (t *torture) endWhenEnough(storm context.Context, endStorm func()) {
	if t.config.Allocations == 0 && t.config.Faults == 0 {
		return
	}
	for wait(storm, 100*time.Millisecond) {
		if t.world.witness.Figures().Allocations >= t.config.Allocations && len(t.nemesis.injected()) >= t.config.Faults {
			endStorm()
		}
	}
}

// lookOut reports the progress every now and then, and ends the run at the first violation.
func (t *torture) lookOut(ctx context.Context, violated func()) {
	for n := 0; wait(ctx, 100*time.Millisecond); n++ {
		if len(t.world.witness.Violations()) > 0 {
			violated()
			return
		}
		if n%300 == 299 {
			figures := t.world.witness.Figures()
			t.say("%s: %d allocations, %d releases, %d faults, revision %d", t.elapsed(), figures.Allocations, figures.Releases, len(t.nemesis.injected()), t.world.witness.Revision())
		}
	}
}

func (t *torture) elapsed() time.Duration { return time.Since(t.report.Began).Round(time.Second) }

// Config holds the settings of a run.
type Config struct {
	Seed uint64
	// Storm is the time with faults, Calm the time after it with clients and without faults.
	Storm, Calm time.Duration
	// Allocations and Faults end the storm when there were that many of both, before its time is
	// over; both 0: never.
	Allocations, Faults int
	// Clients is the number of clients at the same time; Managers the number of replicas.
	Clients, Managers int
	// Pause is the time without a fault between two faults, on average; a third of that as long as
	// there are fewer faults than allocations, as shares of the wanted numbers.
	Pause time.Duration
	// Often is the kind of every other fault, the first among them; empty: none.
	Often string
	// Binary is the manager; empty: bin/test-manager. Env is for it, beside this
	// process's.
	Binary string
	Env    []string
	// Dir is the folder of the cluster's files; empty: a temporary directory.
	Dir string
	// Out is the folder to which a violation is written; empty: none.
	Out string
	// Progress gets reports on the state of the run.
	Progress io.Writer
}

// Constants of the managers under test, which the harness reckons with.
const (
	lease       = 4 * time.Second
	orphanGrace = 5 * time.Second
	retention   = 2 * time.Second
	// seats is the number of requests that the API server serves at once.
	seats = 100
)

// settling is the time after a fault in which its effects may be felt: a lease runs out, processes
// and watches begin again.
const settling = 2 * lease

func (c Config) withDefaults() Config {
	if c.Clients == 0 {
		c.Clients = 24
	}
	if c.Managers == 0 {
		c.Managers = 3
	}
	if c.Calm == 0 {
		c.Calm = 5 * time.Second
	}
	if c.Pause == 0 {
		c.Pause = time.Second
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}
