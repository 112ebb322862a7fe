package queue

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestWaitersAreCountedByQueue(t *testing.T) {
	a, b := ipam.PoolNamed("a"), ipam.PoolNamed("b")
	since := func(n int) time.Time { return time.Unix(int64(n), 0) }
	q := newPoolQueues(4)
	join := func(name string, at int, block string, pools ...ipam.PoolKey) ipam.Holder {
		w := Waiter{Since: since(at), Holder: ipam.Holder{Kind: "IPClaim", Namespace: "team", Name: name}}
		if block != "" {
			w.Request.Block = netip.MustParsePrefix(block)
		}
		q.Join(w, ipam.Wants{Pools: pools, Length: 32})
		return w.Holder
	}
	join("of-both", 30, "", a, b)
	join("of-one", 20, "", b)
	join("of-one-block", 10, "10.0.0.1/32", b)
	refused := join("refused", 5, "", a)
	join("beyond", 40, "", a)
	q.Park(refused, ipam.Awaited{}, nil)
	want := map[CountKey]Count{
		{Pool: a}:               {1, since(30)},
		{Pool: b}:               {3, since(10)},
		{Standing: PassedOver}:  {1, since(5)},
		{Standing: BeyondLimit}: {1, since(40)},
	}
	if diff := cmp.Diff(want, q.Counts()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	q.Remove(refused) // the one beyond the limit is queued instead
	join("missing", 50, "")
	if got := q.Counts()[CountKey{Pool: a}]; got.Waiters != 2 {
		t.Errorf("%d wait for a, want 2", got.Waiters)
	}
	if got := q.Counts()[CountKey{Standing: BeyondLimit}]; got != (Count{1, since(50)}) {
		t.Errorf("beyond the limit: %+v", got)
	}
	for _, name := range []string{"of-both", "of-one"} {
		q.Remove(ipam.Holder{Kind: "IPClaim", Namespace: "team", Name: name})
	}
	if got := q.Counts()[CountKey{Standing: Missing}]; got != (Count{1, since(50)}) {
		t.Errorf("for the missing pool: %+v", got)
	}
}
