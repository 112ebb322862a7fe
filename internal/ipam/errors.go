package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrNotSynced means that the first list of records is not complete. Nothing is
// handed out before; ask again soon.
var ErrNotSynced = errors.New("the register of allocations is still being loaded")

// ErrUnconfirmed means that a record was not seen in time, so that nobody knows
// whether its block is ours. It has been given up; ask again soon.
var ErrUnconfirmed = errors.New("the allocation could not be confirmed in time")

// ErrCrowded means that more are created at this moment than the API server can
// store. Nothing was recorded; ask again soon.
var ErrCrowded = errors.New("more is being created at this moment than can be recorded")

// ErrTooManyUnbound means that a namespace has reached the bound of records
// that no claim or local pool has taken. Ask again when they have been collected.
var ErrTooManyUnbound = errors.New("too many allocations of this namespace are not taken by a claim or a pool")

// MissingError means that something a request needs is missing or not ready,
// and may turn up: the request can wait.
type MissingError struct {
	// Reason is the condition reason that the API documents.
	Reason string
	// Message is for the user, and complete.
	Message string
}

func (e *MissingError) Error() string { return e.Message }

// PolicyError means that a request asks for what is not allowed.
type PolicyError struct {
	// Field as in spec.prefixLength.
	Field string
	Value any
	// Remedy says what is wrong and what would be right.
	Remedy string
}

func (e *PolicyError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Field, e.Value, e.Remedy) }

// ExhaustedError means that no pool has a free block of the length.
type ExhaustedError struct {
	// Pools that were looked at, in order.
	Pools []PoolKey
	// Bits is the length that was asked for.
	Bits int
	// Largest is the length of the largest free block, NoLength where nothing
	// is free.
	Largest int
	// OnExhaustion of the class, or of the pools.
	OnExhaustion OnExhaustion
}

func (e *ExhaustedError) Error() string {
	if e.Largest == NoLength {
		return e.Shortage() + ": nothing is free"
	}
	return fmt.Sprintf("%s: the largest free block is a /%d", e.Shortage(), e.Largest)
}

// Shortage says what there is none of and where. It stays the same while the
// request waits.
func (e *ExhaustedError) Shortage() string {
	names := make([]string, len(e.Pools))
	for i, pool := range e.Pools {
		names[i] = pool.String()
	}
	return fmt.Sprintf("no free /%d in %s", e.Bits, strings.Join(names, ", "))
}

// TakenError means that the very block that was asked for cannot be had.
type TakenError struct {
	Block netip.Prefix
	Pool  PoolKey
	// Holder of what overlaps the block; zero where nobody does, the block is
	// withheld.
	Holder Holder
	// Overlap is the block that is in the way.
	Overlap netip.Prefix
	// redacted says that holder and overlap are not for whoever asked.
	redacted bool
}

// Redacted says no more than that the block is in use, where it is; what is
// withheld is no secret.
func (e *TakenError) Redacted() *TakenError {
	return &TakenError{Block: e.Block, Pool: e.Pool, redacted: e.Holder != Holder{}}
}

func (e *TakenError) Error() string {
	if e.redacted {
		return fmt.Sprintf("%s is in use in %s", e.Block, e.Pool)
	}
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("%s is not handed out by %s: it is reserved, a gateway or edge address, or outside its ranges", e.Block, e.Pool)
	}
	return fmt.Sprintf("%s overlaps %s in %s, which %s holds", e.Block, e.Overlap, e.Pool, e.Holder)
}
