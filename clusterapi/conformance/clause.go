package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Level states how strongly a clause binds a provider.
type Level string

const (
	// Must is the level of the clauses that the contract states with "must", or as a step that a
	// provider takes.
	Must Level = "MUST"
	// Should is the level of the clauses that the contract recommends.
	Should Level = "SHOULD"
	// May is the level of the checks beyond the contract.
	May Level = "MAY"
)

// Document is the address of the contract.
const Document = "https://cluster-api.sigs.k8s.io/developer/providers/contracts/ipam"

// The sections of the contract, as its page links them.
const (
	dataTypes = "data-types"
	behavior  = "behaviour"
	provider  = "ipam-provider"
	normal    = "normal-ipaddressclaim"
	deleted   = "deleted-ipaddressclaim"
	move      = "clusterctl-move"
	beyond    = ""
)

// Clause represents a rule of the contract with its check.
type Clause struct {
	// ID is the number of the clause, in the order of the contract, such as C19. The checks beyond
	// the contract begin with B.
	ID string
	// Name is the second part of the name of the subtest.
	Name  string
	Level Level
	// Section is the anchor of the contract's section, and Step the number within it, if it has one.
	Section, Step string
	// Requires states the rule.
	Requires string

	// prerequisite is set if no later clause can be checked when this one fails.
	prerequisite bool
	// definition is set if the clause is about the CRD of the pool, and needs no pool.
	definition bool
	check      func(context.Context, *trial) error
}

// Title returns the name of the subtest, such as C19_owner_reference_to_claim.
func (c Clause) Title() string { return c.ID + "_" + c.Name }

// Link returns the address of the contract's section. It is empty for a check beyond the contract.
func (c Clause) Link() string {
	if c.Section == beyond {
		return ""
	}
	return Document + "#" + c.Section
}

// Clauses returns all clauses in their order.
func Clauses() []Clause {
	return slices.Concat(dataTypeClauses(), claimClauses(), clusterClauses(), addressClauses(), deletionClauses(), moveClauses(), beyondClauses())
}

// Outcome states what a check has found.
type Outcome string

const (
	// Passed means that the provider follows the clause.
	Passed Outcome = "passed"
	// Failed means that it does not, or that the check could not be completed.
	Failed Outcome = "failed"
	// Skipped means that the clause does not apply to the provider or to the pool.
	Skipped Outcome = "skipped"
)

// Result holds the outcome of one clause.
type Result struct {
	Clause  Clause
	Outcome Outcome
	// Reason states why the clause has failed or was skipped.
	Reason string
	// Notes state what was left behind, if the check could not clean up in the usual way.
	Notes []string
}

// skipError represents a clause that does not apply.
type skipError struct{ reason string }

func (e *skipError) Error() string { return e.reason }

func skip(format string, args ...any) error { return &skipError{fmt.Sprintf(format, args...)} }

// Kit checks clauses one after the other. It is not safe for concurrent use.
type Kit struct {
	target Target
	// failed holds the prerequisite that has failed.
	failed *Clause
}

// New returns a kit that checks a provider.
func New(target Target) *Kit { return &Kit{target: target} }

// Check checks one clause, in a namespace of its own, and removes what it has created. After a
// prerequisite has failed, it skips all others.
func (k *Kit) Check(ctx context.Context, c Clause) Result {
	if k.failed != nil {
		return Result{Clause: c, Outcome: Skipped, Reason: fmt.Sprintf("%s failed: %s", k.failed.ID, k.failed.Requires)}
	}
	result := Result{Clause: c, Outcome: Passed}
	notes, err := k.target.try(ctx, c)
	result.Notes = notes
	if err == nil {
		return result
	}
	result.Outcome, result.Reason = Failed, err.Error()
	if inapplicable := new(skipError); errors.As(err, &inapplicable) {
		result.Outcome, result.Reason = Skipped, inapplicable.reason
	} else if c.prerequisite {
		k.failed = &c
	}
	return result
}
