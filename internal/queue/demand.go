package queue

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Demand returns how many claims wait for blocks of a class that has a provisioner, by prefix length.
// It counts the claims that another pool would serve: not those that ask for one block or are parked,
// and of a project only as many as the limit of the class allows. A claim without length is one
// address. It costs O(waiters of the class, and of the default class).
func (q *Queue) Demand(class ipam.Class) map[int]int {
	usage := map[string]ipam.Usage{}
	for _, a := range q.ledger.Accounts(func(name string, _ ipam.PoolKey) bool { return name == class.Name }) {
		usage[a.Project] = a.Usage
	}
	unspecified := netip.IPv4Unspecified()
	if class.Family == ipam.IPv6 {
		unspecified = netip.IPv6Unspecified()
	}
	demand := map[int]int{}
	for _, wants := range q.poolQueues.demand(class.Name) {
		length, project := wants.Length, wants.Account.Project
		if length == ipam.NoLength {
			length = class.Family.Bits()
		}
		extra := ipam.UsageOf(netip.PrefixFrom(unspecified, length))
		if class.Limit.Check("", project, usage[project], extra) == nil {
			usage[project] = usage[project].Add(extra)
			demand[length]++
		}
	}
	return demand
}

// ListenDemand calls notify with each class that has a provisioner when Demand may have changed, until
// stop is called or another function is registered. It is called under the lock of the queue, must
// return at once, and must not call the queue.
func (q *Queue) ListenDemand(notify func(class string)) (stop func()) {
	set := func(notify func(class string)) {
		q.poolQueues.mu.Lock()
		defer q.poolQueues.mu.Unlock()
		q.poolQueues.onDemand = notify
	}
	set(notify)
	return func() { set(nil) }
}

// demand returns the wants of the waiters in line for any block of a class with a provisioner, oldest first.
func (q *poolQueues) demand(class string) []ipam.Wants {
	q.mu.Lock()
	defer q.mu.Unlock()
	counted := map[*waiter]bool{}
	for _, in := range []target{{class: class}, {}} {
		for p := range q.targets[in] {
			if p.wants.Account.Class == class && p.wants.Provisioner != "" && !p.Request.Block.IsValid() && p.isQueued() {
				counted[p] = true
			}
		}
	}
	var wants []ipam.Wants
	for _, p := range sortWaiters(counted) {
		wants = append(wants, p.wants)
	}
	return wants
}

func (q *poolQueues) noteDemand(p *waiter) {
	if q.onDemand != nil && p.wants.Provisioner != "" {
		q.onDemand(p.wants.Account.Class)
	}
}
