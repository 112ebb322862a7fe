package ledger

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// TestRollbackDropsConfirmations records x while y has the block, and confirms
// it when y is gone. The store goes back to a revision with both: the block is y's, and x is not
// confirmed.
func TestRollbackDropsConfirmations(t *testing.T) {
	x, y := allocation("x", "x", "6", "10.0.0.0/28"), allocation("y", "y", "5", "10.0.0.0/28")
	gone := y.DeepCopy()
	gone.ResourceVersion = "7"
	for name, noticed := range map[string]func(*Ledger){
		"as a watch has shown":                       func(l *Ledger) { l.onRollback("7", "6") },
		"as the list shows, of a higher revision":    func(*Ledger) {},
		"as a watch has shown, and events come late": func(l *Ledger) { l.onRollback("7", "6"); must(t, feed{l}.Delete(gone)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			must(t, feed{l}.Replace(recordList(y), "5"))
			must(t, errors.Join(feed{l}.Add(x), feed{l}.Delete(gone)))
			record, _ := l.Record(ask("x").Record)
			must(t, l.CheckConfirmed(record))
			noticed(l)
			must(t, feed{l}.Replace(recordList(x, y), "9"))
			if err := l.CheckConfirmed(record); err == nil {
				t.Error("the record is confirmed that was made second")
			}
			if n := l.Stats().Rollbacks; n != 1 {
				t.Errorf("counted %d times", n)
			}
		})
	}
}

// TestRevisionsAreComparedAsNumbers covers the revisions of a write, which is abandoned if its own is not above.
func TestRevisionsAreComparedAsNumbers(t *testing.T) {
	for _, c := range []struct {
		version, sent string
		gone          bool
	}{
		{"10", "9", false}, {"9", "10", true}, {"10", "10", true}, {"18446744073709551617", "18446744073709551616", false},
		{"10", "", false}, {"unknown", "9", false},
	} {
		l := newListedLedger(t)
		l.source = kubeutil.NewVerifiedSource(nil, kubeutil.Verification{})
		if err := l.Acknowledge(c.version, c.sent); errors.Is(err, ipam.ErrUnconfirmed) != c.gone {
			t.Errorf("%s after %q: got %v, want an error: %v", c.version, c.sent, err, c.gone)
		}
	}
}

func TestListOfSameStoreKeepsConfirmations(t *testing.T) {
	l := newLedger(1)
	x, y := allocation("x", "x", "6", "10.0.0.0/28"), allocation("y", "y", "7", "10.0.0.0/28")
	must(t, feed{l}.Replace(recordList(), "5"))
	must(t, feed{l}.Add(x))
	must(t, feed{l}.Replace(recordList(x, y), "8"))
	record, _ := l.Record(ask("x").Record)
	if err := l.CheckConfirmed(record); err != nil || l.Stats().Rollbacks != 0 {
		t.Errorf("got %v, and %d rollbacks", err, l.Stats().Rollbacks)
	}
}

func TestEventsOfAbandonedHistoryAreIgnored(t *testing.T) {
	l := newListedLedger(t)
	ended, reported := false, ""
	l.relist = func() { ended = true }
	l.options.WentBack = func(foundRevision string) { reported = foundRevision }
	l.onRollback("5", "4")
	must(t, feed{l}.Add(allocation("x", "x", "6", "10.0.0.0/28")))
	if _, ok := l.Record(ask("x").Record); ok || !ended || reported != "4" {
		t.Errorf("the record is shown: %t; the watch ended: %t; revision %q is reported", ok, ended, reported)
	}
	unreadable := unreadableOf("bad", "1", "7", "10.0.0.64/27")
	if added, deleted := (feed{l}).Add(unreadable), (feed{l}).Delete(unreadable); added == nil || deleted == nil {
		t.Errorf("an object that cannot be read is added with %v, and deleted with %v", added, deleted)
	}
}

// TestListWithOlderUnseenRecordShowsRollback lists a record whose version the view has passed.
func TestListWithOlderUnseenRecordShowsRollback(t *testing.T) {
	for name, seen := range map[string][]event{
		"a change at revision 8":   {adds(allocation("x", "x", "8", "10.0.0.0/28"))},
		"a deletion at revision 8": {deletes(allocation("x", "x", "8", "10.0.0.0/28"))},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			play(t, l, lists("5", recordList()...))
			play(t, l, seen...)
			play(t, l, lists("9", recordList(allocation("y", "y", "7", "10.0.0.16/28"))...))
			if n := l.Stats().Rollbacks; n != 1 {
				t.Errorf("%d rollbacks are counted, want 1", n)
			}
		})
	}
}

// TestListConfirmsRecordOfUnreadableVersion covers a record that has its block, and whose new version
// cannot be read, after the store went back.
func TestListConfirmsRecordOfUnreadableVersion(t *testing.T) {
	l := newListedLedger(t, allocation("x", "x", "5", "10.0.0.0/28"))
	record, _ := l.Record(ask("x").Record)
	must(t, l.CheckConfirmed(record))
	l.onRollback("7", "6")
	must(t, feed{l}.Replace(recordList(unreadableOf("x", "x", "9", "10.0.0.0/28")), "9"))
	must(t, l.CheckConfirmed(record))
}

func TestRelistEndsWatch(t *testing.T) {
	l, ended := newListedLedger(t), false
	l.relist = func() { ended = true }
	if l.Relist(); !ended || l.Stats().Relists != 1 {
		t.Errorf("the watch ended: %t; counted %d times", ended, l.Stats().Relists)
	}
}

// unreadableOf returns an IPAllocation with a readable block, and without a pool.
func unreadableOf(name, uid, version, block string) *v1alpha1.IPAllocation {
	obj := allocation(name, uid, version, block)
	obj.Spec.PoolRef = nil
	return obj
}

// spaces returns the spaces that have the withheld block: a pool, one in another routing domain,
// one that is seen only later, and a routing domain that nothing has used yet.
func spaces() []ipam.PoolKey {
	return []ipam.PoolKey{key, ipam.PoolNamed("lab"), ipam.LocalPoolNamed("ns", "late"), ipam.DomainNamed("new", ipam.IPv4)}
}

// countBlockedSpaces returns the number of spaces in which the block is not available.
func countBlockedSpaces(t *testing.T, l *Ledger, block string) int {
	t.Helper()
	n := 0
	for _, pool := range spaces() {
		asked := ask("x")
		asked.Pool, asked.Block, asked.Bits = pool, netip.MustParsePrefix(block), ipam.NoLength
		_, err := l.Peek(asked)
		if taken, ok := errors.AsType[*ipam.TakenError](err); ok {
			n++
			if want := (ipam.Holder{Kind: "IPAllocation", Namespace: "ns", Name: "bad"}); taken.Holder != want {
				t.Errorf("%s is held by %s, want %s", block, taken.Holder, want)
			}
		} else if err != nil {
			t.Errorf("%s of %s: %v", block, pool, err)
		}
	}
	return n
}

func TestUnreadableAllocationWithholdsItsBlockInEverySpace(t *testing.T) {
	bad := unreadableOf("bad", "1", "5", "10.0.0.64/27")
	for begin, withhold := range map[string]func(f feed) error{
		"a watch shows it": func(f feed) error { return f.Add(bad) },
		"a list has it":    func(f feed) error { return errors.Join(f.Replace(recordList(bad), "5"), errors.New("counted")) },
		"its block is another than before": func(f feed) error {
			return errors.Join(f.Add(unreadableOf("bad", "1", "4", "10.0.0.128/27")), f.Update(bad))
		},
		"it is shown twice": func(f feed) error { return errors.Join(f.Add(bad), f.Update(bad)) },
	} {
		for end, restore := range map[string]func(f feed) error{
			"it is deleted":         func(f feed) error { return f.Delete(bad) },
			"it is in no list":      func(f feed) error { return errors.Join(f.Replace(recordList(), "6"), errors.New("gone")) },
			"its block is unknown":  func(f feed) error { return f.Update(unreadableWithoutBlock()) },
			"it lies elsewhere now": func(f feed) error { return errors.Join(f.Update(readableAllocation()), errors.New("read")) },
		} {
			t.Run(begin+", then "+end, func(t *testing.T) {
				l := newLedger(1)
				l.Describe(ipam.Pool{Key: ipam.PoolNamed("lab"), Home: ipam.DomainNamed("lab", ipam.IPv4), CIDR: small, Family: ipam.IPv4})
				l.Describe(ipam.Pool{Key: ipam.PoolNamed("elsewhere"), Home: home, CIDR: netip.MustParsePrefix("10.9.0.0/24"), Family: ipam.IPv4})
				must(t, feed{l}.Replace(recordList(), "0"))
				if withhold(feed{l}) == nil {
					t.Fatal("it is read")
				}
				l.Describe(ipam.Pool{Key: ipam.LocalPoolNamed("ns", "late"), Home: ipam.LocalDomainNamed("ns", "default", ipam.IPv4), CIDR: small, Family: ipam.IPv4})
				for block, want := range map[string]int{"10.0.0.64/27": 4, "10.0.0.80/28": 4, "10.0.0.64/26": 4, "10.0.0.95/32": 4, "10.0.0.96/28": 0, "10.0.0.128/27": 0} {
					if got := countBlockedSpaces(t, l, block); got != want {
						t.Errorf("%s cannot be had in %d spaces, want %d", block, got, want)
					}
				}
				mustHold(t, l, ask("a")).Drop() // a block that is freed beside it frees nothing of it
				var freed []string
				l.OnFree(func(pool ipam.PoolKey, block netip.Prefix) { freed = append(freed, pool.Name+" "+block.String()) })
				if restore(feed{l}) == nil {
					t.Fatal("nothing has happened")
				}
				if got := countBlockedSpaces(t, l, "10.0.0.64/27"); got != 0 {
					t.Errorf("at the end it cannot be had in %d spaces", got)
				}
				slices.Sort(freed)
				if want := []string{"lab 10.0.0.64/27", "late 10.0.0.64/27", "p 10.0.0.64/27"}; !slices.Equal(slices.DeleteFunc(freed, func(s string) bool { return s[0] == 'd' }), want) {
					t.Errorf("freed is %q, want %q", freed, want)
				}
				if withhold(feed{l}) == nil || countBlockedSpaces(t, l, "10.0.0.64/27") != 4 {
					t.Error("it is not withheld when it cannot be read again")
				}
			})
		}
	}
}

func unreadableWithoutBlock() *v1alpha1.IPAllocation {
	obj := unreadableOf("bad", "1", "6", "10.0.0.64/27")
	obj.Spec.CIDR = "?"
	return obj
}

// readableAllocation returns the same object in a readable form: it lies in a pool without requests.
func readableAllocation() *v1alpha1.IPAllocation {
	obj := allocation("bad", "1", "6", "10.0.0.64/27")
	obj.Spec.PoolRef.Name = "other"
	return obj
}

func TestUnreadableAllocationIsSkipped(t *testing.T) {
	l := newListedLedger(t, unreadableOf("bad", "1", "5", "10.0.0.0/27"), unreadableOf("worse", "2", "5", "10.0.0.0/30"))
	if h := mustHold(t, l, ask("a")); h.Block.String() != "10.0.0.48/28" {
		t.Errorf("the first free block is %s, want the one after the withheld blocks", h.Block)
	}
	if capacity, _ := l.Capacity(key); capacity.Records != 0 || capacity.Allocated.String() != "32" {
		t.Errorf("the capacity is %+v, want no record, and 32 addresses that are in use", capacity)
	}
	if (feed{l}).Delete(unreadableOf("bad", "1", "6", "10.0.0.0/27")) == nil {
		t.Error("its deletion is not counted")
	}
	if h := mustHold(t, l, ask("b")); h.Block.String() != "10.0.0.16/28" {
		t.Errorf("then the first free block is %s, want the one that the other does not overlap", h.Block)
	}
}
