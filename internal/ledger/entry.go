package ledger

import (
	"iter"
	"net/netip"
	"strings"
	"time"
	"unique"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// entry is a record as the view keeps it, or a hold of this process's own that
// has no record yet. There may be a hundred thousand: what many of them say alike is
// kept once.
type entry struct {
	alike                                             unique.Handle[alike]
	name, uid, version, holderName, holderUID, sticky string
	block                                             netip.Prefix
	releaseAfter                                      time.Time
	adopted, terminating, poolUnknown                 bool

	// leaving records are about to be released.
	leaving bool
	// claimed records are named by a live claim; wasClaimed ones are or were.
	claimed, wasClaimed bool
	// watched records were made while the view and all claims were known.
	watched bool
	// confirmed records had no rival in the view at some moment, while their pool was
	// open: of two records that overlap the other one gives way.
	confirmed bool
	// hold is nil for a record.
	hold *Hold
	// next has the very same block in the same book.
	next *entry
	// nextIn are the next entries of the indexes.
	nextIn [indexes]*entry
}

// alike is what many records say alike.
type alike struct {
	namespace               string
	pool                    ipam.PoolKey
	class                   string
	holderGroup, holderKind string
	holderNamespace         string
	purpose                 ipam.Purpose
	reclaim                 ipam.Reclaim
	state                   ipam.State
	project, requestedBy    string
	gateway                 netip.Addr
}

func newEntry(r ipam.Record) *entry {
	e := &entry{}
	e.set(r)
	return e
}

// set has the entry state the record.
func (e *entry) set(r ipam.Record) {
	e.alike = unique.Make(alike{
		namespace: r.Name.Namespace, pool: r.Pool, class: r.Class,
		holderGroup: r.Holder.Group, holderKind: r.Holder.Kind, holderNamespace: r.Holder.Namespace,
		purpose: r.Purpose, reclaim: r.Reclaim, state: r.State,
		project: r.Project, requestedBy: r.RequestedBy, gateway: r.Gateway,
	})
	e.name, e.uid, e.version = r.Name.Name, r.UID, r.Version
	e.holderName, e.holderUID, e.sticky = r.Holder.Name, r.HolderUID, r.Sticky
	if strings.HasPrefix(e.name, e.holderName) { // as the names that the operator gives
		e.holderName = e.name[:len(e.holderName)]
	}
	e.block, e.releaseAfter = r.Block, r.ReleaseAfter
	e.adopted, e.terminating, e.poolUnknown = r.Adopted, r.Terminating, r.PoolUnknown
}

// record is what the entry states.
func (e *entry) record() ipam.Record {
	a := e.alike.Value()
	return ipam.Record{
		Name: e.key(), UID: e.uid, Version: e.version,
		Block: e.block, Pool: a.pool, Class: a.class,
		Holder: e.holder(), HolderUID: e.holderUID,
		Purpose: a.purpose, Reclaim: a.reclaim, State: a.state, ReleaseAfter: e.releaseAfter,
		Project: a.project, RequestedBy: a.requestedBy, Gateway: a.gateway, Sticky: e.sticky, Adopted: e.adopted, Terminating: e.terminating, PoolUnknown: e.poolUnknown,
	}
}

// key is the record's name.
func (e *entry) key() ipam.Name {
	return ipam.Name{Namespace: e.alike.Value().namespace, Name: e.name}
}

func (e *entry) pool() ipam.PoolKey { return e.alike.Value().pool }

func (e *entry) state() ipam.State { return e.alike.Value().state }

func (e *entry) holder() ipam.Holder {
	a := e.alike.Value()
	return ipam.Holder{Group: a.holderGroup, Kind: a.holderKind, Namespace: a.holderNamespace, Name: e.holderName}
}

func (e *entry) purpose() ipam.Purpose { return e.alike.Value().purpose }

// stickyKey is the namespace's key by which the block is given again.
func (e *entry) stickyKey() ipam.Name {
	return ipam.Name{Namespace: e.alike.Value().namespace, Name: e.sticky}
}

// chain is e and all that follow it in their book.
func (e *entry) chain() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for ; e != nil; e = e.next {
			if !yield(e) {
				return
			}
		}
	}
}

func (e *entry) without(gone *entry) *entry {
	if e == nil {
		return nil
	}
	if e == gone {
		return e.next
	}
	e.next = e.next.without(gone)
	return e
}
