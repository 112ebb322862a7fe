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

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// run represents one run of a command.
type run struct {
	client client.Client
	o      Options
	// plan holds the decisions about the objects as they were read last.
	plan plan
}

// Metal3 imports the pools of Metal3's IP address manager, which become LocalIPPools. It prints the
// plan, and acts if the options ask for it.
//
// Errors: *ProblemsError; ErrInterrupted if the context ended; and those of the API.
func Metal3(ctx context.Context, c client.Client, o Options) error {
	r := &run{client: c, o: o.withDefaults()}
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

// inOrder calls steps, up to the first one that returns an error.
func inOrder(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// show prints the plan.
func (r *run) show(ctx context.Context) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	journals, err := r.journals(ctx)
	if err != nil {
		return err
	}
	if len(journals) > 0 {
		r.say("An import or a rollback was interrupted: its claims, saved in %s, are not all in this table. Go on with it first.", ipam.FormatCount(len(journals), "ConfigMap"))
	}
	return r.print(ctx)
}

// read makes the plan.
func (r *run) read(ctx context.Context) error {
	st, err := r.readState(ctx)
	if err != nil {
		return err
	}
	r.plan = newPlan(r.o, st)
	return r.tryPools(ctx)
}

// tryPools lists why the operator would refuse pools that occupy their ranges: it may not serve them.
func (r *run) tryPools(ctx context.Context) error {
	for _, pp := range r.plan.pools {
		if pp.exists || len(pp.problems) > 0 || pp.pool.Spec.Occupies != v1alpha1.OccupiesRanges {
			continue
		}
		err := r.client.Create(ctx, pp.pool.DeepCopy(), client.DryRunAll)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			pp.refuse("%s", command.Explained(err))
		}
	}
	return nil
}

// print prints the plan. It returns an error if the plan has problems.
func (r *run) print(context.Context) error {
	return printPlan(r.o.Out, r.plan.rows(r.o.Verbose), &ProblemsError{Count: r.plan.problems(), Subject: "import " + importMetal3})
}

// printPlan prints the table of a plan. It returns the error if that counts problems.
func printPlan(out io.Writer, rows []row, problems *ProblemsError) error {
	if err := printTable(out, rows); err != nil || problems.Count == 0 {
		return err
	}
	return problems
}

// say prints a message about the work done.
func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintln(r.o.Out, terminal.PrintableLines(fmt.Sprintf(format, args...)))
}

// settle waits for work that Metal3's provider may still be doing.
func (r *run) settle(ctx context.Context) error { return waitFor(ctx, r.o.Clock, r.o.Settle) }

func waitFor(ctx context.Context, c clock.Clock, d time.Duration) error {
	select {
	case <-c.After(d):
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

// Options holds the scope and the settings of an import. Their defaults stand in withDefaults.
type Options struct {
	Action Action
	// Namespace limits an import from Metal3 to the pools of a namespace; empty: those of all
	// namespaces. The claims of a file are made in it.
	Namespace string
	// Pools names the pools to import from Metal3. Empty: all.
	Pools []string
	// Suffix is appended to the names of Metal3's pools.
	Suffix string
	// Verbose lists every claim; otherwise those that need no attention are counted.
	Verbose bool
	// SkipProblems leaves out the parts of a file that cannot be imported.
	SkipProblems bool
	// Reserve puts the holdings of a file into reserved ranges, instead of making IPClaims.
	Reserve bool
	// Settle bounds work that Metal3's provider may still be doing, once its pools are closed.
	Settle time.Duration
	// Timeout bounds the time in which the operator neither records nor releases anything.
	Timeout time.Duration
	Clock   clock.Clock
	// Out receives the plan, and messages about the work done.
	Out io.Writer
}

// The defaults of options.
const (
	// defaultSuffix is not empty: Metal3's provider would serve a pool of the same name.
	defaultSuffix  = "-cadastre"
	defaultSettle  = 5 * time.Second
	defaultTimeout = 4 * time.Minute
)

func (o Options) withDefaults() Options {
	o.Suffix = cmp.Or(o.Suffix, defaultSuffix)
	o.Settle = cmp.Or(o.Settle, defaultSettle)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// takes reports whether a pool is to be imported.
func (o Options) takes(namespace, name string) bool {
	return (o.Namespace == "" || o.Namespace == namespace) && (len(o.Pools) == 0 || slices.Contains(o.Pools, name))
}

// ProblemsError means that objects cannot be imported as they are, for reasons in the printed plan.
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

// row represents a line of a plan: an object, its replacement, and a reason or remark.
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

// state holds the objects that were read from the cluster.
type state struct {
	// sources holds Metal3's pools.
	sources []*unstructured.Unstructured
	// pools holds our LocalIPPools.
	pools []*v1alpha1.LocalIPPool
	// claims and addresses hold Cluster API's objects, of all providers.
	claims, addresses []*unstructured.Unstructured
	// ownAddresses holds the addresses of Metal3's own claims.
	ownAddresses []*unstructured.Unstructured
	// clusters holds the Clusters, by namespace and name.
	clusters map[client.ObjectKey]*unstructured.Unstructured
}

const clusterGroup = "cluster.x-k8s.io"

// readState reads all objects that a plan is made of: those of the namespace of the options, or
// of all namespaces if it is empty.
func (r *run) readState(ctx context.Context) (st state, err error) {
	if st.sources, err = r.listServed(ctx, metal3Kind("IPPool"), "is Metal3's provider installed in this cluster?"); err != nil {
		return st, err
	}
	if st.claims, st.addresses, err = r.readAddresses(ctx); err != nil {
		return st, err
	}
	if st.ownAddresses, _, err = r.list(ctx, metal3Kind("IPAddress")); err != nil {
		return st, err
	}
	clusters, _, err := r.list(ctx, schema.GroupVersionKind{Group: clusterGroup, Version: addressVersion, Kind: "Cluster"})
	if err != nil {
		return st, err
	}
	st.clusters = map[client.ObjectKey]*unstructured.Unstructured{}
	for _, cluster := range clusters {
		st.clusters[keyOf(cluster)] = cluster
	}
	locals := &v1alpha1.LocalIPPoolList{}
	if err := r.client.List(ctx, locals, client.InNamespace(r.o.Namespace)); err != nil {
		return st, fmt.Errorf("listing LocalIPPools: %w", err)
	}
	for i := range locals.Items {
		st.pools = append(st.pools, &locals.Items[i])
	}
	return st, nil
}

// readAddresses reads claims and IPAddresses.
func (r *run) readAddresses(ctx context.Context) (claims, addresses []*unstructured.Unstructured, err error) {
	const remedy = "Cadastre takes Cluster API 1.11 or later: upgrade it first"
	if claims, err = r.listServed(ctx, addressKind(kindClaim), remedy); err == nil {
		addresses, err = r.listServed(ctx, addressKind(kindAddress), remedy)
	}
	return claims, addresses, err
}

// listServed lists the objects of a kind that the API server must serve.
func (r *run) listServed(ctx context.Context, kind schema.GroupVersionKind, remedy string) ([]*unstructured.Unstructured, error) {
	objects, served, err := r.list(ctx, kind)
	if err == nil && !served {
		err = fmt.Errorf("the API server does not serve %s.%s: %s", kind.Kind, kind.GroupVersion(), remedy)
	}
	return objects, err
}

func addressKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: addressGroup, Version: addressVersion, Kind: kind}
}

// list lists the objects of a kind, in the namespace if there is one. The kind may not be served.
func (r *run) list(ctx context.Context, kind schema.GroupVersionKind) (objects []*unstructured.Unstructured, served bool, err error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = r.client.List(ctx, all, client.InNamespace(r.o.Namespace))
	switch {
	case meta.IsNoMatchError(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("listing all %s of %s: %w", ipam.Plural(kind.Kind), kind.Group, err)
	}
	for i := range all.Items {
		objects = append(objects, &all.Items[i])
	}
	return objects, true, nil
}
