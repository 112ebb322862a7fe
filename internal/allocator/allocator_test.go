package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestCloseEndsBackgroundWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newUnsyncedAllocator()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.Queue.Run(context.Background())
		}()
		over := false
		a.background.Go(func() {
			<-ended
			over = true
		})
		a.Close()
		if !over {
			t.Error("work in the background is going on")
		}
	})
}

// TestRecordOfEarlierAttemptIsTransientForSameClaim sends a request again that failed after it was
// recorded, as clients do after an answer that asks for it.
func TestRecordOfEarlierAttemptIsTransientForSameClaim(t *testing.T) {
	for name, c := range map[string]struct {
		claim  string
		state  ipam.State
		origin Origin
		want   func(error) bool
	}{
		"of the same claim":                 {"x", ipam.StateBound, OriginAdmission, ipam.IsTransient},
		"of another claim":                  {"y", ipam.StateBound, OriginAdmission, isA[*ipam.TakenError]},
		"cooling down, which may take long": {"x", ipam.StateCooling, OriginAdmission, isA[*ipam.TakenError]},
		"seen by a controller, which waits": {"x", ipam.StateBound, OriginController, isA[*ipam.TakenError]},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			openParent(a)
			earlier := heldBlock("x", "10.0.0.0/28")
			earlier.State = c.state
			earlier = api.stores(t, earlier)
			order := claimOrder(c.claim, 28)
			order.Terms.Block, order.Origin, order.HolderUID = earlier.Block, c.origin, "uid"
			if c.origin == OriginAdmission {
				order.HolderUID = ""
			}
			_, err := a.Allocate(t.Context(), order)
			if !c.want(err) {
				t.Errorf("got %v", err)
			}
			if isEarlier := errors.Is(err, ipam.ErrEarlierAttempt); isEarlier != (name == "of the same claim") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func verdicts(results []ipam.PoolResult) []string {
	var all []string
	for _, r := range results {
		all = append(all, r.Pool.Name+" "+string(r.Verdict()))
	}
	return all
}

// TestPoolResultsDoNotDependOnOrder covers the order of pools, which changes with
// their utilization.
func TestPoolResultsDoNotDependOnOrder(t *testing.T) {
	full, limit := &ipam.ExhaustedError{Largest: 26}, &ipam.LimitError{Subject: "pool c", Project: "red", Unit: "block"}
	says := map[string]error{"a": full, "b": ledger.ErrOutOfTurn, "c": limit, "d": full}
	order := claimOrder("x", 24)
	order.PassedOver = []ipam.PoolResult{{Pool: ipam.PoolNamed("aa"), Err: &ipam.MissingError{Verdict: ipam.Paused}}}
	message := ""
	for _, tried := range [][]string{{"a", "b", "c", "d"}, {"d", "c", "b", "a"}, {"c", "a", "d", "b"}} {
		s := order.newShortage()
		for _, name := range tried {
			if !s.addResult(ipam.Pool{Key: ipam.PoolNamed(name)}, says[name]) {
				t.Errorf("%v is not taken", says[name])
			}
		}
		err := s.err()
		want := []string{"a NoFreeBlock", "b OutOfTurn", "c LimitReached", "d NoFreeBlock", "aa Paused"}
		if got := verdicts(ipam.PoolsOf(err)); !slices.Equal(got, want) {
			t.Errorf("tried in the order %v: got %q, want %q", tried, got, want)
		}
		if message == "" {
			message = err.Error()
		}
		if err.Error() != message {
			t.Errorf("tried in the order %v: %s\nbefore: %s", tried, err, message)
		}
	}
}

func TestDryRunReportsWhetherEachPoolFits(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		api.stores(t, heldBlock("y", "10.0.0.0/25"))
		unknown := parent()
		unknown.Key = ipam.PoolNamed("a-unknown")
		passed := ipam.PoolResult{Pool: ipam.PoolNamed("0-paused"), Err: &ipam.MissingError{Verdict: ipam.Paused}}
		for length, want := range map[int]string{28: "Fits", parent().CIDR.Bits(): "NoFreeBlock"} {
			order := claimOrder("x", length)
			order.Pools = []ipam.Pool{parent(), unknown}
			order.PassedOver = []ipam.PoolResult{passed}
			got := verdicts(a.Consider(order, 10))
			if all := []string{"a-unknown NotReady", parent().Key.Name + " " + want, "0-paused Paused"}; !slices.Equal(got, all) {
				t.Errorf("/%d: got %q, want %q", length, got, all)
			}
			if few := a.Consider(order, 0); len(few) != 3 || few[0].Err != nil {
				t.Errorf("of none the ledger is to be asked: got %v", few)
			}
		}
		if records := api.server.records(); len(records) != 1 {
			t.Errorf("%d records are stored, want 1", len(records))
		}
	})
}

func TestFamilyOfOrderIsOfTermsThenBlockThenPool(t *testing.T) {
	block := netip.MustParsePrefix("2001:db8::/64")
	for _, c := range []struct {
		terms ipam.Terms
		pools []ipam.Pool
		want  ipam.Family
	}{
		{ipam.Terms{Family: ipam.IPv4, Block: block}, nil, ipam.IPv4},
		{ipam.Terms{Block: block}, []ipam.Pool{parent()}, ipam.IPv6},
		{ipam.Terms{}, []ipam.Pool{parent()}, ipam.IPv4},
		{ipam.Terms{}, nil, ""},
	} {
		order := Order{}
		order.Terms, order.Pools = c.terms, c.pools
		if got := order.family(); got != c.want {
			t.Errorf("%+v, %d pools: %q, want %q", c.terms, len(c.pools), got, c.want)
		}
	}
}

// loadedServer implements an API server whose calls take longer the more calls it has.
type loadedServer struct {
	*steady
	each time.Duration

	mu   sync.Mutex
	free time.Time // the time at which all calls so far are done
	most int
	now  int
}

// Create implements client.Writer.
func (c *loadedServer) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	if now := time.Now(); c.free.Before(now) {
		c.free = now
	}
	c.free = c.free.Add(c.each)
	done := c.free
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	<-time.After(time.Until(done))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.steady.Create(ctx, obj, opts...)
}

// newcomer returns the order of a claim that does not exist yet.
func newcomer(n int) Order {
	holder := convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: fmt.Sprintf("c-%d", n)})
	order := Order{Holder: holder, Record: newAttempt(holder)}
	order.Terms = ipam.Terms{Family: ipam.IPv4, Length: 28, Reclaim: ipam.ReclaimDelete}
	order.Pools = []ipam.Pool{parent()}
	return order
}

// TestCrowdIsServedAtAPIServerSpeed sends several times as many claims as can be recorded
// in the time that each has. Each recorded claim is confirmed; a refused claim has cost nothing.
func TestCrowdIsServedAtAPIServerSpeed(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		slow := &loadedServer{steady: api, each: 20 * time.Millisecond}
		a.Client = slow
		const crowd = 1000
		var served, refused, failed int
		var mu sync.Mutex
		var all sync.WaitGroup
		began := time.Now()
		for n := range crowd {
			all.Go(func() {
				_, err := a.Allocate(t.Context(), newcomer(n))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					served++
				case errors.Is(err, ipam.ErrCrowded):
					refused++
				default:
					failed++
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		if slow.most != MaxConcurrentAttempts {
			t.Errorf("%d records were made at once, want %d", slow.most, MaxConcurrentAttempts)
		}
		if failed > 0 || served+refused != crowd {
			t.Errorf("%d served, %d refused, %d failed", served, refused, failed)
		}
		// It is never idle: what it can do in the time is done.
		if can := int(took / slow.each); served < can-1 {
			t.Errorf("%d served in %v, the API server can store %d", served, took, can)
		}
		synctest.Wait()
		if stored := len(api.server.records()); stored != served {
			t.Errorf("%d records are stored for %d claims", stored, served)
		}
	})
}

func TestExistingClaimDoesNotQueueBehindCrowd(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		a.Client = &loadedServer{steady: api, each: 20 * time.Millisecond}
		var all sync.WaitGroup
		for n := range 1000 {
			all.Go(func() { _, _ = a.Allocate(t.Context(), newcomer(n)) })
		}
		synctest.Wait()
		order := newcomer(1000)
		order.existsAs("uid")
		began := time.Now()
		if _, err := a.Allocate(t.Context(), order); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > attemptTimeout {
			t.Errorf("it took %v", took)
		}
		all.Wait()
	})
}

// TestPoolSeenBeforeItsRecordBlocksNoClaim lets the watch of pools be ahead of the
// watch of records: the child pool seems to wait for the CIDR that it has.
func TestPoolSeenBeforeItsRecordBlocksNoClaim(t *testing.T) {
	for name, c := range map[string]struct {
		shown time.Duration // when its record is shown
		want  string        // empty: the claim waits
	}{
		"its record is shown a moment later": {20 * time.Millisecond, "10.0.0.4/30"},
		"it has none: it waits indeed":       {time.Hour, ""},
	} {
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			s.open()
			child := build.Pool("child").Child("p", 30).CIDR("10.0.0.0/30").Obj()
			child.UID, child.ResourceVersion = "child-uid", "5"
			waiting, errs := convert.Pool(child)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			s.allocator.Catalog.SetPool(waiting)
			s.allocator.Queue.Wait(queue.WaiterOfPool(waiting, time.Time{}))
			stop := time.AfterFunc(c.shown, func() {
				own := ownRecord(s.allocator, ipam.PoolNamed("child"), "10.0.0.0/30", ipam.StateBound)
				own.Pool = s.pool.Key
				s.creates(t, own)
			}).Stop
			defer stop()
			began := time.Now()
			record, err := s.allocator.Allocate(s.t.Context(), s.order("newcomer", 30))
			if c.want != "" && (err != nil || record.Block.String() != c.want) || c.want == "" && !ipam.IsNoRoom(err) {
				t.Errorf("got %s, %v; want %q", record.Block, err, c.want)
			}
			if took := time.Since(began); took != min(c.shown, patience) {
				t.Errorf("it took %v", took)
			}
			synctest.Wait()
		})
	}
}

// TestAllocationWaitsForUnseenRelease covers a pool with few records, for each of which
// the claim is read.
func TestAllocationWaitsForUnseenRelease(t *testing.T) {
	going := claimNamed("former", "former")
	going.Spec.AllocationName, going.DeletionTimestamp, going.Finalizers = "former-record", new(metav1.Now()), []string{"x"}
	lives := claimNamed("former", "former")
	lives.Spec.AllocationName = "former-record"
	other := claimNamed("former", "another")
	other.Spec.AllocationName = "another-record"
	for name, c := range map[string]struct {
		claim []client.Object
		fails error
		kind  string
		waits time.Duration // if nothing is released
	}{
		"its claim is being deleted":             {[]client.Object{going}, nil, "IPClaim", releaseTimeout},
		"its claim is gone":                      {nil, nil, "IPClaim", releaseTimeout},
		"its claim has another":                  {[]client.Object{other}, nil, "IPClaim", releaseTimeout},
		"its claim lives":                        {[]client.Object{lives}, nil, "IPClaim", patience},
		"its claim cannot be read":               {nil, errCut, "IPClaim", patience},
		"its holder is of another kind":          {nil, nil, convert.AddressClaimKind, patience},
		"the claim must not wait":                {[]client.Object{lives}, nil, "IPClaim", 0},
		"the claim must not wait, and that goes": {[]client.Object{going}, nil, "IPClaim", releaseTimeout},
	} {
		for _, released := range []bool{false, true} {
			runNamedOnReplica(t, fmt.Sprintf("%s, released: %t", name, released), func(t *testing.T, a *Allocator, api *steady) {
				former := heldBlock("former", "10.0.0.0/16")
				former.Name.Name, former.Holder.Kind, former.HolderUID = "former-record", c.kind, "former"
				former = api.stores(t, former)
				api.otherObjects = c.claim
				api.calls(map[string]error{"get": c.fails})
				order := claimOrder("x", 28)
				order.Terms.OnExhaustion = ipam.OnExhaustionWait
				if strings.HasPrefix(name, "the claim must not wait") {
					order.Terms.OnExhaustion = ipam.OnExhaustionReject
				}
				const soon = 20 * time.Millisecond
				if released {
					go func() {
						<-time.After(soon)
						if err := a.Release(t.Context(), former); err != nil {
							t.Error(err)
						}
					}()
				}
				began := time.Now()
				record, err := a.Allocate(t.Context(), order)
				took := time.Since(began)
				if served := released && c.waits > soon; served && (err != nil || took != soon || record.Block.Bits() != 28) || !served && (!ipam.IsNoRoom(err) || took != c.waits) {
					t.Errorf("got %s, %v after %v", record.Block, err, took)
				}
				if record.Name == order.Record {
					t.Error("the second attempt uses the name of the first, whose record may be about to go")
				}
				<-time.After(time.Second)
			})
		}
	}
}
