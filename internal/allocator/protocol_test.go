package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// The play: several replicas hand out blocks of a few small pools under contention, over links that
// are late, cut, silent and ambiguous, while replicas crash. A referee that does not use ledgers
// observes which holder has which block.
const (
	replicas      = 3
	writers       = 6
	roundsPerPlay = 1300
	playsPerRun   = 7
	grantsPerPlay = 14_500
)

func TestNoBlockHasTwoHoldersOnFaultyLinks(t *testing.T) {
	klog.SetLogger(logr.Discard())  // the reflector reports every link that breaks
	utilruntime.ErrorHandlers = nil //nolint:reassign // one of them paces itself by a clock that it shares with other plays
	plays, rounds, expected := playsPerRun, roundsPerPlay, playsPerRun*grantsPerPlay
	if testing.Short() {
		plays, rounds, expected = 1, roundsPerPlay/3, grantsPerPlay/3
	}
	total := &tally{}
	for seed := range uint64(plays) {
		seed++
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPlay(t, seed, rounds, total).run() })
		})
	}
	t.Logf("seeds 1 to %d: %d grants, %d refused as full, %d failed, %d crashes, %d relists of silent watches, %d orphans collected",
		plays, total.grants, total.full, total.failed, total.crashes, total.relists, total.orphans)
	if total.grants < expected {
		t.Errorf("the play is too tame to show anything: %d grants, want at least %d", total.grants, expected)
	}
}

// tally counts what happened, over all plays.
type tally struct {
	mu                                              sync.Mutex
	grants, full, failed, crashes, relists, orphans int
}

func (c *tally) count(field *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*field++
}

type play struct {
	t      *testing.T
	seed   uint64
	rounds int
	server *apiServer
	pools  []ipam.Pool
	stage  [replicas]*replica
	tally  *tally

	mu   sync.Mutex
	held []ipam.Record
}

// replica holds one process with its own view.
type replica struct {
	allocator *Allocator
	ctx       context.Context //nolint:containedctx // the lifetime of the process that the replica represents
	crash     func()
	gone      sync.WaitGroup
}

func newPlay(t *testing.T, seed uint64, rounds int, total *tally) *play {
	p := &play{t: t, seed: seed, rounds: rounds, tally: total}
	for name, cidr := range map[string]string{"small": "10.0.0.0/26", "larger": "10.1.0.0/24", "six": "2001:db8::/120"} {
		block := netip.MustParsePrefix(cidr)
		p.pools = append(p.pools, ipam.Pool{
			Key: ipam.PoolNamed(name), Home: ipam.DomainNamed("default", ipam.FamilyOf(block)), CIDR: block, Family: ipam.FamilyOf(block), Strategy: ipam.StrategyFirstFit,
			Withheld: space.NewRanges(block, []space.Range{{From: block.Addr(), To: block.Addr()}}),
		})
	}
	p.server = newAPIServer(p.pools...)
	return p
}

func (p *play) run() {
	for i := range p.stage {
		p.stage[i] = p.start(uint64(i))
	}
	var actors sync.WaitGroup
	for i := range replicas {
		for w := range writers {
			actors.Go(func() { p.write(i, rand.New(rand.NewPCG(p.seed, uint64(100*i+w)))) })
		}
	}
	actors.Go(func() { p.crashNowAndThen(rand.New(rand.NewPCG(p.seed, 999))) })
	over := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() { p.collectOrphans(over) })
	actors.Wait()
	close(over)
	collector.Wait()
	p.finish()
}

func (p *play) start(stream uint64) *replica {
	random := rand.New(rand.NewPCG(p.seed, 1000+stream))
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: 2 * time.Second, Random: random})
	for _, pool := range p.pools {
		view.Describe(pool)
	}
	api := &link{server: p.server, random: rand.New(rand.NewPCG(p.seed, 2000+stream))}
	r := &replica{allocator: newAllocator(testOptions{Ledger: view, Client: api})}
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx, r.crash = ctx, cancel
	r.gone.Go(func() { view.Run(ctx, watcher{api}, &v1alpha1.IPAllocation{}) })
	return r
}

// write allocates blocks and releases them, one after another.
func (p *play) write(home int, random *rand.Rand) {
	for round := range p.rounds {
		pool := p.pools[random.IntN(len(p.pools))]
		holder := ipam.Holder{Kind: "IPClaim", Namespace: "default", Name: fmt.Sprintf("c-%d-%d-%d", home, random.IntN(1000), round)}
		order := Order{Holder: holder, Record: newAttempt(holder)}
		order.Pools = []ipam.Pool{pool}
		order.Terms = ipam.Terms{Length: pool.Family.Bits() - random.IntN(4), Reclaim: ipam.ReclaimDelete}
		p.ask(home, order)
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Millisecond))))
		for random.IntN(3) > 0 {
			p.releaseOne(p.at(random.IntN(replicas)), random)
		}
	}
}

func (p *play) at(i int) *replica {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage[i]
}

func (p *play) ask(home int, order Order) {
	r := p.at(home)
	record, err := r.allocator.Allocate(r.ctx, order)
	var full *ipam.ExhaustedError
	switch {
	case r.ctx.Err() != nil: // it crashed: its answer is lost
	case err == nil:
		p.tally.count(&p.tally.grants)
		p.hold(record)
	case errors.As(err, &full):
		p.tally.count(&p.tally.full)
	default:
		p.tally.count(&p.tally.failed)
	}
}

// hold notes the holder of a block, as the referee: no other holder may have a part of the block.
func (p *play) hold(record ipam.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.held {
		if other.Pool == record.Pool && other.Block.Overlaps(record.Block) {
			p.t.Errorf("seed %d: two holders: %s was given %s while %s holds %s in %s",
				p.seed, record.Name, record.Block, other.Name, other.Block, other.Pool)
		}
	}
	p.held = append(p.held, record)
}

// releaseOne removes a holder, and lets some replica release its block.
func (p *play) releaseOne(r *replica, random *rand.Rand) {
	p.mu.Lock()
	if len(p.held) < 8 {
		p.mu.Unlock()
		return
	}
	i := random.IntN(len(p.held))
	record := p.held[i]
	p.held[i] = p.held[len(p.held)-1]
	p.held = p.held[:len(p.held)-1]
	p.mu.Unlock()
	_ = r.allocator.Release(r.ctx, record) // a record whose release fails is an orphan
}

// crashNowAndThen replaces a replica by a new process with an empty view, in the middle of any work
// of the old one.
func (p *play) crashNowAndThen(random *rand.Rand) {
	for n := range uint64(5) {
		time.Sleep(time.Duration(random.Int64N(int64(4 * time.Second))))
		i := random.IntN(replicas)
		next := p.start(10 * (n + 1))
		p.mu.Lock()
		old := p.stage[i]
		p.stage[i] = next
		p.mu.Unlock()
		p.stop(old)
		p.tally.count(&p.tally.crashes)
	}
}

func (p *play) stop(r *replica) {
	r.crash()
	r.gone.Wait()
	r.allocator.Queue.Close() // not awaited: it crashed
	stats := r.allocator.Ledger.Stats()
	p.tally.mu.Lock()
	p.tally.relists += stats.Relists
	p.tally.mu.Unlock()
	if unread := stats.Unreadable; unread > 0 {
		p.t.Errorf("seed %d: %d records could not be read", p.seed, unread)
	}
	if n := stats.Rollbacks; n > 0 {
		p.t.Errorf("seed %d: the store seemed to have gone back %d times", p.seed, n)
	}
}

// collectOrphans releases records that had no holder for longer than any attempt takes, as the
// orphan controller does.
func (p *play) collectOrphans(over <-chan struct{}) {
	since := map[string]time.Time{}
	for {
		select {
		case <-over:
			return
		case <-time.After(200 * time.Millisecond):
		}
		records := p.server.records() // first the records, then the holders
		held := p.holders()
		r := p.at(0)
		for _, obj := range records {
			uid := string(obj.UID)
			if held[uid] {
				continue
			}
			if since[uid].IsZero() {
				since[uid] = time.Now()
			}
			record, ok := r.allocator.Ledger.Record(ipam.Name{Namespace: obj.Namespace, Name: obj.Name})
			// The calls before took their time: the record may have a holder again.
			if ok && time.Since(since[uid]) > confirmTimeout+time.Second && !p.holders()[uid] {
				p.tally.count(&p.tally.orphans)
				_ = r.allocator.Release(r.ctx, record) // tried again
			}
		}
	}
}

func (p *play) holders() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	uids := map[string]bool{}
	for _, record := range p.held {
		uids[record.UID] = true
	}
	return uids
}

// finish releases every block and collects the orphans, until every block is free.
func (p *play) finish() {
	time.Sleep(30 * time.Second) // all late calls have arrived after this time
	live := p.holders()
	last := p.start(777)
	for n := range uint64(5) {
		for wait := 0; wait < 600 && last.allocator.checkSynced() != nil; wait++ {
			time.Sleep(100 * time.Millisecond)
		}
		if last.allocator.checkSynced() == nil {
			break
		}
		p.stop(last)
		last = p.start(778 + n)
	}
	for _, obj := range p.server.records() {
		if !live[string(obj.UID)] {
			p.tally.count(&p.tally.orphans)
		}
		delete(live, string(obj.UID))
	}
	if len(live) > 0 {
		p.t.Errorf("seed %d: %d holders have no record: %v", p.seed, len(live), live)
	}
	for i := range p.stage {
		p.stop(p.stage[i])
	}
	p.collect(last)
	for _, pool := range p.pools {
		c, _ := last.allocator.Ledger.Capacity(pool.Key)
		if c.Records != 0 || c.Available != c.Total.Sub(c.Withheld) {
			p.t.Errorf("seed %d: %s is not as free as before: %+v", p.seed, pool.Key, c)
		}
	}
	p.stop(last)
}

// collect releases every record that is left, as the view shows them.
func (p *play) collect(by *replica) {
	for round := 1; len(p.server.records()) > 0; round++ {
		if round == 10_000 {
			p.t.Errorf("seed %d: %d records cannot be released", p.seed, len(p.server.records()))
			return
		}
		if round%100 == 0 { // a watch that fell silent is not noticed by a replica that only releases
			by.allocator.Ledger.Relist()
		}
		for _, obj := range p.server.records() {
			if record, ok := by.allocator.Ledger.Record(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}); ok {
				_ = by.allocator.Release(by.ctx, record) // tried again
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(20 * time.Second) // the last event has arrived, or the watch was started again
	for round := 0; round < 100 && by.allocator.Ledger.Records(p.pools[0].Key)+by.allocator.Ledger.Records(p.pools[1].Key)+by.allocator.Ledger.Records(p.pools[2].Key) > 0; round++ {
		by.allocator.Ledger.Relist()
		time.Sleep(5 * time.Second)
	}
}
