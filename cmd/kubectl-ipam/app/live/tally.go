package live

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// tally counts the blocks of one pool as they come and go, with the same result as
// register.Pool.Usage of all of them. A block that comes or goes costs as much as in a
// space.Space.
//
// Two blocks overlap for moments only, while one of them gives way. While any do, each count
// scans all blocks of the pool.
type tally struct {
	records map[string]*register.Record

	cidr     netip.Prefix
	withheld *space.Ranges
	// used holds the withheld and the recorded blocks, recorded only the recorded ones; nil
	// without a CIDR.
	used, recorded *space.Space
	overlap        bool

	held, carved, retained, cooling, drained space.Count
}

func newTally() *tally { return &tally{records: map[string]*register.Record{}} }

// describe takes over the pool's spec, and reports whether it has counted the blocks again.
func (t *tally) describe(pool ipam.Pool) bool {
	if t.cidr == pool.CIDR && sameRanges(t.withheld, pool.Withheld) {
		return false
	}
	t.cidr, t.withheld = pool.CIDR, pool.Withheld
	t.count()
	return true
}

func sameRanges(a, b *space.Ranges) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

// count counts all blocks again.
func (t *tally) count() {
	zero := space.Count{}
	t.held, t.carved, t.retained, t.cooling, t.drained = zero, zero, zero, zero, zero
	t.used, t.recorded, t.overlap = nil, nil, false
	if t.cidr.IsValid() {
		t.used, t.recorded = space.NewWithout(t.cidr, t.withheld), space.New(t.cidr)
	}
	for _, record := range t.records {
		t.use(record)
	}
}

// put takes over a block that is new, or a new state of one.
func (t *tally) put(record *register.Record) {
	if before := t.records[record.UID]; before != nil {
		if before.Block == record.Block && before.Purpose == record.Purpose && before.State == record.State {
			t.records[record.UID] = record
			return
		}
		t.remove(before)
	}
	t.records[record.UID] = record
	t.use(record)
}

// remove removes a block that it has.
func (t *tally) remove(record *register.Record) {
	delete(t.records, record.UID)
	t.sum(record, space.Count.Sub)
	if t.used != nil {
		t.used.Release(record.Block)
		t.recorded.Release(record.Block)
	}
}

func (t *tally) use(record *register.Record) {
	t.sum(record, space.Count.Add)
	if t.used == nil {
		return
	}
	t.overlap = t.overlap || t.recorded.Overlaps(record.Block)
	t.used.Use(record.Block)
	t.recorded.Use(record.Block)
}

// sum adds a block to the counts, or subtracts it from them.
func (t *tally) sum(record *register.Record, do func(space.Count, space.Count) space.Count) {
	size := space.CountOf(record.Block)
	t.drained = do(t.drained, t.withheld.SizeIn(record.Block))
	if record.Purpose == ipam.PurposePool {
		t.carved = do(t.carved, size)
		return
	}
	t.held = do(t.held, size)
	switch record.State {
	case ipam.StateRetained:
		t.retained = do(t.retained, size)
	case ipam.StateCooling:
		t.cooling = do(t.cooling, size)
	}
}

// usage returns the usage that results from the blocks, without the usage below the pool.
func (t *tally) usage() register.Usage {
	if t.overlap { // the space that one of them left may be used by another
		t.count()
	}
	u := register.Usage{
		Held: t.held, Carved: t.carved, Drained: t.drained, Retained: t.retained, Cooling: t.cooling,
		Blocks: len(t.records), LargestFree: ipam.NoLength,
	}
	if t.used == nil {
		return u
	}
	u.Total, u.Free = t.used.Total(), t.used.Free()
	u.Withheld = t.used.Used().Sub(t.recorded.Used())
	if bits, ok := t.used.LargestFree(); ok {
		u.LargestFree = bits
	}
	return u
}
