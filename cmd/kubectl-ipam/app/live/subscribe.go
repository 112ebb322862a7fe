package live

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const (
	// mostChanges and mostItems bound the queue of a subscriber.
	mostChanges = 1000
	mostItems   = 500_000
)

// Subscription holds the messages for one subscriber: the objects that are known at first, and
// then the changes.
type Subscription struct {
	// Unread, Pools and Waiting hold the messages that are known at first, beside the Blocks.
	Unread  Unread
	Pools   []Pool
	Waiting []Waiting

	live     *Live
	register *register.Register
	records  []*register.Record
	clusters map[ipam.Holder]string
	changes  chan *Change
	// items counts the items that wait in changes. The lock of live guards it.
	items int
}

// Subscribe begins a subscription, which must be ended with Close.
func (l *Live) Subscribe() *Subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	s := &Subscription{
		Unread: l.state.shown.unread, Pools: l.shownPools(),
		Waiting: slices.SortedFunc(maps.Values(l.state.shown.claims), bySince),
		live:    l, register: l.state.shown.register,
		records: l.state.blocks(), clusters: maps.Clone(l.state.clusters),
		changes: make(chan *Change, mostChanges),
	}
	l.subscribers[s] = struct{}{}
	return s
}

// Pools returns the pools that are known now.
func (l *Live) Pools() []Pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	return l.shownPools()
}

// settle publishes the changes, so that the shown messages have all earlier ones. The lock is held.
func (l *Live) settle() {
	l.publishChanges()
	l.rouse() // for the changes that are left for later
}

// shownPools returns the shown pools in address order, as in a register.
func (l *Live) shownPools() []Pool {
	pools := make([]Pool, 0, len(l.state.shown.pools))
	for _, pool := range l.state.shown.register.Pools {
		if shown := l.state.shown.pools[pool.Key]; shown != nil {
			pools = append(pools, shown.Pool)
		}
	}
	return pools
}

func bySince(a, b Waiting) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.ID, b.ID)) }

// Blocks returns the blocks that are known at first, a message at a time, in address order.
func (s *Subscription) Blocks() iter.Seq[[]Block] {
	return func(yield func([]Block) bool) {
		records := s.records
		s.records = nil
		slices.SortFunc(records, register.ByBlock)
		for chunk := range slices.Chunk(records, mostBlocks) {
			blocks := make([]Block, len(chunk))
			for i, record := range chunk {
				blocks[i] = blockMessage(s.register, record, s.clusters[record.Holder])
			}
			if !yield(blocks) {
				return
			}
		}
	}
}

// Changes returns the channel that delivers the changes. It is closed when the subscriber is
// cut off, because too much waits for it.
func (s *Subscription) Changes() <-chan *Change { return s.changes }

// Taken frees the room that a change had in the queue.
func (s *Subscription) Taken(change *Change) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.items -= change.size()
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	delete(s.live.subscribers, s)
}

// offer puts a change into the queue of a subscriber, or cuts it off. The lock is held.
func (l *Live) offer(s *Subscription, change *Change) {
	if s.items += change.size(); s.items <= mostItems || len(s.changes) == 0 {
		select {
		case s.changes <- change:
			return
		default:
		}
	}
	close(s.changes)
	delete(l.subscribers, s)
}
