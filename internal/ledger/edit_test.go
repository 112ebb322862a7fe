package ledger

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// TestEditHoldsWhatIsItsOwnAlready asks for other blocks for a pool that has some.
func TestEditHoldsWhatIsItsOwnAlready(t *testing.T) {
	edit := func(poolUID string, blocks ...string) Ask {
		a, all := askInDomain("default", blocks[0]), prefixes(blocks...)
		a.Record, a.Holder, a.HolderUID = ipam.Name{Namespace: "system", Name: "edit"}, convert.HolderOfPool(ranges), poolUID
		a.AdditionalBlocks = all[1:]
		return a
	}
	l := newListedLedger(t)
	show(t, l, ownRecord(ranges, "a", "1", "10.9.0.0/30"), ownRecord(ipam.PoolNamed("q"), "q", "2", "10.9.0.16/30"))
	for name, c := range map[string]struct {
		ask   Ask
		taken string
	}{
		"it grows":                 {edit("1", "10.9.0.0/29"), ""},
		"it grows elsewhere":       {edit("1", "10.9.0.0/30", "10.9.0.64/30"), ""},
		"it shrinks":               {edit("1", "10.9.0.0/31"), ""},
		"another pool has a part":  {edit("1", "10.9.0.0/30", "10.9.0.16/31"), "10.9.0.16/30"},
		"a pool made again asks":   {edit("3", "10.9.0.0/29"), "10.9.0.0/30"},
		"a pool not stored asks":   {edit("", "10.9.0.0/29"), "10.9.0.0/30"},
		"it grows into both sides": {edit("1", "10.9.0.0/27"), "10.9.0.16/30"},
	} {
		t.Run(name, func(t *testing.T) {
			hold, err := l.Hold(c.ask)
			taken, isTaken := errors.AsType[*ipam.TakenError](err)
			switch {
			case c.taken == "" && err != nil:
				t.Fatalf("got %v", err)
			case c.taken == "":
				hold.Drop()
			case !isTaken || taken.Overlap.String() != c.taken:
				t.Errorf("got %v, want that %s is in the way", err, c.taken)
			}
		})
	}
	withheldIn := edit("1", "10.0.0.32/27")
	withheldIn.Pool = key
	inPool := ownRecord(ranges, "in-p", "1", "10.0.0.48/28")
	inPool.Spec.RoutingDomain, inPool.Spec.PoolRef = "", &v1alpha1.RecordPoolReference{Name: key.Name}
	show(t, l, inPool)
	_, err := l.Hold(withheldIn)
	if taken, ok := errors.AsType[*ipam.TakenError](err); !ok || !taken.IsWithheld() {
		t.Errorf("what the parent reserves: %v, want that it is not handed out", err)
	}
	former := withheldIn
	former.Block = netip.MustParsePrefix("10.0.0.48/28")
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: netip.MustParsePrefix("10.0.1.0/24"), Family: ipam.IPv4})
	if _, err := l.Hold(former); err == nil {
		t.Error("what lies outside of the parent, since that was edited, is handed out")
	}
	if !isFreeIn(l, home, "10.9.0.64/30") || isFreeIn(l, home, "10.9.0.0/30") {
		t.Error("after the holds are dropped the space is not as before")
	}
	hold := mustHold(t, l, edit("1", "10.9.0.0/30", "10.9.0.64/30"))
	if isFreeIn(l, home, "10.9.0.64/32") {
		t.Error("an additional block is not held")
	}
	show(t, l, ownRecord(ranges, "edit", "1", "10.9.0.0/30", "10.9.0.128/30"))
	if err := hold.Confirm(t.Context(), "uid-of-edit"); !errors.Is(err, ErrLost) {
		t.Errorf("a record of other blocks: %v, want that it is not ours", err)
	}
}

// TestOwnRecordsCountTogetherForProject edits a LocalIPPool at the limit of its project.
func TestOwnRecordsCountTogetherForProject(t *testing.T) {
	local := ipam.LocalPoolNamed("ns", "r")
	own := func(name, project string, blocks ...string) *v1alpha1.IPAllocation {
		o := ownRecord(local, name, "1", blocks...)
		o.Spec.RoutingDomain, o.Spec.PoolRef, o.Spec.Project = "", &v1alpha1.RecordPoolReference{Name: key.Name}, project
		return o
	}
	edit := func(project string, blocks ...string) Ask {
		all := prefixes(blocks...)
		return Ask{
			Pool: key, Block: all[0], AdditionalBlocks: all[1:], Project: project,
			Record: ipam.Name{Namespace: "system", Name: "b"}, Holder: convert.HolderOfPool(local), HolderUID: "1",
		}
	}
	l := newListedLedger(t)
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Limit: ipam.Limit{Addresses: ipam.Maximum{Set: true, Count: space.CountOf64(8)}}})
	check := func(when, project string, blocks, addresses uint64) {
		t.Helper()
		if got := l.recorded[account{project: project, pool: key}]; got != (ipam.Usage{Blocks: space.CountOf64(blocks), Addresses: space.CountOf64(addresses)}) {
			t.Errorf("%s %v are counted for %s, want %d blocks, %d addresses", when, got, project, blocks, addresses)
		}
	}
	show(t, l, own("a", "red", "10.0.0.0/29"))
	carved := edit("red", "10.0.0.0/29")
	carved.Block, carved.Bits = netip.Prefix{}, 29
	for name, ask := range map[string]Ask{
		"more": edit("red", "10.0.0.0/28"), "as much elsewhere": edit("red", "10.0.0.0/30", "10.0.0.8/30"), "as much anywhere": carved,
	} {
		if _, err := l.Hold(ask); !isLimit(err) {
			t.Errorf("%s, until the former record is gone: %v, want that it is too much", name, err)
		}
	}
	hold := mustHold(t, l, edit("red", "10.0.0.0/31", "10.0.0.4/30"))
	b := own("b", "red", "10.0.0.0/31", "10.0.0.4/30")
	show(t, l, b)
	if err := hold.Confirm(t.Context(), "uid-of-b"); err != nil {
		t.Errorf("less than before: %v", err)
	}
	check("with both records", "red", 1, 8)
	must(t, feed{l}.Delete(own("a", "red", "10.0.0.0/29")))
	check("without the former one", "red", 2, 6)
	show(t, l, own("c", "blue", "10.0.0.0/29")) // the namespace has another project now
	check("of another project", "red", 2, 6)
	check("alone", "blue", 1, 8)
	must(t, feed{l}.Delete(b))
	if _, ok := l.recorded[account{project: "red", pool: key}]; ok {
		t.Error("a project without records has an account")
	}
	if n := len(l.held); n > 0 {
		t.Errorf("%d accounts hold something", n)
	}
	r := recordOf(t, own("c", "blue", "10.0.0.0/29"))
	if err := l.CheckRecordLimits(r, ipam.Limit{}); err != nil {
		t.Errorf("as much as the limit: %v", err)
	}
	show(t, l, own("d", "blue", "10.0.0.8/32"))
	err := l.CheckRecordLimits(r, ipam.Limit{})
	if limit, ok := errors.AsType[*ipam.LimitError](err); !ok || limit.Held != (space.Count{}) {
		t.Errorf("more than the limit, in two records: %+v, want that nothing else is held", err)
	}
	c := own("c", "blue", "10.0.0.0/29")
	must(t, errors.Join(feed{l}.Delete(own("d", "blue", "10.0.0.8/32")), feed{l}.Delete(c)))
	late := mustHold(t, l, edit("blue", "10.0.0.0/30", "10.0.0.4/31"))
	show(t, l, c)
	late.Drop()
	must(t, feed{l}.Delete(c))
	if len(l.held) > 0 || len(l.recorded) > 0 {
		t.Errorf("nothing is left, and %v is held, %v recorded", l.held, l.recorded)
	}
}

// TestRecordIsOneUnclaimedBlock asks for more blocks, and more of the pool, than a namespace can have
// unclaimed, but in one record.
func TestRecordIsOneUnclaimedBlock(t *testing.T) {
	l := newListedLedger(t)
	create := func(name string) Ask {
		return Ask{
			Pool: key, Block: netip.MustParsePrefix("10.0.0.128/26"), AdditionalBlocks: prefixes("10.0.0.0/30", "10.0.0.8/30", "10.0.0.16/30", "10.0.0.24/30"),
			Record: ipam.Name{Namespace: "system", Name: name}, Holder: convert.HolderOfPool(ipam.LocalPoolNamed("ns", name)), UnclaimedLimit: 2,
		}
	}
	mustHold(t, l, create("a"))
	next := create("b")
	next.Block, next.AdditionalBlocks = netip.MustParsePrefix("10.0.0.64/32"), nil
	mustHold(t, l, next)
	next.Record.Name, next.Block = "c", netip.MustParsePrefix("10.0.0.65/32")
	if _, err := l.Hold(next); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("a third record: %v, want that it is one too many", err)
	}
}
