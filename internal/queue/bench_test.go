package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// many is the number of waiters of every kind.
const many = 10_000

// kinds maps the name of each kind of waiters to a function that returns the nth of them.
var kinds = waiterKinds(waitedPools(50))

func waiterKinds(pools []ipam.PoolKey) map[string]func(n int) (Waiter, ipam.Wants) {
	return map[string]func(n int) (Waiter, ipam.Wants){
		"class-less": func(n int) (Waiter, ipam.Wants) {
			w := numberedWaiter("class-less", n)
			return w, ipam.Wants{Pools: pools, Length: 24 + n%9}
		},
		"selector": func(n int) (Waiter, ipam.Wants) {
			w := numberedWaiter("selector", n)
			w.Request.Selects = func(map[string]string) bool { return true }
			return w, ipam.Wants{Pools: pools, Length: 24 + n%9}
		},
		"exact block": func(n int) (Waiter, ipam.Wants) {
			w := numberedWaiter("exact", n)
			w.Request.Block = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
			return w, ipam.Wants{Pools: pools[:1], Length: 32}
		},
		"missing pool": func(n int) (Waiter, ipam.Wants) {
			w := numberedWaiter("missing", n)
			w.Request.Pool = ipam.PoolNamed(fmt.Sprint("missing-", n))
			return w, ipam.Wants{}
		},
	}
}

func numberedWaiter(kind string, n int) Waiter {
	name := ipam.Name{Namespace: fmt.Sprint("team-", n%100), Name: fmt.Sprint(kind, "-", n)}
	return Waiter{
		Since:  time.Unix(int64(n), 0),
		Holder: ipam.Holder{Kind: "IPClaim", Namespace: name.Namespace, Name: name.Name}, Request: ipam.Request{Claim: name},
	}
}

// waitedPools returns the first n pools that have waiters.
func waitedPools(n int) []ipam.PoolKey {
	keys := make([]ipam.PoolKey, n)
	for i := range keys {
		keys[i] = ipam.PoolNamed(fmt.Sprint("theirs-", i))
	}
	return keys
}

// creates holds the state of a create under the ledger's lock: it finds a block of a pool, asks the
// queue for the turn, and holds the block.
type creates struct {
	ledger *ledger.Ledger
	queue  *poolQueues
	n      int
}

// newCreates queues many waiters of the kinds. Of each pool with waiters, all but its upper half is
// held, and no block of the exact ones is free.
func newCreates(tb testing.TB, kind ...string) *creates {
	tb.Helper()
	c := &creates{queue: newPoolQueues(0), ledger: ledger.New(ledger.Options{
		Clock: clock.RealClock{}, Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 1)),
	})}
	c.ledger.OnFree(c.queue.NoteFreed)
	from := fcache.NewFakeControllerSource()
	for i, key := range append(waitedPools(50), ipam.PoolNamed("other")) {
		cidr := netip.MustParsePrefix("10.0.0.0/15")
		c.ledger.Describe(ipam.Pool{Key: key, CIDR: cidr, Family: ipam.IPv4, Strategy: ipam.StrategyFirstFit})
		obj := convert.Allocation(ipam.Record{
			Name: ipam.Name{Namespace: "ns", Name: key.Name}, Block: netip.MustParsePrefix("10.0.0.0/16"), Pool: key,
			Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, Holder: ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: key.Name},
		})
		obj.UID = types.UID(fmt.Sprint(i))
		from.Add(obj)
	}
	go c.ledger.Run(tb.Context(), from, &v1alpha1.IPAllocation{})
	for !c.ledger.Synced() || c.ledger.Records(ipam.PoolNamed("other")) == 0 {
		<-time.After(time.Millisecond)
	}
	for _, k := range kind {
		for n := range many {
			c.queue.Join(kinds[k](n))
		}
	}
	return c
}

// create runs one create of a /length in a pool, which is not stored in the end; it reports whether
// it was its turn.
func (c *creates) create(tb testing.TB, pool ipam.PoolKey, length int) bool {
	c.n++
	holder := ipam.Holder{Kind: "IPClaim", Namespace: "new", Name: "new"}
	hold, err := c.ledger.Hold(ledger.Ask{
		Pool: pool, Bits: length, Strategy: ipam.StrategyFirstFit, Holder: holder, Record: ipam.Name{Namespace: "new", Name: "new"},
		Turn: (&Queue{poolQueues: c.queue}).Turn(ipam.Pool{Key: pool}, holder, Waiter{}),
	})
	if errors.Is(err, ledger.ErrOutOfTurn) {
		return false
	}
	if err != nil {
		tb.Fatal(err)
	}
	hold.Drop()
	return true
}

// The cases of a create while many claims wait.
var benchmarks = []struct {
	name  string
	kinds []string
	pool  string
	turn  bool
}{
	{"unrelated, without waiters", nil, "other", true},
	{"unrelated, class-less wait", []string{"class-less"}, "other", true},
	{"unrelated, selectors wait", []string{"selector"}, "other", true},
	{"unrelated, exact blocks wait", []string{"exact block"}, "other", true},
	{"unrelated, missing pools wait", []string{"missing pool"}, "other", true},
	{"unrelated, all of them wait", []string{"class-less", "selector", "exact block", "missing pool"}, "other", true},
	{"into the pool of the class-less", []string{"class-less"}, "theirs-0", false},
	{"into the pool of the selectors", []string{"selector"}, "theirs-0", false},
	{"into the pool of the exact blocks", []string{"exact block"}, "theirs-0", true},
	{"into the pool of all", []string{"class-less", "selector", "exact block", "missing pool"}, "theirs-0", false},
}

// BenchmarkCreate measures the cost of the ledger and the queue for a create, under their locks.
func BenchmarkCreate(b *testing.B) {
	for _, c := range benchmarks {
		b.Run(c.name, func(b *testing.B) {
			creates := newCreates(b, c.kinds...)
			for b.Loop() {
				if turn := creates.create(b, ipam.PoolNamed(c.pool), 32); turn != c.turn {
					b.Fatalf("its turn: %t, want %t", turn, c.turn)
				}
			}
		})
	}
}

// TestCreateCostDoesNotDependOnWaiters compares in one run the cost of creates without waiters and
// with many: of an unrelated create, and of one into their pool.
func TestCreateCostDoesNotDependOnWaiters(t *testing.T) {
	const rounds, times, mostUnrelated, mostRelated = 20, 100, 5, 30
	none := newCreates(t)
	cost := func(c *creates, pool string) time.Duration {
		began := time.Now()
		for range times {
			c.create(t, ipam.PoolNamed(pool), 32)
		}
		return time.Since(began)
	}
	for _, c := range benchmarks[1:] {
		creates := newCreates(t, c.kinds...)
		// The least of several is the cost without disturbance by other work.
		alone, waiting := time.Hour, time.Hour
		for range rounds {
			alone, waiting = min(alone, cost(none, "other")), min(waiting, cost(creates, c.pool))
		}
		most := mostUnrelated
		if c.pool != "other" {
			most = mostRelated
		}
		if ratio := float64(waiting) / float64(alone); ratio > float64(most) {
			t.Errorf("%s: %.1f times as much as without waiters (%v for %d), want at most %d times", c.name, ratio, waiting, times, most)
		}
	}
}

// TestLocalPoolChangeCostsOnlyItsNamespace compares in one run the cost of a change of a namespace's pool
// while it alone waits with the cost while many wait in other namespaces.
func TestLocalPoolChangeCostsOnlyItsNamespace(t *testing.T) {
	const times, rounds, most = 100, 100, 20 // to look at every waiter would cost some thousand times as much
	change := inventory.Change{Pool: ipam.LocalPoolNamed("alone", "p")}
	with := func(kind ...string) *creates {
		c := newCreates(t, kind...)
		w := numberedWaiter("class-less", 0)
		w.Holder.Namespace, w.Request.Claim.Namespace = "alone", "alone"
		c.queue.Join(w, ipam.Wants{})
		return c
	}
	cost := func(c *creates) time.Duration {
		began := time.Now()
		for range times {
			if got := c.queue.AffectedWaiters(change); len(got) != 1 {
				t.Fatalf("%d are concerned, want the one of the namespace", len(got))
			}
		}
		return time.Since(began)
	}
	none, others := with(), with("class-less", "selector")
	alone, beside := time.Hour, time.Hour
	for range rounds {
		alone, beside = min(alone, cost(none)), min(beside, cost(others))
	}
	if beside > most*alone {
		t.Errorf("%d changes cost %v with others waiting, and %v without: more than %d times as much", times, beside, alone, most)
	}
}
