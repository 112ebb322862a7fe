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
	return fmt.Sprintf("%s of %s: %s", ipam.Counted(e.Count, "problem"), e.Subject, cmp.Or(e.Remedy, "solve what the table says, or leave those pools out"))
}
