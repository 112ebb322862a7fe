package queue

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Room represents the free space of one pool, at this moment.
type Room interface {
	// Has reports whether there is a free block of the length.
	Has(length int) bool
	// IsFree reports whether the whole block is free.
	IsFree(block netip.Prefix) bool
	// Allows reports whether the account can have one more block of the length from the pool.
	Allows(account ipam.Account, length int) bool
}

// line holds a pool queue: the waiters of one pool.
type line struct {
	// exact contains the waiters that ask for one block alone, by that block.
	exact bart.Table[[]*place]
	// perhaps contains the waiters of exact whose block may be free, in order. The block of every
	// other one was in use when it was last checked, and no part of it has become free since.
	perhaps []*place
	// unaware contains the waiters of exact that do not know yet that another holder has their
	// block.
	unaware map[*place]bool
	// byLength contains the length queues of the other waiters, the shortest prefix, which is the
	// largest block, first.
	byLength []*rank
	// others is the number of waiters in byLength.
	others int
}

// rank holds a length queue: the waiters of a pool queue that wait for blocks of one length. They
// are grouped by the account for which the block would count: if the account has as much as it can
// have, no waiter of its account group is served.
type rank struct {
	length int
	// groups contains the account groups, in the order of their first waiters.
	groups    []*group
	byAccount map[ipam.Account]*group
}

// group holds an account group: the waiters of a length queue whose blocks count for the same
// account, in order.
type group struct {
	account ipam.Account
	places  []*place
}

func compareGroups(a, b *group) int { return comparePlaces(a.places[0], b.places[0]) }

// change changes an account group, or makes one, and keeps the account groups in order. It removes
// an account group that is empty after the change.
func (r *rank) change(account ipam.Account, how func([]*place) []*place) {
	g := r.byAccount[account]
	if g == nil {
		g = &group{account: account}
		r.byAccount[account] = g
	} else if at, found := slices.BinarySearchFunc(r.groups, g, compareGroups); found {
		r.groups = slices.Delete(r.groups, at, at+1)
	}
	if g.places = how(g.places); len(g.places) == 0 {
		delete(r.byAccount, account)
		return
	}
	at, _ := slices.BinarySearchFunc(r.groups, g, compareGroups)
	r.groups = slices.Insert(r.groups, at, g)
}

func (l *line) empty() bool { return l.exact.Size() == 0 && l.others == 0 }

func (l *line) add(p *place) {
	if block := p.Request.Block; block.IsValid() {
		l.exact.Modify(block, func(same []*place, _ bool) ([]*place, bool) { return insert(same, p), false })
		l.perhaps = insert(l.perhaps, p)
		if !p.knowsConflict {
			l.unaware[p] = true
		}
		return
	}
	at, found := l.rank(p.wants.Length)
	if !found {
		l.byLength = slices.Insert(l.byLength, at, &rank{length: p.wants.Length, byAccount: map[ipam.Account]*group{}})
	}
	l.byLength[at].change(p.wants.Account, func(places []*place) []*place { return insert(places, p) })
	l.others++
}

func (l *line) drop(p *place) {
	if block := p.Request.Block; block.IsValid() {
		l.exact.Modify(block, func(same []*place, _ bool) ([]*place, bool) {
			rest := remove(same, p)
			return rest, len(rest) == 0
		})
		l.perhaps = remove(l.perhaps, p)
		delete(l.unaware, p)
		return
	}
	at, _ := l.rank(p.wants.Length)
	l.byLength[at].change(p.wants.Account, func(places []*place) []*place { return remove(places, p) })
	if len(l.byLength[at].groups) == 0 {
		l.byLength = slices.Delete(l.byLength, at, at+1)
	}
	l.others--
}

func (l *line) rank(length int) (int, bool) {
	return slices.BinarySearchFunc(l.byLength, length, func(r *rank, length int) int { return cmp.Compare(r.length, length) })
}

// freed notes that a part of the block became free.
func (l *line) freed(block netip.Prefix) {
	if !l.exact.OverlapsPrefix(block) {
		return
	}
	var more []*place
	for _, same := range l.exact.Supernets(block) { // block itself included
		more = append(more, same...)
	}
	for p, same := range l.exact.Subnets(block) {
		if p != block {
			more = append(more, same...)
		}
	}
	l.reconsider(more)
}

func (l *line) reconsider(more []*place) {
	if len(more) == 1 {
		l.perhaps = insert(remove(l.perhaps, more[0]), more[0])
		return
	}
	l.perhaps = append(l.perhaps, more...)
	slices.SortFunc(l.perhaps, comparePlaces)
	l.perhaps = slices.Compact(l.perhaps)
}

// firstFree returns the first waiter whose one block is free and that can have it, except for the
// holder aside. It looks only once at a waiter whose block turns out to be in use.
func (l *line) firstFree(room Room, aside ipam.Holder) *place {
	inUse := 0
	for i, p := range l.perhaps {
		if !room.IsFree(p.Request.Block) {
			inUse++
			continue
		}
		if p.Holder == aside || !room.Allows(p.wants.Account, p.Request.Block.Bits()) {
			continue
		}
		if inUse > 0 {
			l.perhaps = append(free(l.perhaps[:i:i], room), l.perhaps[i:]...)
		}
		return p
	}
	if inUse > 0 {
		l.perhaps = free(l.perhaps, room)
	}
	return nil
}

// free returns the waiters whose block is free.
func free(places []*place, room Room) []*place {
	return slices.DeleteFunc(slices.Clone(places), func(p *place) bool { return !room.IsFree(p.Request.Block) })
}

// first returns the first waiter for which there is room and that can have it, except for the
// holder aside.
func (l *line) first(pool ipam.Pool, room Room, aside ipam.Holder) *place {
	first := l.firstFree(room, aside)
	if first != nil && first.returns(pool) {
		return first
	}
	for _, r := range l.byLength {
		if !room.Has(r.length) {
			continue
		}
		oldest := r.oldest(room, aside)
		if oldest != nil && (first == nil || oldest.before(first.Waiter)) {
			first = oldest
		}
	}
	return first
}

// oldest returns the first waiter that can have a block. It costs O(1), and as much again for each
// account whose waiters came before and that has as much as it can have.
func (r *rank) oldest(room Room, aside ipam.Holder) *place {
	var oldest *place
	for _, g := range r.groups {
		if oldest != nil && oldest.before(g.places[0].Waiter) {
			break
		}
		p := g.oldest(aside)
		if p != nil && room.Allows(g.account, r.length) && (oldest == nil || p.before(oldest.Waiter)) {
			oldest = p
		}
	}
	return oldest
}

func (g *group) oldest(aside ipam.Holder) *place {
	for _, p := range g.places {
		if p.Holder != aside {
			return p
		}
	}
	return nil
}

// atOnce is the number of claims that may ask one pool for a block at the same time, each seeing
// that there is plenty.
const atOnce = 256

// hasPlenty reports whether the pool has room for one more block of the length, for all its
// waiters, and for atOnce others, even if they all take as much as the largest of them: a free
// block that holds as many blocks of the largest requested size. It costs O(1).
func (l *line) hasPlenty(room Room, length int) bool {
	if !hasRoomFor(room, atOnce, length) {
		return false
	}
	if len(l.byLength) > 0 {
		length = min(length, l.byLength[0].length)
	}
	return hasRoomFor(room, atOnce+l.others, length)
}

// wanted returns a free block that overlaps the given block, that a waiter asks for by its CIDR,
// and that the waiter can have. It ignores the holder aside. It returns the zero Prefix if there is
// no such block.
func (l *line) wanted(room Room, block netip.Prefix, aside ipam.Holder) netip.Prefix {
	if !l.exact.OverlapsPrefix(block) {
		return netip.Prefix{}
	}
	waits := func(asked netip.Prefix, same []*place) bool {
		return room.IsFree(asked) && slices.ContainsFunc(same, func(p *place) bool {
			return p.Holder != aside && room.Allows(p.wants.Account, asked.Bits())
		})
	}
	for asked, same := range l.exact.Supernets(block) {
		if waits(asked, same) {
			return asked
		}
	}
	for asked, same := range l.exact.Subnets(block) {
		if waits(asked, same) {
			return asked
		}
	}
	return netip.Prefix{}
}

// hasRoomFor reports whether there is one free block that holds the number of blocks of the length.
func hasRoomFor(room Room, blocks, length int) bool {
	within := length - bits.Len(uint(blocks))
	return within >= 0 && room.Has(within)
}

// fitting returns the waiters that ask for no particular block, for which there is room and that
// can have it, oldest first of each length.
func (l *line) fitting(room Room) []ipam.Holder {
	var all []ipam.Holder
	for _, r := range l.byLength {
		if !room.Has(r.length) {
			continue
		}
		var places []*place
		for _, g := range r.groups {
			if room.Allows(g.account, r.length) {
				places = append(places, g.places...)
			}
		}
		slices.SortFunc(places, comparePlaces)
		all = append(all, holders(places)...)
	}
	return all
}

// conflicted returns the waiters that ask for one block that another holder has, and that do not
// know that yet.
func (l *line) conflicted(room Room) []*place {
	var conflicted []*place
	for p := range l.unaware {
		if !room.IsFree(p.Request.Block) {
			conflicted = append(conflicted, p)
		}
	}
	slices.SortFunc(conflicted, comparePlaces)
	return conflicted
}

func holders(places []*place) []ipam.Holder {
	all := make([]ipam.Holder, len(places))
	for i, p := range places {
		all[i] = p.Holder
	}
	return all
}

// lineUp adds a waiter to the pool queues where it belongs, and stepOut removes it from them.
func (q *lines) lineUp(p *place) {
	if !p.inLine() {
		return
	}
	for _, key := range p.wants.Pools {
		if q.byPool[key] == nil {
			q.byPool[key] = &line{unaware: map[*place]bool{}}
		}
		q.byPool[key].add(p)
	}
}

func (q *lines) stepOut(p *place) {
	if !p.inLine() {
		return
	}
	for _, key := range p.wants.Pools {
		if q.byPool[key].drop(p); q.byPool[key].empty() {
			delete(q.byPool, key)
		}
	}
}

func (p *place) inLine() bool { return !p.parked && !p.beyond }
