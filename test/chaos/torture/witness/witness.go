// Package witness judges a register of blocks from the objects stored in etcd alone. It shares no
// code with the operator, and asks it nothing.
//
// It is notified of every change of a claim, a record (IPAllocation) and a pool, in the order of
// etcd's revisions, and so knows at each revision exactly which objects exist.
//
// # Holders
//
// A claim holds its block from the revision on at which it is stored with spec.cidr and
// spec.allocationName, until it is gone; that it is being deleted changes nothing. A pool holds its
// CIDR, in its parent or in its routing domain, from the revision on at which it is stored with a
// CIDR that it did not ask for itself, or else at which it is first reported as ready, until it is
// gone.
//
// One of Cluster API's IPAddressClaims holds the address of the IPAddress of its name, from the
// revision on at which its status names that, until it is gone. An IPAddress that no claim names in
// its status has no holder; but when all is quiet, it is recorded for no other holder either, or
// its claim reports that it is in conflict.
//
// A pool that occupies its ranges holds the blocks of each of its own records, from the revision on at
// which it first reports that record, until the record is gone.
//
// A Cluster of Cluster API holds the blocks that its annotation networks-filled lists by IPClaims, from
// the revision on at which it is stored, until it is gone.
//
// A holder is dispossessed when the operator's finalizer is removed from its record by force
// (Force): a person has released the block, and answers for it. From then on it holds its block
// only while it has a record that no other record overlaps.
//
// # Violations at once
//
//   - two holders in one routing domain overlap, in any pools, unless one of them
//     is a pool that the other lies in (see lineage);
//   - a holder has no record, or one with other contents (unless it is
//     dispossessed);
//   - a block of a pool of ranges lies outside of what the pool's own records cover, of
//     those that were stored before all that overlap them;
//   - a Cluster is stored, and a block of it has no claim of the Cluster that holds it;
//   - a record changes its block, pool or holder; a claim or pool its block;
//   - an answer differs from the stored object (see Answered), or an object that was
//     refused, or only rehearsed, is stored;
//   - a claim that waits is overtaken, if there is not room for both and many
//     others, and no fault excuses it.
//
// Unsettled reports the violations of the conditions that must hold only when all is quiet.
package witness

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Violation represents a promise that was broken.
type Violation struct {
	Revision int64     `json:"revision"`
	Seen     time.Time `json:"seen"`
	What     string    `json:"what"`
	// Objects has the objects concerned, as they were stored at that time.
	Objects []string `json:"objects"`
}

// Witness holds the stored objects. Its methods may be called concurrently.
type Witness struct {
	// excused reports whether a fault was active at any time from then on.
	excused func(since time.Time) bool

	mu       sync.Mutex
	revision int64
	claims   map[string]*holding // by namespace/name
	pools    map[string]*holding // by /name
	records  map[string]*Object  // by namespace/name
	// addressClaims and addresses are Cluster API's, by namespace/name; byHolder
	// are the records of the former, by their names and UIDs.
	addressClaims map[string]*holding
	addresses     map[string]*Object
	byHolder      map[string]map[string]*Object
	clusters      map[string]*Object // by namespace/name
	// held are the spaces of the routing domains, recorded those of the pools, by place.
	held, recorded map[string]*space
	// homes are the places of the pools that were ever seen, by name.
	homes map[string]string
	// ranged has the names of the pools of ranges, owns the own records of all pools, by their names and UIDs.
	ranged       map[string]bool
	owns         map[string]map[string]*Object
	byUID        map[string]*holding
	forced       map[string]bool // UIDs of records that were released by hand
	dispossessed map[*holding]bool
	waiting      map[string]map[string]*holding
	attempts     attempts
	lives        lives
	violations   []Violation
	figures      Figures
}

// holding represents a claim of either kind or a pool, and its block.
type holding struct {
	*Object
	kind string
	// place is the pool or routing domain in which the block lies; empty while
	// nothing is held.
	place string
	// domain is the routing domain of the place, and pools has the pools in which it lies.
	domain string
	pools  []string
	// holds means that the block counts; dispossessed that a person released it by hand.
	holds, dispossessed bool
	// reportedAt holds the time at which the claim was first reported as waiting.
	reportedAt time.Time
	life       *Life
}

// Figures holds the counts of events.
type Figures struct {
	Revisions int64 `json:"revisions"`
	// Allocations are holders that got a block, Releases holders that went.
	Allocations     int `json:"allocations"`
	ClaimGrants     int `json:"claimGrants"`
	PoolAllocations int `json:"poolAllocations"`
	// AddressGrants are to IPAddressClaims.
	AddressGrants int `json:"addressGrants"`
	Releases      int `json:"releases"`
	// Clusters were stored, and Moved of them when they came back from a move.
	Clusters int `json:"clusters"`
	Moved    int `json:"clustersMoved"`
	// RangedPools were made that occupy their ranges, Edits of these stored; RangeConflicts are how often one
	// of them began to report that another holder has a part of them.
	RangedPools    int `json:"rangedPools"`
	Edits          int `json:"editsOfRanges"`
	RangeConflicts int `json:"editsInConflict"`
	// Served is the number of the allocations that had waited.
	Served    int `json:"servedAfterWaiting"`
	Overtaken int `json:"overtakenDuringFaults"`
	// Records were made; Orphans of them never had a holder, and of these
	// GivenUp were gone within a second, Collected later.
	Records   int `json:"records"`
	Orphans   int `json:"orphansMade"`
	GivenUp   int `json:"orphansGivenUpAtOnce"`
	Collected int `json:"orphansCollected"`
	// Released by hand.
	Forced   int `json:"releasedByForce"`
	Restored int `json:"recordedAgainAfterForce"`
}

// New returns a witness that has seen nothing. excused reports whether a fault was active at any
// time since then.
func New(excused func(since time.Time) bool) *Witness {
	return &Witness{
		excused: excused,
		claims:  map[string]*holding{}, pools: map[string]*holding{}, records: map[string]*Object{},
		held: map[string]*space{}, recorded: map[string]*space{}, homes: map[string]string{},
		ranged: map[string]bool{}, owns: map[string]map[string]*Object{},
		addressClaims: map[string]*holding{}, addresses: map[string]*Object{}, byHolder: map[string]map[string]*Object{},
		clusters: map[string]*Object{},
		byUID:    map[string]*holding{}, forced: map[string]bool{}, dispossessed: map[*holding]bool{},
		waiting:  map[string]map[string]*holding{},
		attempts: attempts{answered: map[string]Answer{}, stored: map[string]stored{}, never: map[string]string{}, rehearsed: map[string]bool{}},
		lives:    lives{taken: map[string]time.Time{}, records: map[string]*Object{}, madeAt: map[string]time.Time{}},
	}
}

// Take takes a change in.
func (w *Witness) Take(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision = e.Revision
	w.figures.Revisions++
	switch e.Kind {
	case Records:
		w.takeRecord(e)
	case Claims:
		w.takeHolder(e, w.claims)
	case Pools:
		w.takeHolder(e, w.pools)
	case AddressClaims:
		w.takeAddressClaim(e)
	case Addresses:
		w.takeAddress(e)
	case Clusters:
		w.takeCluster(e)
	}
	w.judgeAnswers(e)
	return nil
}

// Violations returns the violations that were found so far.
func (w *Witness) Violations() []Violation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Violation(nil), w.violations...)
}

// Figures returns the counts so far.
func (w *Witness) Figures() Figures {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.figures
}

// Revision returns the last one that was taken in.
func (w *Witness) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// Force records, before it is done, that a record's finalizer is removed by hand.
func (w *Witness) Force(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forced[uid] = true
}

// Violate records a violation that was found elsewhere, with the objects that it is about.
func (w *Witness) Violate(what string, objects ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, Violation{Revision: w.revision, Seen: time.Now(), What: what, Objects: objects})
}

func (w *Witness) violated(e Event, what string, objects ...*Object) {
	if e.Seen.IsZero() {
		e.Seen = time.Now()
	}
	v := Violation{Revision: e.Revision, Seen: e.Seen, What: what}
	for _, o := range objects {
		if o != nil {
			v.Objects = append(v.Objects, string(o.Raw))
		}
	}
	w.violations = append(w.violations, v)
}

func spaceOf(spaces map[string]*space, place string) *space {
	if spaces[place] == nil {
		spaces[place] = &space{at: map[netip.Prefix]map[string]bool{}, below: map[netip.Prefix]int{}}
	}
	return spaces[place]
}

// placeOf returns the place in which a record's block lies.
func placeOf(record *Object) string {
	if name := record.Spec.PoolRef.Name; name != "" {
		return "pool " + name
	}
	return "domain " + record.Spec.RoutingDomain
}

func describe(h *holding) string { return fmt.Sprintf("%s %s", h.kind, h.Object) }
