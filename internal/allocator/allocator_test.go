package allocator

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// woken empties the queue of pools to reconcile, and returns them sorted by name.
func woken(a *Allocator) []ipam.PoolKey {
	var keys []ipam.PoolKey
	for a.wake.Len() > 0 {
		key, _ := a.wake.Get()
		a.wake.Done(key)
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b ipam.PoolKey) int { return cmp.Compare(a.Name, b.Name) })
	return keys
}

// TestAPoolIsReconciledWhenItsOwnRecordIsSeen: it may be ready now, and a record of a claim
// changes nothing in that.
func TestAPoolIsReconciledWhenItsOwnRecordIsSeen(t *testing.T) {
	onReplica(t, func(t *testing.T, a *Allocator, over *steady) {
		if got := woken(a); !slices.Equal(got, []ipam.PoolKey{parent().Key}) {
			t.Errorf("at first: %v, want the parent", got)
		}
		child := ipam.PoolNamed("child")
		own := over.stores(t, ownRecord(a, child, "10.0.7.0/24", ipam.StateReleasing))
		over.stores(t, heldBlock("x", "10.0.0.0/28"))
		if got := woken(a); !slices.Equal(got, []ipam.PoolKey{child}) {
			t.Errorf("when a child is recorded: %v, want the child", got)
		}
		if err := a.Keep(t.Context(), own, ipam.Transition{State: ipam.StateBound}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := woken(a); !slices.Contains(got, child) {
			t.Errorf("when its record changes: %v, want the child", got)
		}
	})
}

// TestNobodyIsWokenByAnAllocatorThatIsClosed so that Wake returns.
func TestNobodyIsWokenByAnAllocatorThatIsClosed(t *testing.T) {
	a := unstarted()
	a.Close()
	if _, done := a.wake.Get(); !done {
		t.Error("it goes on")
	}
}
