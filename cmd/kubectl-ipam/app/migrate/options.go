package migrate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Action is what is done with a plan.
type Action int

const (
	// Show prints the plan, and changes nothing.
	Show Action = iota
	// Apply carries the plan out, or goes on with one that was interrupted.
	Apply
	// Rollback undoes what Apply did, while nothing new was claimed.
	Rollback
)

// Options say what is imported, and how.
type Options struct {
	Action Action
	// Namespace limits an import from another provider to the pools of a namespace;
	// empty: those of all namespaces, and the cluster-scoped ones. Holdings of a CSV file
	// or of NetBox become IPClaims of this namespace.
	Namespace string
	// Pools are the names of the pools to import from another provider. Empty: all.
	Pools []string
	// Suffix is appended to the names of the pools that are made. Default: none for the
	// in-cluster provider, -cadastre for Metal3's, which serves every claim that names a
	// pool of the same name, whatever its API group.
	Suffix *string
	// Verbose lists every claim; otherwise those that need no attention are counted.
	Verbose bool
	// SkipProblems imports from a CSV file or NetBox what can be imported, and leaves the rest
	// out.
	SkipProblems bool
	// Reserve puts the holdings of a CSV file or of NetBox into the pools' reserved
	// ranges, instead of making IPClaims for them.
	Reserve bool
	// Settle is how long what the other provider may still be doing is waited for, once its
	// pools are closed. Default: 5 s.
	Settle time.Duration
	// Timeout is how long the operator may go on without recording or releasing anything.
	// Default: 4 minutes.
	Timeout time.Duration
	// Workers is how many claims are moved at a time. Default: 8.
	Workers int
	// Clock is the real one by default.
	Clock clock.Clock
	// Out gets the plan, and what was done.
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

// ProblemsError means that something cannot be imported as it is. The plan that was printed
// says what and why.
type ProblemsError struct {
	Count   int
	Subject string
	// Remedy is empty where pools can be left out.
	Remedy string
}

// Error implements error.
func (e *ProblemsError) Error() string {
	return fmt.Sprintf("%s of %s: %s", ipam.Counted(e.Count, "problem"), e.Subject, cmp.Or(e.Remedy, "solve what the table says, or leave those pools out"))
}
