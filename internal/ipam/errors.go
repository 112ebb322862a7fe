package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// ErrNotSynced means that the first list of records is not complete. Until it is complete,
// nothing is handed out; ask again soon.
var ErrNotSynced = errors.New("the register of allocations is still being loaded")

// ErrUnconfirmed means that a record was not seen in time, so that it is unknown whether its
// block is ours. The record has been given up; ask again soon.
var ErrUnconfirmed = errors.New("the allocation could not be confirmed in time")

// ErrCrowded means that more records are being created than the API server can store. Nothing
// was recorded; ask again soon.
var ErrCrowded = errors.New("too many concurrent allocations")

// ErrEarlierAttempt means that the requested block is recorded for an earlier attempt to create
// the same object. That attempt has failed: the record is being released, or collected as an
// orphan; ask again soon.
var ErrEarlierAttempt = errors.New("an earlier attempt to create it has not been cleaned up yet")

// ErrTooManyUnclaimed means that a namespace has reached its limit of unclaimed records, in all
// or in one pool. Try again when they are claimed or collected.
var ErrTooManyUnclaimed = errors.New("too many unclaimed allocations")

// ErrPoolInUse means that a pool's own record cannot be released, because blocks of
// the pool are recorded.
var ErrPoolInUse = errors.New("the pool is in use")

// Unserved represents an error that gives the reason why a request is not served, for the
// status of the object that asks.
type Unserved interface {
	error
	// Condition returns the reason and the message of a condition. The message stays the same
	// while the reason holds.
	Condition(w Wording) (reason, message string)
}

// Wording holds the texts with which the status of one kind of object explains why it is not
// served.
type Wording struct {
	// Policy, Exhausted, Taken and Limit are the condition reasons that the API documents.
	Policy, Exhausted, Taken, Limit string
	// Provisioner is the reason in place of Exhausted if the class has a provisioner, which may
	// make another pool.
	Provisioner string
	// IfExhausted states what comes next if nothing is free, IfTaken what to do about a block
	// that another holder has.
	IfExhausted, IfTaken string
}

// IsTransient reports whether the error passes by itself: ask again soon.
func IsTransient(err error) bool {
	return errors.Is(err, ErrNotSynced) || errors.Is(err, ErrUnconfirmed) || errors.Is(err, ErrCrowded) || errors.Is(err, ErrEarlierAttempt)
}

// TooManyWaitingError means that a namespace has reached its limit of waiting claims.
type TooManyWaitingError struct {
	Namespace string
	Limit     int
}

func (e *TooManyWaitingError) Error() string {
	return fmt.Sprintf("namespace %s has reached its limit of %d waiting claims: delete some, or wait until they are bound", e.Namespace, e.Limit)
}

// ParkedError means that a waiting claim cannot be served for another reason than a lack of
// room. Other claims are served before it until that reason has gone.
type ParkedError struct {
	// Reason is the condition reason that the API documents.
	Reason string
	// Message is for the user, and complete.
	Message string
	// Awaits is the change that the claim needs, if it is known: then the claim is tried again
	// at once.
	Awaits Awaited
	// Pools holds the decision about each pool when the claim was parked, if the pools are the
	// reason.
	Pools []PoolResult
	// Cause is the error of the attempt, if nothing announces when another one would succeed.
	Cause error
}

func (e *ParkedError) Error() string { return e.Message }

// Condition implements Unserved.
func (e *ParkedError) Condition(Wording) (reason, message string) { return e.Reason, e.Message }

// Awaited names the change that lets a claim be served: a project holds less of a pool, or of a
// class.
type Awaited struct {
	Project string
	Pool    PoolKey
	Class   string
}

// IsNoRoom reports whether no block can be handed out now, but one may be released: no block is
// free, another holder has the requested block, or the project has reached its limit.
func IsNoRoom(err error) bool {
	var exhausted *ExhaustedError
	var taken *TakenError
	var limit *LimitError
	return errors.As(err, &exhausted) || errors.As(err, &taken) || errors.As(err, &limit)
}

// MissingError means that something a request needs is missing or not ready, and may turn up:
// the request can wait.
type MissingError struct {
	// Reason is the condition reason that the API documents.
	Reason string
	// Message is for the user, and complete.
	Message string
	// Verdict is the verdict on the pool that the error is about; empty if the error is about
	// no pool.
	Verdict Verdict
}

func (e *MissingError) Error() string { return e.Message }

// Condition implements Unserved.
func (e *MissingError) Condition(Wording) (reason, message string) { return e.Reason, e.Message }

// FieldSticky is the field in which an IPAddressClaim states the key by which its block is
// kept.
const FieldSticky = "metadata.annotations[ipam.cadastre.dev/sticky]"

// PolicyError means that a request asks for something that is not allowed.
type PolicyError struct {
	// Field as in spec.prefixLength.
	Field string
	// Value of the field; nil if the field has no value, and must have one.
	Value any
	// Remedy states the mistake and a correct request.
	Remedy string
	// Verdict is the verdict on the pool that the error is about; empty if the error is about
	// no pool.
	Verdict Verdict
}

func (e *PolicyError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("%s: Required value: %s", e.Field, e.Remedy) // as field.Required
	}
	return fmt.Sprintf("%s: %v: %s", e.Field, e.Value, e.Remedy)
}

// Condition implements Unserved.
func (e *PolicyError) Condition(w Wording) (reason, message string) { return w.Policy, e.Error() }

// ExhaustedError means that no pool has a free block of the length.
type ExhaustedError struct {
	// OutOfTurn reports whether a pool has room, which is for the waiters.
	OutOfTurn bool
	// Pools that were tried, by name.
	Pools []PoolKey
	// Bits is the requested length.
	Bits int
	// Largest is the length of the largest free block, or NoLength if nothing is free.
	Largest int
	// OnExhaustion of the class, or of the pools.
	OnExhaustion OnExhaustion
	// Provisioner of the class, which may make another pool; empty if there is none.
	Provisioner string
	// Limits are the limits that the project has reached in other pools, which may have room.
	Limits []*LimitError
}

func (e *ExhaustedError) Error() string {
	if e.Largest == NoLength {
		return e.Shortage() + ": nothing is free"
	}
	return fmt.Sprintf("%s: the largest free block is a /%d", e.Shortage(), e.Largest)
}

// Condition implements Unserved.
func (e *ExhaustedError) Condition(w Wording) (reason, message string) {
	if e.Provisioner != "" {
		return w.Provisioner, e.Shortage() + ": " + w.IfExhausted + ", or the provisioner " + e.Provisioner + " has made another pool"
	}
	return w.Exhausted, e.Shortage() + ": " + w.IfExhausted
}

// MaxListed is the largest number of pools in a message. A condition has room for 32768 characters,
// and a class may be backed by any number of pools.
const MaxListed = 10

// Shortage returns the length that is not free, and the pools without it. It stays the same
// while the request waits.
func (e *ExhaustedError) Shortage() string {
	parts := []string{fmt.Sprintf("no free /%d in %s", e.Bits, FormatList(e.Pools, MaxListed, PoolKey.String, ", "))}
	if len(e.Limits) > 0 {
		parts = append(parts, FormatList(e.Limits, MaxListed, (*LimitError).reached, "; "))
	}
	return strings.Join(parts, "; ")
}

// UnclaimedError represents ErrTooManyUnclaimed of one namespace, or else of one project.
type UnclaimedError struct {
	Namespace, Project string
	// Most is the limit over all pools; 0 if the share of Pool is reached instead.
	Most int
	Pool PoolKey
}

func (e *UnclaimedError) Error() string {
	owner := "namespace " + e.Namespace
	if e.Namespace == "" {
		owner = "project " + e.Project
	}
	if e.Most > 0 {
		return fmt.Sprintf("%s has reached its limit of %d unclaimed allocations: wait until earlier creates finish", owner, e.Most)
	}
	return fmt.Sprintf("%s has reached its share of unclaimed allocations in %s: wait until earlier creates finish", owner, e.Pool)
}

// Is reports whether the error is ErrTooManyUnclaimed.
func (e *UnclaimedError) Is(target error) bool { return target == ErrTooManyUnclaimed }

// LimitError means that a project would hold more than one project can.
type LimitError struct {
	// Subject is the pool or the class that has the limit, with its kind.
	Subject string
	Project string
	// Unit is block or address.
	Unit string
	// Most is the limit, and Held the amount that the project holds without the request.
	Most, Held space.Count
	// Awaits is the needed change: the project holds less.
	Awaits Awaited
}

func (e *LimitError) Error() string {
	verb := "are"
	if e.Held == space.CountOf64(1) {
		verb = "is"
	}
	return fmt.Sprintf("exceeded limit: %s allows project %s %s, %s %s held: release some, or ask for a higher limit",
		e.Subject, e.Project, e.limitText(), e.Held, verb)
}

// Stable returns the message without the held amount, which changes while a claim waits.
func (e *LimitError) Stable() string {
	return e.reached() + ": release some, or ask for a higher limit"
}

// Condition implements Unserved.
func (e *LimitError) Condition(w Wording) (reason, message string) { return w.Limit, e.Stable() }

// reached returns the limit, and that the project holds that much.
func (e *LimitError) reached() string {
	return fmt.Sprintf("%s allows project %s %s, which it holds", e.Subject, e.Project, e.limitText())
}

// limitText returns the limit with its unit.
func (e *LimitError) limitText() string {
	switch {
	case e.Most == space.CountOf64(1):
		return "1 " + e.Unit
	case e.Unit == "address":
		return e.Most.String() + " addresses"
	}
	return e.Most.String() + " " + e.Unit + "s"
}

// TakenError means that the requested block cannot be handed out.
type TakenError struct {
	Block netip.Prefix
	Pool  PoolKey
	// Holder of the block that overlaps; zero if it has no holder because the block is
	// withheld.
	Holder Holder
	// Overlap is the block that is in the way.
	Overlap netip.Prefix
	// redacted reports whether holder and overlap are withheld from the requester.
	redacted bool
}

// Redacted returns a copy of the error without the holder and the overlapping block. If the
// block has a holder, the copy states only that the block is in use; withheld blocks are no
// secret.
func (e *TakenError) Redacted() *TakenError {
	return &TakenError{Block: e.Block, Pool: e.Pool, redacted: e.Holder != Holder{}}
}

// Condition implements Unserved.
func (e *TakenError) Condition(w Wording) (reason, message string) {
	if e.IsWithheld() {
		return w.Taken, e.Error() + ": ask for another block"
	}
	return w.Taken, e.Error() + ": " + w.IfTaken
}

// IsWithheld reports whether the block has no holder and is never handed out: waiting for it is
// in vain.
func (e *TakenError) IsWithheld() bool { return e.Holder == (Holder{}) && !e.redacted }

func (e *TakenError) Error() string {
	if e.redacted {
		return fmt.Sprintf("%s is in use in %s", e.Block, e.Pool)
	}
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("%s is not handed out by %s: it is reserved, a gateway or edge address, or outside its ranges", e.Block, e.Pool)
	}
	return fmt.Sprintf("%s conflicts with %s of %s, held by %s", e.Block, e.Overlap, e.Pool, e.Holder)
}
