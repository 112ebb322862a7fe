package allocator

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestWhoComesBackIsServedBeforeWhoTakesAnyBlock(t *testing.T) {
	waiting := func(name string, second int64, block string) Waiting {
		n := ipam.Name{Namespace: "red", Name: name}
		w := Waiting{Since: time.Unix(second, 0), Holder: HolderOfClaim(n), Request: ipam.Request{Claim: n, Class: "gold"}}
		if block != "" {
			w.Request.Block = netip.MustParsePrefix(block)
		}
		return w
	}
	q := NewQueue()
	anything, back, late := waiting("any", 1, ""), waiting("back", 2, "10.0.0.0/32"), waiting("late", 9, "10.0.0.1/32")
	for _, w := range []Waiting{late, anything, back} {
		q.Join(w)
	}
	pool := ipam.Pool{Key: ipam.PoolNamed("p"), Classes: []string{"gold"}}
	for name, c := range map[string]struct {
		open time.Time
		want []string
	}{
		"before the pool opens, or as long as that is not known": {time.Time{}, []string{"back", "late", "any"}},
		"in the second in which they came":                       {time.Unix(2, 0), []string{"back", "any", "late"}},
		"when it was open before":                                {time.Unix(1, 0), []string{"any", "back", "late"}},
	} {
		t.Run(name, func(t *testing.T) {
			pool.OpenSince = c.open
			served := map[ipam.Holder]bool{}
			for _, want := range c.want {
				first, _ := q.First(pool, func(w Waiting) bool { return !served[w.Holder] })
				if first.Holder.Name != want {
					t.Fatalf("after %d it is %q, want %q", len(served), first.Holder.Name, want)
				}
				served[first.Holder] = true
			}
		})
	}
	q.Leave(back.Holder)
	q.Leave(late.Holder)
	if q.exact != 0 {
		t.Errorf("%d exact ones are left, want none", q.exact)
	}
}

func TestWhoseBlockIsTakenIsToldOnce(t *testing.T) {
	n := ipam.Name{Namespace: "red", Name: "back"}
	w := Waiting{Holder: HolderOfClaim(n), Request: ipam.Request{Claim: n, Class: "gold", Block: netip.MustParsePrefix("10.0.0.0/32")}}
	pool := ipam.Pool{Key: ipam.PoolNamed("p"), Classes: []string{"gold"}, CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	other := ipam.Pool{Key: ipam.PoolNamed("q"), Classes: []string{"gold"}, CIDR: netip.MustParsePrefix("10.0.1.0/24")}
	free, taken := func(netip.Prefix) bool { return true }, func(netip.Prefix) bool { return false }
	q := NewQueue()
	q.Join(w)
	for i, step := range []struct {
		pool ipam.Pool
		free func(netip.Prefix) bool
		told int
	}{{pool, free, 0}, {other, taken, 0}, {pool, taken, 1}, {pool, taken, 0}} {
		if got := q.Outdone(step.pool, step.free); len(got) != step.told {
			t.Errorf("step %d: told %v, want %d", i, got, step.told)
		}
	}
	q.Join(w) // as after each look at it
	if got := q.Outdone(pool, taken); len(got) != 0 {
		t.Errorf("told %v once more", got)
	}
	w.Request.Block = netip.MustParsePrefix("10.0.0.1/32")
	q.Join(w)
	if got := q.Outdone(pool, taken); len(got) != 1 {
		t.Errorf("when it asks for another: told %v, want it", got)
	}
}

func TestWhoeverWaitsIsToldOfTheProjectOfTheirNamespace(t *testing.T) {
	q, c := NewQueue(), NewCatalogue("")
	for _, namespace := range []string{"red", "blue"} {
		n := ipam.Name{Namespace: namespace, Name: "c"}
		q.Join(Waiting{Holder: HolderOfClaim(n), Request: ipam.Request{Claim: n, Class: "gold"}})
	}
	var told []string
	c.Listen(func(e Entry) {
		for _, holder := range q.WaitingFor(e) {
			told = append(told, holder.Namespace)
		}
	})
	for _, step := range []struct {
		project string
		want    int
	}{{"red", 0}, {"red", 0}, {"platform", 1}} {
		if c.SetProject("red", step.project); len(told) != step.want {
			t.Errorf("of the project %s were told %v, want %d", step.project, told, step.want)
		}
	}
	if len(told) == 1 && told[0] != "red" {
		t.Errorf("told was one of %s, want red", told[0])
	}
}

func TestAPlaceIsKeptForWhoIsForeseen(t *testing.T) {
	waiting := func(name string, second int64) Waiting {
		n := ipam.Name{Namespace: "red", Name: name}
		return Waiting{Since: time.Unix(second, 0), Holder: HolderOfClaim(n), Request: ipam.Request{Claim: n, Class: "gold"}}
	}
	pool := ipam.Pool{Key: ipam.PoolNamed("p"), Classes: []string{"gold"}}
	first := func(q *Queue) string {
		w, _ := q.First(pool, func(Waiting) bool { return true })
		return w.Holder.Name
	}
	old, young := waiting("old", 1), waiting("young", 2)
	for name, c := range map[string]struct {
		then  func(*Queue)
		first string // of the line, when those who did not come are taken out
		gone  int
	}{
		"does not come":               {func(*Queue) {}, "young", 1},
		"joins":                       {func(q *Queue) { q.Join(old) }, "old", 0},
		"leaves":                      {func(q *Queue) { q.Leave(old.Holder) }, "young", 0},
		"joins and is foreseen again": {func(q *Queue) { q.Join(old); q.Foresee(old) }, "old", 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue()
			q.Foresee(old)
			q.Join(young)
			if got := first(q); got != "old" {
				t.Errorf("before that, %q is first, want old", got)
			}
			c.then(q)
			if gone := q.LeaveForeseen(); len(gone) != c.gone {
				t.Errorf("%d were taken out, want %d", len(gone), c.gone)
			}
			if got := first(q); got != c.first {
				t.Errorf("%q is first, want %q", got, c.first)
			}
			if gone := q.LeaveForeseen(); len(gone) != 0 {
				t.Errorf("%d were taken out once more", len(gone))
			}
		})
	}
}
