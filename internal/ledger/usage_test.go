package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

func TestLagIsThatOfOldestUnseenRecord(t *testing.T) {
	l := newLedger(1)
	clock := l.options.Clock.(*clocktesting.FakeClock)
	must(t, feed{l}.Replace(recordList(), "0"))
	h := mustHold(t, l, ask("a"))
	clock.Step(time.Second)
	if lag := l.Lag(); lag != 0 {
		t.Errorf("the lag is %s while nothing is acknowledged", lag)
	}
	confirmed := make(chan error)
	go func() { confirmed <- h.Confirm(t.Context(), "uid") }()
	for !clock.HasWaiters() { //nolint:revive // until Confirm has begun to wait
	}
	clock.Step(3 * time.Second)
	if lag := l.Lag(); lag != 3*time.Second {
		t.Errorf("the lag is %s, want 3s", lag)
	}
	must(t, feed{l}.Add(allocation("a", "uid", "1", h.Block.String())))
	must(t, <-confirmed)
	if lag := l.Lag(); lag != 0 {
		t.Errorf("the lag is %s when all is shown", lag)
	}
}

func TestAccountsCoverOnlyLimitedUsage(t *testing.T) {
	l := newLedger(1)
	obj := allocation("a", "uid", "1", "10.0.0.0/28")
	obj.Spec.Project, obj.Spec.ClassName = "team", "gold"
	must(t, feed{l}.Replace(recordList(obj), "0"))
	got := l.Accounts(func(class string, _ ipam.PoolKey) bool { return class == "gold" })
	want := []Account{{Project: "team", Class: "gold", Usage: ipam.UsageOf(netip.MustParsePrefix("10.0.0.0/28"))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if lists := l.Stats().Lists; lists != 1 {
		t.Errorf("%d lists were counted, want 1", lists)
	}
}

// TestRetainedBlockOfOtherClassIsNotCountedForClaim makes a claim again, with another class and block, whose
// former block is retained.
func TestRetainedBlockOfOtherClassIsNotCountedForClaim(t *testing.T) {
	former, other := setRecordProject("red", allocation("a", "1", "1", "10.0.0.0/28")), setRecordProject("red", allocation("b", "2", "1", "10.0.0.16/30"))
	former.Spec.ClassName, former.Spec.State, other.Spec.ClassName = "gold", v1alpha1.AllocationRetained, "silver"
	l := newListedLedger(t, former, other)
	again := ask("a")
	again.Record.Name, again.Block, again.Project, again.Class = "again", netip.MustParsePrefix("10.0.0.64/30"), "red", "silver"
	again.ClassLimit = ipam.Limit{Addresses: ipam.Maximum{Set: true, Count: space.CountOf64(8)}}
	mustHold(t, l, again).Drop()
	again.Block = netip.MustParsePrefix("10.0.0.64/29")
	if _, err := l.Hold(again); !isLimit(err) {
		t.Errorf("more than the limit: %v", err)
	}
}

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
		l := newListedLedger(t)
		mustHold(t, l, askFor("team-1", "red", "a", 2))
		mustHold(t, l, askFor("team-2", "red", "b", 2))
		refused(l, askFor("team-3", "red", "c", 2), "project red has reached its limit of 2 unclaimed allocations: wait until earlier creates finish")
		mustHold(t, l, askFor("team-1", "blue", "d", 2))
		refused(l, askFor("team-1", "green", "e", 2), "namespace team-1 has reached its limit of 2 unclaimed allocations: wait until earlier creates finish")
	})
}

// TestRecordIsSmall fails when the memory for a record grows: with the claim in the cache it is
// the memory that the operator needs for each block.
func TestRecordIsSmall(t *testing.T) {
	const many, most = 20_000, 500 // bytes
	l := New(Options{})
	texts := make([][]byte, many)
	for i := range texts {
		texts[i] = allocationText(t, i)
	}
	before := heap()
	for _, text := range texts {
		obj := &v1alpha1.IPAllocation{}
		if err := json.Unmarshal(text, obj); err != nil {
			t.Fatal(err)
		}
		if err := (feed{l}).Add(obj); err != nil {
			t.Fatal(err)
		}
		l.SetClaimed(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}, true)
	}
	each := (heap() - before) / many
	runtime.KeepAlive(texts)
	runtime.KeepAlive(l)
	t.Logf("a record takes %d bytes", each)
	if each > most {
		t.Errorf("a record takes %d bytes, want %d at most", each, most)
	}
}

// allocationText returns the nth record as the API server sends it.
func allocationText(t *testing.T, n int) []byte {
	t.Helper()
	obj := convert.Allocation(ipam.Record{
		Name:  ipam.Name{Namespace: "team", Name: fmt.Sprintf("c-%06d-abcdefgh", n)},
		Block: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 12), byte(n >> 4), byte(n << 4)}), 28),
		Pool:  ipam.PoolKey{Kind: ipam.PoolKindIPPool, Name: "corporate"}, Class: "networks",
		Holder:  ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: "team", Name: fmt.Sprintf("c-%06d", n)},
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, RequestedBy: "system:serviceaccount:team:deployer",
	})
	obj.UID, obj.ResourceVersion = types.UID(fmt.Sprintf("6f9619ff-8b86-d011-b42d-%012d", n)), fmt.Sprint(100000+n)
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
