package allocator

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Waiting is a claim that waits for a block, and its place in the queue: the
// older first, then by name.
type Waiting struct {
	Since time.Time
	// Holder is the claim; Request what it asks for, as far as it is known.
	Holder  ipam.Holder
	Request ipam.Request
}

func (w Waiting) isZero() bool { return w.Holder == (ipam.Holder{}) }

func (w Waiting) before(other Waiting) bool { return compareWaiting(w, other) < 0 }

// comesBack says whether who waits asks for one block alone, and did so before
// the pool was there, or while it was paused: as claims and child pools of a backup
// do. When the pool opens they are served first, for nothing else will do for them;
// those who take any block may wait longer, and take another. Who asks later has
// no such right: it would be a way past those who wait for a full pool.
func (w Waiting) comesBack(pool ipam.Pool) bool {
	return w.Request.Block.IsValid() && (pool.OpenSince.IsZero() || !w.Since.After(pool.OpenSince))
}

// ahead says whether who waits is served by the pool before the other.
func (w Waiting) ahead(other Waiting, pool ipam.Pool) bool {
	if first := w.comesBack(pool); first != other.comesBack(pool) {
		return first
	}
	return w.before(other)
}

// sees says whether a pool is cluster-scoped or of the namespace of who waits.
func (w Waiting) sees(pool ipam.PoolKey) bool {
	return pool.Namespace == "" || pool.Namespace == w.Request.Namespace()
}

// mayTake says whether a pool of those that it waits for is one that it sees, with the
// labels that it asks for.
func (w Waiting) mayTake(pool ipam.Pool) bool {
	return w.sees(pool.Key) && (w.Request.Selects == nil || w.Request.Selects(pool.Labels))
}

func compareWaiting(a, b Waiting) int {
	return cmp.Or(
		a.Since.Compare(b.Since),
		cmp.Compare(a.Holder.Namespace, b.Holder.Namespace),
		cmp.Compare(a.Holder.Name, b.Holder.Name),
		cmp.Compare(a.Holder.Kind, b.Holder.Kind),
	)
}

// target is what claims wait for: a class, a pool, or pools by their labels.
type target struct {
	class    string
	pool     ipam.PoolKey
	selector bool
}

func targetOf(r ipam.Request) target {
	if r.Selects != nil {
		return target{selector: true}
	}
	return target{class: r.Class, pool: r.Pool}
}

// Queue is the claims that wait, in order, by what they wait for. Adding and
// removing cost O(log n) plus a move of memory, and looking for the first that passes
// a test as much as there are before it that do not.
type Queue struct {
	mu     sync.Mutex
	lines  map[target][]Waiting
	places map[ipam.Holder]Waiting
	// exact is how many ask for one block alone.
	exact int
	// told are those of them who know that somebody else has it.
	told map[ipam.Holder]bool
	// foreseen are those whom nobody has joined yet.
	foreseen map[ipam.Holder]bool
}

// NewQueue is an empty queue.
func NewQueue() *Queue {
	return &Queue{lines: map[target][]Waiting{}, places: map[ipam.Holder]Waiting{}, told: map[ipam.Holder]bool{}, foreseen: map[ipam.Holder]bool{}}
}

// Join puts a claim in line, once, and says whether it was not there before.
func (q *Queue) Join(w Waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	told := q.told[w.Holder]
	before, ok := q.leave(w.Holder)
	q.join(w)
	if told && targetOf(before.Request) == targetOf(w.Request) && before.Request.Block == w.Request.Block {
		q.told[w.Holder] = true
	}
	return !ok
}

func (q *Queue) join(w Waiting) {
	t := targetOf(w.Request)
	line := q.lines[t]
	at, _ := slices.BinarySearchFunc(line, w, compareWaiting)
	q.lines[t] = slices.Insert(line, at, w)
	q.places[w.Holder] = w
	if w.Request.Block.IsValid() {
		q.exact++
	}
}

// Foresee keeps a place for a claim that is not there, until it joins or leaves, or
// LeaveForeseen ends that.
func (q *Queue) Foresee(w Waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.places[w.Holder]; ok {
		return
	}
	q.join(w)
	q.foreseen[w.Holder] = true
}

// LeaveForeseen takes out those for whom a place was kept, and who did not come.
func (q *Queue) LeaveForeseen() []Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	var left []Waiting
	for holder := range q.foreseen {
		w, _ := q.leave(holder)
		left = append(left, w)
	}
	return left
}

// Leave takes a claim out, and says what it waited with; false where it did not.
func (q *Queue) Leave(holder ipam.Holder) (Waiting, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leave(holder)
}

func (q *Queue) leave(holder ipam.Holder) (Waiting, bool) {
	w, ok := q.places[holder]
	if !ok {
		return Waiting{}, false
	}
	delete(q.places, holder)
	delete(q.told, holder)
	delete(q.foreseen, holder)
	if w.Request.Block.IsValid() {
		q.exact--
	}
	t := targetOf(w.Request)
	at, _ := slices.BinarySearchFunc(q.lines[t], w, compareWaiting)
	if q.lines[t] = slices.Delete(q.lines[t], at, at+1); len(q.lines[t]) == 0 {
		delete(q.lines, t)
	}
	return w, true
}

// Place is a claim's place in the queue.
func (q *Queue) Place(holder ipam.Holder) (Waiting, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, ok := q.places[holder]
	return w, ok
}

// Has says whether a claim waits.
func (q *Queue) Has(holder ipam.Holder) bool {
	_, ok := q.Place(holder)
	return ok
}

// Len is how many claims wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.places)
}

// First is the one that comes first of those that may be served from the pool and
// pass the test; false where there is none. Those who come back are before those
// who wait longest.
func (q *Queue) First(pool ipam.Pool, test func(Waiting) bool) (Waiting, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.exact > 0 {
		back := func(w Waiting) bool { return w.comesBack(pool) && test(w) }
		if first, ok := q.longest(pool, back); ok {
			return first, true
		}
	}
	return q.longest(pool, test)
}

// longest is the one of them that has waited longest.
func (q *Queue) longest(pool ipam.Pool, test func(Waiting) bool) (Waiting, bool) {
	var first Waiting
	for _, line := range q.linesFor(pool) {
		for _, w := range line {
			if !first.isZero() && first.before(w) {
				break
			}
			if w.mayTake(pool) && test(w) {
				first = w
				break
			}
		}
	}
	return first, !first.isZero()
}

// All are those who may be served from the pool, in no order. The queue is locked
// until the loop over them ends.
func (q *Queue) All(pool ipam.Pool) iter.Seq[Waiting] {
	return func(yield func(Waiting) bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, line := range q.linesFor(pool) {
			for _, w := range line {
				if w.mayTake(pool) && !yield(w) {
					return
				}
			}
		}
	}
}

// linesFor are the lines of those who may be served from a pool.
func (q *Queue) linesFor(pool ipam.Pool) [][]Waiting {
	lines := [][]Waiting{q.lines[target{pool: pool.Key}], q.lines[target{selector: true}], q.lines[target{}]}
	for _, class := range pool.Classes {
		lines = append(lines, q.lines[target{class: class}])
	}
	return lines
}

// Outdone are those who wait for one block of the pool, and no other, and have not
// been told yet that somebody else has it. Each is told once, and again when it asks
// for another.
func (q *Queue) Outdone(pool ipam.Pool, free func(netip.Prefix) bool) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.exact == len(q.told) {
		return nil
	}
	var outdone []ipam.Holder
	for _, line := range q.linesFor(pool) {
		for _, w := range line {
			if block := w.Request.Block; !block.IsValid() || q.told[w.Holder] || !w.sees(pool.Key) || !pool.Has(block) || free(block) {
				continue
			}
			q.told[w.Holder] = true
			outdone = append(outdone, w.Holder)
		}
	}
	return outdone
}

// WaitingForClass are those who wait for a class by its name.
func (q *Queue) WaitingForClass(class string) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	return holders(q.lines[target{class: class}])
}

// WaitingFor are those who wait for what has changed in the catalogue: a class,
// by its name or as the default; a pool, by its name or its labels; or what they may
// use, with the project of their namespace.
func (q *Queue) WaitingFor(e Entry) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.Namespace != "" {
		return q.of(e.Namespace)
	}
	lines := [][]Waiting{q.lines[target{}]}
	for _, class := range e.Classes {
		lines = append(lines, q.lines[target{class: class}])
	}
	if e.Pool != (ipam.PoolKey{}) {
		selecting := slices.DeleteFunc(slices.Clone(q.lines[target{selector: true}]), func(w Waiting) bool {
			return !w.Request.Selects(e.Labels)
		})
		lines = append(lines, q.lines[target{pool: e.Pool}], selecting)
	}
	for i, line := range lines {
		lines[i] = slices.DeleteFunc(slices.Clone(line), func(w Waiting) bool { return !w.sees(e.Pool) })
	}
	return holders(lines...)
}

// of are those of a namespace.
func (q *Queue) of(namespace string) []ipam.Holder {
	var all []ipam.Holder
	for holder, w := range q.places {
		if w.Request.Namespace() == namespace {
			all = append(all, holder)
		}
	}
	return all
}

func holders(lines ...[]Waiting) []ipam.Holder {
	var all []ipam.Holder
	for _, line := range lines {
		for _, w := range line {
			all = append(all, w.Holder)
		}
	}
	return all
}
