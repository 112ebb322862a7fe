package ledger

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// share identifies the part of a pool, or of all pools if that is zero, that a namespace or project
// has.
type share struct {
	namespace, project string
	pool               ipam.PoolKey
}

// sharesOf returns the shares that a holder takes from. A tenant can have many namespaces, so its
// project, if it is known, is bounded as each of them is.
func sharesOf(namespace, project string, pool ipam.PoolKey) []share {
	shares := []share{{namespace: namespace, pool: pool}}
	if project != "" {
		shares = append(shares, share{project: project, pool: pool})
	}
	return shares
}

// The unclaimed blocks of a namespace, and of a project, can take at most 1/sharePart of a pool,
// but each can have shareLeast unclaimed blocks in any pool.
const (
	sharePart  = 8
	shareLeast = 4
)

// account identifies the usage of a pool, or of a class, by a project.
type account struct {
	project, class string
	pool           ipam.PoolKey
}

// countUnclaimed adds an entry to the unclaimed usage of its namespace and project, or subtracts
// it. Cluster-scoped pools belong to no namespace, and are not bounded.
func (l *Ledger) countUnclaimed(e *entry, op func(ipam.Usage, ipam.Usage) ipam.Usage) {
	if e.hold == nil && !e.isUnclaimed() {
		return
	}
	a := e.shared.Value()
	for _, pool := range []ipam.PoolKey{{}, a.pool} {
		for _, key := range sharesOf(a.holderNamespace, a.project, pool) {
			countUsed(l.unclaimed, key, op, asOne(e.usage()))
		}
	}
}

// asOne returns the usage of a record that counts as one block, as it is claimed or collected as one.
func asOne(u ipam.Usage) ipam.Usage {
	return ipam.Usage{Blocks: space.CountOf64(1), Addresses: u.Addresses}
}

// isUnclaimed reports whether no live claim or local pool names the record.
func (e *entry) isUnclaimed() bool {
	a := e.shared.Value()
	return a.holderNamespace != "" && a.state == ipam.StateBound && e.holderUID == "" && !e.claimed
}

// countUsage adds an entry to the usage of its project, or subtracts it from there.
func (l *Ledger) countUsage(e *entry, isAdded bool) {
	usage, a := l.recorded, e.shared.Value()
	if e.hold != nil {
		usage = l.held
	}
	if a.project == "" {
		return
	}
	remove, add := ipam.Usage{}, e.usage()
	if e.hold == nil && e.holder().IsPool() {
		pool := account{project: a.project, pool: a.pool}
		remove, add = l.ownUsage(e.holder(), pool, e), l.ownUsage(e.holder(), pool, e, e.blocks()...)
	}
	if !isAdded {
		remove, add = add, remove
	}
	accounts := []account{{project: a.project, pool: a.pool}}
	if a.class != "" {
		accounts = append(accounts, account{project: a.project, class: a.class})
	}
	for _, key := range accounts {
		countUsed(usage, key, ipam.Usage.Add, add)
		countUsed(usage, key, ipam.Usage.Sub, remove)
	}
}

// ownUsage returns the usage by the own records of a pool, but one, and by more blocks. What two of
// them have counts once: of blocks that overlap, one lies in the other.
func (l *Ledger) ownUsage(pool ipam.Holder, a account, but *entry, blocks ...netip.Prefix) ipam.Usage {
	for e := range l.byHolder.findAll(pool) {
		if shared := e.shared.Value(); e != but && shared.project == a.project && shared.pool == a.pool {
			blocks = append(blocks, e.blocks()...)
		}
	}
	slices.SortFunc(blocks, netip.Prefix.Compare) // a block comes before those that lie in it
	var total ipam.Usage
	var last netip.Prefix
	for _, block := range blocks {
		if !ipam.Covers(last, block) {
			total, last = total.Add(ipam.UsageOf(block)), block
		}
	}
	return total
}

// countUsed changes the usage of a key by that of a record, and removes a key that has no usage.
func countUsed[K comparable](usage map[K]ipam.Usage, key K, op func(ipam.Usage, ipam.Usage) ipam.Usage, used ipam.Usage) {
	if usage[key] = op(usage[key], used); usage[key] == (ipam.Usage{}) {
		delete(usage, key)
	}
}

// checkUnclaimed refuses a request if its namespace or project has its share of unclaimed blocks,
// in all pools or in this one. The cost is constant.
func (l *Ledger) checkUnclaimed(ask Ask, b *poolView) error {
	namespace := ask.Holder.Namespace
	if ask.UnclaimedLimit == 0 || namespace == "" {
		return nil
	}
	limit := space.CountOf64(uint64(ask.UnclaimedLimit)) //nolint:gosec // not negative
	for _, key := range sharesOf(namespace, ask.Project, ipam.PoolKey{}) {
		if l.unclaimed[key].Blocks.Cmp(limit) >= 0 {
			return &ipam.UnclaimedError{Namespace: key.namespace, Project: key.project, Most: ask.UnclaimedLimit}
		}
	}
	if b.space == nil {
		return nil
	}
	usableCount := b.space.Total().Sub(b.pool.Withheld.Size())
	for _, key := range sharesOf(namespace, ask.Project, ask.Pool) {
		total := l.unclaimed[key].Add(asOne(ask.usageIn(b)))
		if total.Blocks.Cmp(space.CountOf64(shareLeast)) > 0 && total.Addresses.Float64()*sharePart > usableCount.Float64() {
			return &ipam.UnclaimedError{Namespace: key.namespace, Project: key.project, Pool: ask.Pool}
		}
	}
	return nil
}

// checkLimits refuses a request that would exceed the limit of the pool or class. Holds count like
// records, so that the requests of this process refuse each other before they are recorded.
func (l *Ledger) checkLimits(ask Ask, b *poolView) error {
	counted, extra := ipam.Usage{}, ask.usageIn(b)
	if ask.Holder.IsPool() && ask.Block.IsValid() {
		a := account{project: ask.Project, pool: ask.Pool}
		counted, extra = l.ownUsage(ask.Holder, a, nil), l.ownUsage(ask.Holder, a, nil, ask.blocks()...)
	}
	usageOf := func(a account) ipam.Usage { return l.recorded[a].Add(l.held[a]).Sub(counted) }
	return l.checkLimitsWith(b, ask, usageOf, extra)
}

// checkHoldLimits returns a *ipam.LimitError if the project of a record has more than it can have
// in the view. All counted blocks were recorded before this one, or are of the same list.
func (l *Ledger) checkHoldLimits(h *Hold, e *entry) error { return l.checkRecorded(h.ask, e) }

// CheckRecordLimits returns a *ipam.LimitError if a project has more of a record's pool, or of its
// class, than it can have. It is then unknown which of the project's records came last.
func (l *Ledger) CheckRecordLimits(record ipam.Record, class ipam.Limit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.find(record.UID)
	if e == nil {
		return nil
	}
	return l.checkRecorded(Ask{Project: record.Project, Class: record.Class, ClassLimit: class}, e)
}

func (l *Ledger) checkRecorded(ask Ask, e *entry) error {
	own := e.usage()
	if e.holder().IsPool() {
		own = l.ownUsage(e.holder(), account{project: ask.Project, pool: e.pool()}, nil)
	}
	usageOf := func(a account) ipam.Usage { return l.recorded[a].Sub(own) }
	return l.checkLimitsWith(l.poolViews[e.pool()], ask, usageOf, own)
}

func (l *Ledger) checkLimitsWith(b *poolView, ask Ask, usageOf func(account) ipam.Usage, extra ipam.Usage) error {
	pool := account{project: ask.Project, pool: b.pool.Key}
	if err := b.pool.Limit.Check(b.pool.Key.String(), ask.Project, usageOf(pool), extra); err != nil && !ask.Unlimited {
		return pool.addAwaited(err)
	}
	class := account{project: ask.Project, class: ask.Class}
	return class.addAwaited(ask.ClassLimit.Check("IPClass "+ask.Class, ask.Project, usageOf(class), extra))
}

// addAwaited notes in a *ipam.LimitError that the usage of the account has to fall.
func (a account) addAwaited(err error) error {
	if limit, ok := errors.AsType[*ipam.LimitError](err); ok {
		limit.Awaits = ipam.Awaited{Project: a.project, Pool: a.pool, Class: a.class}
	}
	return err
}

// Standing represents the kind of a record in Counts.
type Standing int

// The standings of records. An unclaimed record is bound, too, but no live claim or local pool is
// known to name it.
const (
	Bound Standing = iota
	Unclaimed
	Retained
	Cooling
	standings
)

// Counts holds the capacity of a pool, and the usage by its records, by their standing.
type Counts struct {
	Pool     ipam.PoolKey
	Capacity Capacity
	Held     [standings]ipam.Usage
	// Limit bounds the usage by one project.
	Limit ipam.Limit
}

// Counts returns the kept counts of all pools with a CIDR, as Capacity does, without the largest free block. It costs
// O(pools + holds).
func (l *Ledger) Counts() []Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Counts, 0, len(l.poolViews))
	l.withoutHolds(func() {
		for key, b := range l.poolViews {
			if key.Kind.IsPool() && b.space != nil {
				all = append(all, Counts{Pool: key, Capacity: b.capacity(), Held: b.usageByStanding, Limit: b.pool.Limit})
			}
		}
	})
	return all
}

// Account holds the usage of a pool, or else of a class, by a project's records.
type Account struct {
	Project, Class string
	Pool           ipam.PoolKey
	Usage          ipam.Usage
}

// Accounts returns the accounts of the picked pools and classes. It costs O(accounts): one for each
// project and pool of which the project has a block, and for each project and class.
func (l *Ledger) Accounts(isLimited func(class string, pool ipam.PoolKey) bool) []Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Account
	for a, usage := range l.recorded {
		if isLimited(a.class, a.pool) {
			all = append(all, Account{Project: a.project, Class: a.class, Pool: a.pool, Usage: usage})
		}
	}
	return all
}

// Lag returns the longest time for which the view has not shown an acknowledged record, or 0.
func (l *Ledger) Lag() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for _, h := range l.holds {
		if !h.acknowledgedAt.IsZero() {
			longest = max(longest, l.options.Clock.Since(h.acknowledgedAt))
		}
	}
	return longest
}

// standing returns the standing of a record.
func (e *entry) standing() Standing {
	switch {
	case e.state() == ipam.StateRetained:
		return Retained
	case e.state() == ipam.StateCooling:
		return Cooling
	case e.isUnclaimed():
		return Unclaimed
	}
	return Bound
}

// count adds an entry to the counts by its state and claim, or subtracts it: before these change,
// and after.
func (l *Ledger) count(e *entry, op func(ipam.Usage, ipam.Usage) ipam.Usage) {
	l.countUnclaimed(e, op)
	if e.hold == nil {
		usage := &l.poolViews[e.pool()].usageByStanding[e.standing()]
		*usage = op(*usage, e.usage())
	}
}

// Utilized returns the share of a pool that cannot be handed out, from 0 to 1; 1 for an unknown
// pool.
func (l *Ledger) Utilized(pool ipam.PoolKey) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.poolViews[pool]
	if b == nil || b.space == nil {
		return 1
	}
	outside := b.outside()
	return b.space.Used().Sub(outside).Float64() / b.space.Total().Sub(outside).Float64()
}

// outside returns the number of addresses of its CIDR that the pool does not occupy.
func (b *poolView) outside() space.Count {
	return b.space.Total().Sub(b.pool.Size())
}
