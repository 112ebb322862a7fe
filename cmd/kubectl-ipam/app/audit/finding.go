package audit

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Severity represents the severity of a finding.
type Severity string

// The severities of findings.
const (
	// SeverityError: a promise is broken. A block may be given to two holders, or a holder
	// may lose its block.
	SeverityError Severity = "error"
	// SeverityWarning: addresses are held without a holder, and others cannot have them; or they
	// are used for two things.
	SeverityWarning Severity = "warning"
	// SeverityNote: nothing is wrong. The state was requested, and the note informs a person.
	SeverityNote Severity = "note"
)

// Kind represents the kind of a disagreement.
type Kind string

// The kinds of disagreements.
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
	// HolderDiffersFromRecord: a claim, pool or IPAddress differs from its record about its
	// block.
	HolderDiffersFromRecord Kind = "HolderDiffersFromRecord"
	// RetainedPastDue: a retained block is kept for longer than its retention period.
	RetainedPastDue Kind = "RetainedPastDue"
	// CoolingPastDue: a released block is kept for longer than its reuse delay.
	CoolingPastDue Kind = "CoolingPastDue"
	// AddressWithoutClaim: an IPAddress of Cluster API has no IPAddressClaim.
	AddressWithoutClaim Kind = "AddressWithoutClaim"
	// ClaimWithoutAddress: an IPAddressClaim names an IPAddress that does not exist.
	ClaimWithoutAddress Kind = "ClaimWithoutAddress"
	// GatewayHeld: a claim holds the address that is now the gateway of a pool.
	GatewayHeld Kind = "GatewayHeld"
	// NetworkDiffersFromPool: addresses were handed out with another gateway, name server or
	// the like than their pool has now.
	NetworkDiffersFromPool Kind = "NetworkDiffersFromPool"
	// BlockInSeveralDomains: the same addresses are handed out in several routing domains.
	BlockInSeveralDomains Kind = "BlockInSeveralDomains"
)

// Severity returns the severity of the findings of the kind.
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

// Object represents the object that a finding is about.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

func (o Object) String() string {
	return ipam.Holder{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.String()
}

// Finding represents one thing that does not agree with another.
type Finding struct {
	Severity Severity `json:"severity"`
	Kind     Kind     `json:"kind"`
	Object   Object   `json:"object"`
	// Other is the object with which Object does not agree, if that exists.
	Other *Object `json:"other,omitempty"`
	// Block is the block that it is about.
	Block string `json:"block,omitempty"`
	// Field is the field of a pool that it is about, and Given the value that was handed out;
	// empty if that was not set.
	Field string `json:"field,omitempty"`
	Given string `json:"given,omitempty"`
	// Message describes the problem, and the remedy.
	Message string `json:"message"`
	// Releasable reports that a person can delete the object, an IPAllocation, to give the block
	// back.
	Releasable bool `json:"releasable,omitempty"`
}

// identity is equal for findings about the same in two snapshots.
type identity struct {
	kind          Kind
	object, other Object
	field, given  string
}

func (f *Finding) identity() identity {
	return identity{kind: f.Kind, object: f.Object, other: ptr.Deref(f.Other, Object{}), field: f.Field, given: f.Given}
}

// Both returns the findings of a that are in b too.
func Both(a, b []Finding) []Finding {
	found := sets.New[identity]()
	for i := range b {
		found.Insert(b[i].identity())
	}
	var both []Finding
	for i := range a {
		if found.Has(a[i].identity()) {
			both = append(both, a[i])
		}
	}
	return both
}

// IsNote reports whether nothing is wrong.
func (f *Finding) IsNote() bool { return f.Severity == SeverityNote }

// sortFindings puts errors before warnings, and notes last, then orders by kind and object.
func sortFindings(findings []Finding) {
	severities := []Severity{SeverityError, SeverityWarning, SeverityNote}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Message, b.Message))
	})
}
