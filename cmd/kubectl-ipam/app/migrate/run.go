package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// run represents one run of a command.
type run struct {
	client   client.Client
	provider provider
	o        Options
	out      io.Writer
}

// InCluster imports the pools of Cluster API's in-cluster provider: InClusterIPPools become
// LocalIPPools, and GlobalInClusterIPPools IPPools. It prints the plan, and acts if the options
// ask for it.
//
// Errors: *ProblemsError; ErrInterrupted if the context ended; and those of the API.
func InCluster(ctx context.Context, c client.Client, o Options) error {
	return move(ctx, c, inCluster(), o)
}

// Metal3 imports the pools of Metal3's IP address manager, which become LocalIPPools. See
// InCluster.
func Metal3(ctx context.Context, c client.Client, o Options) error {
	return move(ctx, c, metal3(), o)
}

func move(ctx context.Context, c client.Client, p provider, o Options) error {
	o = o.withDefaults()
	r := &run{client: c, provider: p, o: o, out: o.Out}
	var err error
	switch o.Action {
	case Apply:
		err = r.apply(ctx)
	case Rollback:
		err = r.rollback(ctx)
	default:
		err = r.show(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return errors.Join(ErrInterrupted, err)
	}
	return err
}

// ErrInterrupted means that the import or rollback was interrupted. It goes on when the same
// command is run again.
var ErrInterrupted = errors.New("interrupted: run the same command again to go on")

// show prints the plan.
func (r *run) show(ctx context.Context) error {
	pl, err := r.read(ctx)
	if err != nil {
		return err
	}
	journals, err := r.journals(ctx)
	if err != nil {
		return err
	}
	if len(journals) > 0 {
		r.say("An import or a rollback was interrupted: its claims, saved in %s, are not all in this table. Go on with it first.", ipam.Counted(len(journals), "ConfigMap"))
	}
	return r.print(pl)
}

func (r *run) read(ctx context.Context) (plan, error) {
	st, err := readState(ctx, r.client, r.provider, r.o.Namespace)
	if err != nil {
		return plan{}, err
	}
	return newPlan(r.provider, r.o, st), nil
}

// print prints a plan. It returns an error if the plan has problems.
func (r *run) print(pl plan) error {
	if err := printTable(r.out, pl.rows(r.o.Verbose)); err != nil {
		return err
	}
	if n := pl.problems(); n > 0 {
		return &ProblemsError{Count: n, Subject: "import " + r.provider.name}
	}
	return nil
}

// say prints a message about the work done.
func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintln(r.out, terminal.PrintableLines(fmt.Sprintf(format, args...)))
}

// settle waits for work that the other provider may still be doing.
func (r *run) settle(ctx context.Context) error { return r.wait(ctx, r.o.Settle) }

func (r *run) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-r.o.Clock.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
