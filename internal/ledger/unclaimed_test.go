package ledger

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestUnclaimedRecordsOfProjectAreBounded covers one tenant with many namespaces.
func TestUnclaimedRecordsOfProjectAreBounded(t *testing.T) {
	askFor := func(namespace, project, name string, limit int) Ask {
		a := ask(name)
		a.Bits, a.UnclaimedLimit, a.Project = 32, limit, project
		a.Record.Namespace, a.Holder.Namespace = namespace, namespace
		return a
	}
	refused := func(l *Ledger, a Ask, want string) {
		t.Helper()
		if _, err := l.Hold(a); !errors.Is(err, ipam.ErrTooManyUnclaimed) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	t.Run("to a share of the pool", func(t *testing.T) {
		l := newLedger(1) // 240 addresses can be handed out: a share is 30 of them
		must(t, feed{l}.Replace(recordList(), "0"))
		var holds []*Hold
		for n := range 30 {
			holds = append(holds, mustHold(t, l, askFor("team-"+strconv.Itoa(n%10), "red", strconv.Itoa(n), 1000)))
		}
		refused(l, askFor("team-11", "red", "more", 1000), "project red has reached its share of unclaimed allocations in pool p: wait until earlier creates finish")
		mustHold(t, l, askFor("other", "blue", "a", 1000))
		holds[0].Drop()
		mustHold(t, l, askFor("team-11", "red", "more", 1000))
	})
	t.Run("over all pools", func(t *testing.T) {
		l := newLedger(1)
		must(t, feed{l}.Replace(recordList(), "0"))
		mustHold(t, l, askFor("team-1", "red", "a", 2))
		mustHold(t, l, askFor("team-2", "red", "b", 2))
		refused(l, askFor("team-3", "red", "c", 2), "project red has reached its limit of 2 unclaimed allocations: wait until earlier creates finish")
		mustHold(t, l, askFor("team-1", "blue", "d", 2))
		refused(l, askFor("team-1", "green", "e", 2), "namespace team-1 has reached its limit of 2 unclaimed allocations: wait until earlier creates finish")
	})
}

// unclaimedWorld holds a ledger, and the events that it has received.
type unclaimedWorld struct {
	ledger  *Ledger
	random  *rand.Rand
	objects map[ipam.Name]*v1alpha1.IPAllocation
	holds   map[ipam.Name]*Hold
	claimed map[ipam.Name]bool
}

// TestUnclaimedCountsMatchTwin plays random records, holds, claims and lists of three
// namespaces in two projects, and compares the counts with a count over all of them.
func TestUnclaimedCountsMatchTwin(t *testing.T) {
	for seed := range uint64(20) {
		w := &unclaimedWorld{
			ledger: newLedger(seed), random: rand.New(rand.NewPCG(seed, 2)),
			objects: map[ipam.Name]*v1alpha1.IPAllocation{}, holds: map[ipam.Name]*Hold{}, claimed: map[ipam.Name]bool{},
		}
		must(t, feed{w.ledger}.Replace(recordList(), "0"))
		for step := range 400 {
			w.act(t, step)
			if got, want := w.ledger.unclaimed, w.twin(); !maps.Equal(got, want) {
				t.Fatalf("seed %d, step %d:\ngot  %v\nwant %v", seed, step, got, want)
			}
		}
	}
}

func projectOf(namespace string) string {
	return map[string]string{"a": "red", "b": "red", "c": "blue"}[namespace]
}

func (w *unclaimedWorld) act(t *testing.T, step int) {
	t.Helper()
	l := w.ledger
	name := ipam.Name{Namespace: string("abc"[w.random.IntN(3)]), Name: strconv.Itoa(w.random.IntN(5))}
	switch w.random.IntN(9) {
	case 0, 1, 2: // a record, perhaps of a hold
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(w.random.IntN(256))}), 32)
		if h := w.holds[name]; h != nil {
			block = h.Block
		}
		obj := allocation(name.Name, fmt.Sprintf("%s-%d", name, step), strconv.Itoa(step), block.String())
		obj.Namespace, obj.Spec.Project = name.Namespace, projectOf(name.Namespace)
		w.objects[name] = obj
		must(t, feed{l}.Add(obj))
	case 3:
		if obj := w.objects[name]; obj != nil {
			delete(w.objects, name)
			must(t, feed{l}.Delete(obj))
		}
	case 4:
		a := ask(name.Name)
		a.Record, a.Holder.Namespace, a.Bits, a.Project = name, name.Namespace, 32, projectOf(name.Namespace)
		if h, err := l.Hold(a); err == nil {
			w.holds[name] = h
		}
	case 5:
		if h := w.holds[name]; h != nil {
			h.Drop()
			delete(w.holds, name)
		}
	case 6, 7:
		w.claimed[name] = !w.claimed[name]
		l.SetClaimed(name, w.claimed[name])
	case 8:
		var list []any
		for other, obj := range w.objects {
			if w.random.IntN(8) == 0 {
				delete(w.objects, other)
				continue
			}
			list = append(list, obj)
		}
		must(t, feed{l}.Replace(recordList(list...), strconv.Itoa(step)))
	}
}

// twin counts the unclaimed records and holds over all of them.
func (w *unclaimedWorld) twin() map[share]ipam.Usage {
	counts := map[share]ipam.Usage{}
	add := func(name ipam.Name, block netip.Prefix) {
		for _, pool := range []ipam.PoolKey{{}, key} {
			for _, s := range []share{{namespace: name.Namespace, pool: pool}, {project: projectOf(name.Namespace), pool: pool}} {
				counts[s] = counts[s].Add(ipam.UsageOf(block))
			}
		}
	}
	for name, obj := range w.objects {
		if !w.claimed[name] {
			add(name, netip.MustParsePrefix(obj.Spec.CIDR))
		}
	}
	for name, h := range w.holds {
		add(name, h.Block)
	}
	return counts
}
