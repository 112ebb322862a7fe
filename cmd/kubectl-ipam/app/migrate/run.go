package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"k8s.io/utils/clock"
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
		r.say("An import or a rollback was interrupted: its claims, saved in %s, are not all in this table. Go on with it first.", ipam.FormatCount(len(journals), "ConfigMap"))
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

// Action states the use of a plan.
type Action int

const (
	// Show prints the plan, and changes nothing.
	Show Action = iota
	// Apply carries the plan out, or goes on with one that was interrupted.
	Apply
	// Rollback undoes Apply, as long as nothing new was claimed.
	Rollback
)

// Options holds the scope and the settings of an import.
type Options struct {
	Action Action
	// Namespace limits an import from another provider to the pools of a namespace;
	// empty: those of all namespaces, and the cluster-scoped ones. Holdings of a CSV file
	// or of NetBox become IPClaims of this namespace.
	Namespace string
	// Pools names the pools to import from another provider. Empty: all.
	Pools []string
	// Suffix is appended to the names of the pools that are made. Default: none for the
	// in-cluster provider, -cadastre for Metal3's, which serves every claim that names a
	// pool of the same name, whatever its API group.
	Suffix *string
	// Verbose lists every claim; otherwise those that need no attention are counted.
	Verbose bool
	// SkipProblems imports all that can be imported from a CSV file or NetBox, and leaves the
	// rest out.
	SkipProblems bool
	// Reserve puts the holdings of a CSV file or of NetBox into the pools' reserved
	// ranges, instead of making IPClaims for them.
	Reserve bool
	// Settle holds the time to wait for work that the other provider may still be doing, once
	// its pools are closed. Default: 5 s.
	Settle time.Duration
	// Timeout bounds the time in which the operator neither records nor releases anything.
	// Default: 4 minutes.
	Timeout time.Duration
	// Workers holds the number of claims that are moved at a time. Default: 8.
	Workers int
	// Clock defaults to the real one.
	Clock clock.Clock
	// Out receives the plan, and messages about the work done.
	Out io.Writer
}

func (o Options) withDefaults() Options {
	o.Settle = cmp.Or(o.Settle, 5*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 4*time.Minute)
	o.Workers = cmp.Or(o.Workers, 8)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// takes reports whether a pool of the namespace, empty for a cluster-scoped one, is to be
// imported.
func (o Options) takes(namespace, name string) bool {
	return (o.Namespace == "" || o.Namespace == namespace) && (len(o.Pools) == 0 || slices.Contains(o.Pools, name))
}

// ProblemsError means that some objects cannot be imported as they are. The printed plan lists
// them, with the reasons.
type ProblemsError struct {
	Count   int
	Subject string
	// Remedy is empty if pools can be left out.
	Remedy string
}

// Error implements error.
func (e *ProblemsError) Error() string {
	return fmt.Sprintf("%s of %s: %s", ipam.FormatCount(e.Count, "problem"), e.Subject, cmp.Or(e.Remedy, "solve the problems in the table, or leave those pools out"))
}

// row represents a line of a plan: an object, the object that it becomes, and a reason or
// remark.
type row struct{ object, becomes, note string }

// printTable prints rows under a heading.
func printTable(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "OBJECT\tBECOMES\tNOTE")
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", terminal.Printable(r.object), terminal.Printable(r.becomes), terminal.Printable(r.note))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the plan: %w", err)
	}
	return nil
}

// cannot marks an object that is not imported.
const cannot = "cannot be mapped"
