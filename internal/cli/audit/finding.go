package audit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Severity says how bad a finding is.
type Severity string

// How bad a finding is.
const (
	// SeverityError: a promise is broken. A block may be given to two holders, or a holder
	// may lose its block.
	SeverityError Severity = "error"
	// SeverityWarning: addresses are held for nobody, and others cannot have them.
	SeverityWarning Severity = "warning"
)

// Kind says what does not agree.
type Kind string

// What does not agree.
const (
	// BlocksOverlap: two records of one pool or routing domain overlap.
	BlocksOverlap Kind = "BlocksOverlap"
	// BlockOutsidePool: a record's block does not lie in its pool.
	BlockOutsidePool Kind = "BlockOutsidePool"
	// RecordUnreadable: an IPAllocation cannot be understood. No pool hands out its block.
	RecordUnreadable Kind = "RecordUnreadable"
	// RecordWithoutPool: the pool of a record does not exist.
	RecordWithoutPool Kind = "RecordWithoutPool"
	// RecordWithoutHolder: the claim or pool that a record is for does not exist, or does
	// not name the record.
	RecordWithoutHolder Kind = "RecordWithoutHolder"
	// HolderWithoutRecord: a claim, pool or IPAddress has a block that is not recorded, so
	// another one may be given it.
	HolderWithoutRecord Kind = "HolderWithoutRecord"
	// HolderDiffersFromRecord: a claim, pool or IPAddress says something else of its block
	// than its record does.
	HolderDiffersFromRecord Kind = "HolderDiffersFromRecord"
	// RetainedPastDue: a retained block is kept for longer than its retention period.
	RetainedPastDue Kind = "RetainedPastDue"
	// CoolingPastDue: a released block is kept for longer than its reuse delay.
	CoolingPastDue Kind = "CoolingPastDue"
	// AddressWithoutClaim: an IPAddress of Cluster API has no IPAddressClaim.
	AddressWithoutClaim Kind = "AddressWithoutClaim"
	// ClaimWithoutAddress: an IPAddressClaim names an IPAddress that does not exist.
	ClaimWithoutAddress Kind = "ClaimWithoutAddress"
)

// Severity of the findings of the kind.
func (k Kind) Severity() Severity {
	switch k {
	case RecordWithoutHolder, RetainedPastDue, CoolingPastDue, RecordUnreadable:
		return SeverityWarning
	default:
		return SeverityError
	}
}

// Object names what a finding is about.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

func (o Object) String() string {
	return ipam.Holder{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.String()
}

// Finding is one thing that does not agree with another.
type Finding struct {
	Severity Severity `json:"severity"`
	Kind     Kind     `json:"kind"`
	Object   Object   `json:"object"`
	// Other is what the object does not agree with, where that exists.
	Other *Object `json:"other,omitempty"`
	// Block that it is about.
	Block string `json:"block,omitempty"`
	// Message says what is wrong, and what to do about it.
	Message string `json:"message"`
	// Releasable says that deleting the object, an IPAllocation, is a person's to do and
	// gives the block back.
	Releasable bool `json:"releasable,omitempty"`
}

// identity is equal for two findings of two snapshots that are about the same.
func (f *Finding) identity() string {
	parts := []string{string(f.Kind), f.Object.String(), f.Object.UID}
	if f.Other != nil {
		parts = append(parts, f.Other.String(), f.Other.UID)
	}
	return strings.Join(parts, "|")
}

// Both are the findings of a that are in b too.
func Both(a, b []Finding) []Finding {
	known := make(map[string]bool, len(b))
	for i := range b {
		known[b[i].identity()] = true
	}
	var both []Finding
	for i := range a {
		if known[a[i].identity()] {
			both = append(both, a[i])
		}
	}
	return both
}

// sortFindings orders errors before warnings, then by kind and object.
func sortFindings(findings []Finding) {
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Message, b.Message))
	})
}
