package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

var (
	small    = netip.MustParsePrefix("10.0.0.0/24")
	withheld = netip.MustParsePrefix("10.0.0.32/28")
	key      = ipam.PoolNamed("p")
	home     = ipam.DomainNamed("default", ipam.IPv4)
)

func newLedger(seed uint64) *Ledger {
	l := New(Options{
		Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Silence: time.Minute,
		Random: rand.New(rand.NewPCG(seed, 0)),
	})
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Withheld: space.NewRanges(small, []space.Range{space.RangeOf(withheld)})})
	return l
}

// allocation returns an object as a watch delivers it.
func allocation(name, uid, version, block string) *v1alpha1.IPAllocation {
	return convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "ns", Name: name}, UID: uid, Version: version,
		Block: netip.MustParsePrefix(block), Pool: key, Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Holder: ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: name},
	})
}

// poolRecord returns the record of a root pool's own CIDR.
func poolRecord(pool ipam.PoolKey, cidr string) *v1alpha1.IPAllocation {
	return convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: "ippool." + pool.Name}, UID: "uid-of-" + pool.Name, Version: "1",
		Block: netip.MustParsePrefix(cidr), Pool: home, Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Holder: convert.HolderOfPool(pool),
	})
}

// recordList returns a list of records, with the pool's own.
func recordList(records ...any) []any { return append(records, poolRecord(key, small.String())) }

// newListedLedger returns a ledger that has seen a list of records, with the pool's own.
func newListedLedger(t *testing.T, records ...any) *Ledger {
	t.Helper()
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(records...), "0"))
	return l
}

// event represents one step of a watch.
type event func(*Ledger) error

func adds(o *v1alpha1.IPAllocation) event { return func(l *Ledger) error { return feed{l}.Add(o) } }
func updates(o *v1alpha1.IPAllocation) event {
	return func(l *Ledger) error { return feed{l}.Update(o) }
}
func deletes(o *v1alpha1.IPAllocation) event {
	return func(l *Ledger) error { return feed{l}.Delete(o) }
}
func lists(revision string, objs ...any) event {
	return func(l *Ledger) error { return feed{l}.Replace(objs, revision) }
}

// claims reports whether a live claim names the record.
func claims(name string, live bool) event {
	return func(l *Ledger) error { l.SetClaimed(ipam.Name{Namespace: "ns", Name: name}, live); return nil }
}

func play(t *testing.T, l *Ledger, events ...event) {
	t.Helper()
	for _, e := range events {
		must(t, e(l))
	}
}

// terminating returns an object that is being deleted, in a version.
func terminating(o *v1alpha1.IPAllocation, version string) *v1alpha1.IPAllocation {
	o = versioned(o, version)
	o.DeletionTimestamp = new(metav1.Now())
	return o
}

func versioned(o *v1alpha1.IPAllocation, version string) *v1alpha1.IPAllocation {
	o = o.DeepCopy()
	o.ResourceVersion = version
	return o
}

// show shows new records to a ledger, one after the other.
func show(t *testing.T, l *Ledger, objs ...*v1alpha1.IPAllocation) {
	t.Helper()
	for _, obj := range objs {
		must(t, feed{l}.Add(obj))
	}
}

func ask(name string) Ask {
	return Ask{Pool: key, Bits: 28, Record: ipam.Name{Namespace: "ns", Name: name}, Holder: ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: name}}
}

func mustHold(t *testing.T, l *Ledger, a Ask) *Hold {
	t.Helper()
	h, err := l.Hold(a)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryFreedBlockIsNotified(t *testing.T) {
	l := newLedger(1)
	var freed []string
	l.OnFree(func(pool ipam.PoolKey, block netip.Prefix) { freed = append(freed, pool.Name+" "+block.String()) })
	must(t, feed{l}.Replace(recordList(), "1"))
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"a hold is dropped", func() { mustHold(t, l, ask("a")).Drop() }, "p 10.0.0.0/28"},
		{"a hold is given up, its record perhaps stored", func() { mustHold(t, l, ask("b")).Abandon() }, "p 10.0.0.0/28"},
		{"a hold becomes a record", func() {
			h := mustHold(t, l, ask("c"))
			must(t, feed{l}.Add(allocation("c", "1", "1", "10.0.0.0/28")))
			must(t, h.Confirm(t.Context(), "1"))
		}, ""},
		{"a pool's withheld space changes", func() { l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4}) }, "p 10.0.0.0/24"},
		{"a pool's strategy changes", func() {
			l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Strategy: ipam.StrategyBestFit})
		}, ""},
		{"a record is deleted", func() { must(t, feed{l}.Delete(allocation("c", "1", "1", "10.0.0.0/28"))) }, "p 10.0.0.0/28"},
	} {
		freed = nil
		step.do()
		if got := fmt.Sprint(freed); got != fmt.Sprint(strings.FieldsFunc(step.want, func(r rune) bool { return r == ',' })) {
			t.Errorf("%s: notified of %s, want [%s]", step.what, got, step.want)
		}
	}
}

func TestOnlyFirstListIsInitial(t *testing.T) {
	l := newLedger(1)
	var initial []string
	l.Follow(func(c Change) {
		if c.Initial {
			initial = append(initial, c.Record.UID)
		}
	})
	a, b, c := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "1", "10.0.0.16/28"), allocation("c", "3", "1", "10.0.0.32/28")
	must(t, feed{l}.Replace(recordList(a), "1"))
	must(t, feed{l}.Add(b))
	must(t, feed{l}.Replace(recordList(a, b, c), "2"))
	if fmt.Sprint(initial) != "[1 uid-of-p]" {
		t.Errorf("notified that %v existed before, want [1 uid-of-p]", initial)
	}
}

func TestUnboundRecordsAreBounded(t *testing.T) {
	l := newListedLedger(t, allocation("x", "1", "1", "10.0.0.0/28"), allocation("y", "2", "1", "10.0.0.16/28"))
	bounded := ask("a")
	bounded.UnclaimedLimit = 2
	if _, err := l.Hold(bounded); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("got %v, want ErrTooManyUnclaimed", err)
	}
	l.SetClaimed(ipam.Name{Namespace: "ns", Name: "x"}, true)
	mustHold(t, l, bounded).Drop()
	l.SetClaimed(ipam.Name{Namespace: "ns", Name: "x"}, false)
	if _, err := l.Hold(bounded); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("got %v, want ErrTooManyUnclaimed", err)
	}
}

func TestLocalPoolRecordsAreBoundedByOwnNamespace(t *testing.T) {
	l := newLedger(1)
	record := ipam.Record{
		Name: ipam.Name{Namespace: "operator", Name: "localippool.ns.p"}, UID: "1", Version: "1", Pool: key, Purpose: ipam.PurposePool,
		Block: netip.MustParsePrefix("10.0.0.0/28"), State: ipam.StateBound, Holder: ipam.Holder{Kind: "LocalIPPool", Namespace: "ns", Name: "p"},
	}
	must(t, feed{l}.Replace(recordList(convert.Allocation(record)), "1"))
	bounded := ask("a")
	bounded.UnclaimedLimit, bounded.Holder.Namespace = 1, "ns"
	if _, err := l.Hold(bounded); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("got %v, want ErrTooManyUnclaimed", err)
	}
	elsewhere := bounded
	elsewhere.Holder.Namespace = "operator"
	mustHold(t, l, elsewhere).Drop()
	record.HolderUID, record.Version = "2", "2" // the pool exists
	must(t, feed{l}.Update(convert.Allocation(record)))
	mustHold(t, l, bounded).Drop()
}
