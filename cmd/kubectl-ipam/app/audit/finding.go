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
	// SeverityWarning: addresses are held for nobody, and others cannot have them; or are used
	// for two things.
	SeverityWarning Severity = "warning"
	// SeverityNote: nothing is wrong. It is so because somebody asked for it, and is for a
	// person to know.
	SeverityNote Severity = "note"
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
	// GatewayHeld: a claim holds the address that is the gateway of a pool by now.
	GatewayHeld Kind = "GatewayHeld"
	// NetworkDiffersFromPool: addresses were handed out with another gateway, name server or
	// the like than their pool has by now.
	NetworkDiffersFromPool Kind = "NetworkDiffersFromPool"
	// BlockInSeveralDomains: the same addresses are handed out in several routing domains.
	BlockInSeveralDomains Kind = "BlockInSeveralDomains"
)

// Severity of the findings of the kind.
func (k Kind) Severity() Severity {
	switch k {
	case RecordWithoutHolder, RetainedPastDue, CoolingPastDue, RecordUnreadable, GatewayHeld:
		return SeverityWarning
	case NetworkDiffersFromPool, BlockInSeveralDomains:
		return SeverityNote
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
	// Field of a pool that it is about, and the value that was handed out; empty where that was
	// not set.
	Field string `json:"field,omitempty"`
	Given string `json:"given,omitempty"`
	// Message says what is wrong, and what to do about it.
	Message string `json:"message"`
	// Releasable says that deleting the object, an IPAllocation, is a person's to do and
	// gives the block back.
	Releasable bool `json:"releasable,omitempty"`
}

// identity is equal for two findings of two snapshots that are about the same.
func (f *Finding) identity() string {
	parts := []string{string(f.Kind), f.Object.String(), f.Object.UID, f.Field, f.Given}
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

// IsNote reports whether nothing is wrong.
func (f *Finding) IsNote() bool { return f.Severity == SeverityNote }

// rank orders errors before warnings, and notes last.
func (s Severity) rank() int {
	return slices.Index([]Severity{SeverityError, SeverityWarning, SeverityNote}, s)
}

// sortFindings orders by severity, then by kind and object.
func sortFindings(findings []Finding) {
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Message, b.Message))
	})
}
