package witness

import (
	"net/netip"
	"time"
)

// Life holds the time during which a holder had a block, as the witness saw it.
type Life struct {
	UID, Attempt string
	Holder       string
	// Place is the pool or routing domain. Domain is the routing domain of a claim's
	// pool, empty for a pool's own CIDR.
	Place, Domain string
	Block         netip.Prefix
	// Allocated is when the witness was notified that it is held: it was stored before that.
	// Released likewise, zero if it is still held.
	Allocated, Released time.Time
	// Recorded is when the witness was notified of the record, and Changed when of the holder's
	// last change before its end: they were stored before the allocation and the release.
	Recorded, Changed time.Time
	// Again means that it was held before, by the same holder.
	Again bool
}

// lives holds the history of records and holders.
type lives struct {
	taken   map[string]time.Time // when a record was first named by a holder, by UID
	records map[string]*Object
	madeAt  map[string]time.Time
	all     []*Life
}

func newLives() lives {
	return lives{taken: map[string]time.Time{}, records: map[string]*Object{}, madeAt: map[string]time.Time{}}
}

func (l *lives) made(r *Object, at time.Time) {
	l.records[r.Metadata.UID], l.madeAt[r.Metadata.UID] = r, at
}

func (l *lives) record(uid string) *Object { return l.records[uid] }

func (l *lives) allocated(h *holding, record *Object, at time.Time) {
	var recorded time.Time
	if record != nil {
		recorded = l.madeAt[record.Metadata.UID]
	}
	h.life = &Life{
		Recorded: recorded, Changed: at,
		UID: h.Metadata.UID, Attempt: h.Attempt(), Holder: h.kind + " " + h.key(),
		Place: h.place, Block: h.Block, Allocated: at, Again: h.life != nil,
	}
	if h.kind != Pools {
		h.life.Domain = h.domain
	}
	l.all = append(l.all, h.life)
}

// Lives returns all holdings so far, in the order in which they began.
func (w *Witness) Lives() []Life {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Life, len(w.lives.all))
	for i, l := range w.lives.all {
		all[i] = *l
	}
	return all
}

// countOrphan counts a record that is gone and never had a holder.
func (w *Witness) countOrphan(e Event) {
	uid := e.Before.Metadata.UID
	if _, taken := w.lives.taken[uid]; !taken {
		w.figures.Orphans++
		if e.Seen.Sub(w.lives.madeAt[uid]) < time.Second {
			w.figures.GivenUp++
		} else {
			w.figures.Collected++
		}
	}
	delete(w.lives.taken, uid)
	delete(w.lives.records, uid)
	delete(w.lives.madeAt, uid)
}
