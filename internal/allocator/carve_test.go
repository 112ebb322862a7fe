package allocator

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// openParent shows a replica the parent, which hands out blocks of these lengths.
func openParent(a *Allocator) ipam.Pool {
	pool := parent()
	pool.Lengths = ipam.Lengths{Min: 16, Max: 32}
	a.Catalog.SetPool(pool)
	return pool
}

func TestOrderForPoolNamesItsParent(t *testing.T) {
	child := ipam.Pool{Key: ipam.PoolNamed("child"), Home: parent().Key, Length: 24}
	with := func(change func(*ipam.Pool)) ipam.Pool {
		pool := child
		change(&pool)
		return pool
	}
	for name, c := range map[string]struct {
		pool   ipam.Pool
		before func(*Allocator)
		want   string // the pool that it is carved out of; empty: an error is expected
		err    func(error) bool
	}{
		"a root":  {pool: ipam.Pool{Key: ipam.PoolNamed("root"), Home: parent().Home, CIDR: netip.MustParsePrefix("10.9.0.0/24"), Family: ipam.IPv4}, want: parent().Home.Name},
		"a child": {pool: child, want: "parent"},
		"a child whose parent is missing": {
			pool: with(func(p *ipam.Pool) { p.Home = ipam.PoolNamed("none") }),
			err:  isMissing(v1alpha1.ReasonParentNotReady, `there is no IPPool "none" that this pool may use`),
		},
		"a namespace's child cannot use the parent": {
			pool:   with(func(p *ipam.Pool) { p.Key = ipam.LocalPoolNamed("ns", "child") }),
			before: func(a *Allocator) { a.Catalog.SetProject("ns", "red") },
			err:    isMissing(v1alpha1.ReasonParentNotReady, `there is no IPPool "parent" that this namespace may use`),
		},
		"a child of a namespace that is not known yet": {
			pool: with(func(p *ipam.Pool) { p.Key = ipam.LocalPoolNamed("new", "child") }),
			err:  func(err error) bool { return errors.Is(err, ipam.ErrNotSynced) },
		},
		"as large as its parent": {
			pool: with(func(p *ipam.Pool) { p.Length = 16 }),
			err: func(err error) bool {
				policy, ok := errors.AsType[*ipam.PolicyError](err)
				return ok && policy.Field == "spec.prefixLength" && strings.Contains(policy.Remedy, "is all of the parent 10.0.0.0/16")
			},
		},
		"of a parent that is paused": {
			pool:   child,
			before: func(a *Allocator) { pool := openParent(a); pool.Paused = true; a.Catalog.SetPool(pool) },
			err:    isMissing(v1alpha1.ReasonParentNotReady, "pool parent is paused"),
		},
		"larger than the space that the parent does not withhold": {
			pool: with(func(p *ipam.Pool) { p.Length = 17 }),
			before: func(a *Allocator) {
				pool := openParent(a)
				var ends []space.Range
				for _, block := range []string{"10.0.0.0/24", "10.0.128.0/24"} {
					ends = append(ends, space.RangeOf(netip.MustParsePrefix(block)))
				}
				pool.Withheld = space.NewRanges(pool.CIDR, ends)
				a.Catalog.SetPool(pool)
			},
			err: isMissing(v1alpha1.ReasonCannotFit, "no /17 can be handed out"),
		},
		"larger than the parent hands out": {
			pool:   with(func(p *ipam.Pool) { p.Length = 20 }),
			before: func(a *Allocator) { pool := openParent(a); pool.Lengths.Min = 24; a.Catalog.SetPool(pool) },
			err: func(err error) bool {
				_, ok := errors.AsType[*ipam.PolicyError](err)
				return ok
			},
		},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, _ *steady) {
			openParent(a)
			if c.before != nil {
				c.before(a)
			}
			order, err := a.PoolOrder(c.pool)
			if c.err != nil {
				if !c.err(err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || len(order.Pools) != 1 || order.Pools[0].Key.Name != c.want {
				t.Fatalf("got %+v, %v; want it from %s", order, err, c.want)
			}
			if order.Holder != convert.HolderOfPool(c.pool.Key) || a.withRecordName(order).Record != a.Catalog.RecordOfPool(c.pool.Key) ||
				order.Terms.Family != ipam.IPv4 || order.Terms.Reclaim != ipam.ReclaimDelete || !order.Waiting.IsZero() {
				t.Errorf("got %+v", order)
			}
			place := queue.WaiterOfPool(c.pool, metav1.Now().Time)
			a.Queue.Wait(place)
			if order, err = a.PoolOrder(c.pool); err != nil || !order.Waiting.Since.Equal(place.Since) {
				t.Errorf("queued: got %+v, %v; want its place", order.Waiting, err)
			}
		})
	}
	t.Run("before everything was seen", func(t *testing.T) {
		a := newUnsyncedAllocator()
		if _, err := a.PoolOrder(child); !errors.Is(err, ipam.ErrNotSynced) {
			t.Errorf("got %v, want %v", err, ipam.ErrNotSynced)
		}
	})
}

// isMissing returns a check that an error is a *ipam.MissingError.
func isMissing(reason, message string) func(error) bool {
	return func(err error) bool {
		missing, ok := errors.AsType[*ipam.MissingError](err)
		return ok && missing.Reason == reason && strings.HasPrefix(missing.Message, message)
	}
}

func TestChildPoolNeedsRightToUseParent(t *testing.T) {
	a := newUnsyncedAllocator()
	a.Catalog.SetPool(ipam.Pool{Key: ipam.PoolNamed("parent")})
	a.Catalog.SetPool(ipam.Pool{Key: ipam.LocalPoolNamed("ns", "parent")})
	for name, c := range map[string]struct {
		pool ipam.Pool
		want bool
	}{
		"a root":                                 {ipam.Pool{Key: ipam.LocalPoolNamed("ns", "p"), Home: ipam.DomainNamed("default", ipam.IPv4)}, false},
		"a namespace's, of the platform's":       {ipam.Pool{Key: ipam.LocalPoolNamed("ns", "p"), Home: ipam.PoolNamed("parent")}, true},
		"a namespace's, of an unseen pool":       {ipam.Pool{Key: ipam.LocalPoolNamed("ns", "p"), Home: ipam.PoolNamed("none")}, true},
		"a namespace's, of an unseen pool there": {ipam.Pool{Key: ipam.LocalPoolNamed("ns", "p"), Home: ipam.LocalPoolNamed("ns", "none")}, false},
		"a namespace's, of a pool there":         {ipam.Pool{Key: ipam.LocalPoolNamed("ns", "p"), Home: ipam.LocalPoolNamed("ns", "parent")}, false},
	} {
		if got := a.Catalog.LacksRight(c.pool.ParentRequest()); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestPoolDescendsFromItsAncestors(t *testing.T) {
	a := newUnsyncedAllocator()
	named := ipam.PoolNamed
	for child, home := range map[string]ipam.PoolKey{"a": ipam.DomainNamed("default", ipam.IPv4), "b": named("a"), "c": named("b"), "x": named("y"), "y": named("x")} {
		a.Catalog.SetPool(ipam.Pool{Key: named(child), Home: home})
	}
	for _, c := range []struct {
		pool, ancestor string
		want           bool
	}{{"a", "a", true}, {"b", "a", true}, {"c", "a", true}, {"a", "c", false}, {"b", "c", false}, {"x", "a", false}, {"x", "y", true}, {"none", "a", false}} {
		if got := a.Catalog.Descends(named(c.pool), named(c.ancestor)); got != c.want {
			t.Errorf("%s below %s: %t, want %t", c.pool, c.ancestor, got, c.want)
		}
	}
}

func TestPoolTakesOverOnlyEqualRecordOfItsName(t *testing.T) {
	const uid = "uid"
	for name, c := range map[string]struct {
		change         func(own *ipam.Record, order *Order)
		inUse          bool
		same, replaced bool
		err            error
	}{
		"its own":                                   {change: func(*ipam.Record, *Order) {}, same: true},
		"its own, by the length":                    {change: func(_ *ipam.Record, o *Order) { o.Terms.Block = netip.Prefix{} }, same: true},
		"made before it was stored":                 {change: func(r *ipam.Record, _ *Order) { r.HolderUID = "" }, same: true},
		"a former pool's":                           {change: func(r *ipam.Record, _ *Order) { r.HolderUID = "former" }, replaced: true},
		"a former pool's, of which blocks are held": {change: func(r *ipam.Record, _ *Order) { r.HolderUID = "former" }, inUse: true, same: true},
		"another CIDR, of which blocks are held":    {change: func(r *ipam.Record, _ *Order) { r.Block = netip.MustParsePrefix("10.0.8.0/24") }, inUse: true, err: ipam.ErrPoolInUse},
		"its own, with another CIDR":                {change: func(r *ipam.Record, _ *Order) { r.Block = netip.MustParsePrefix("10.0.8.0/24") }, replaced: true},
		"its own, of another length":                {change: func(_ *ipam.Record, o *Order) { o.Terms.Block, o.Terms.Length = netip.Prefix{}, 25 }, replaced: true},
		"of another parent":                         {change: func(r *ipam.Record, _ *Order) { r.Pool = ipam.PoolNamed("other") }, replaced: true},
		"where none is stored, another request's": {change: func(r *ipam.Record, o *Order) {
			r.HolderUID, o.HolderUID, r.Block = "", "", netip.MustParsePrefix("10.0.8.0/24")
		}, err: ipam.ErrUnconfirmed},
		"where none is stored, a former pool's": {change: func(r *ipam.Record, o *Order) { r.HolderUID, o.HolderUID = "former", "" }, replaced: true},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			pool := openParent(a)
			child := ipam.PoolNamed("child")
			order := Order{Holder: convert.HolderOfPool(child), HolderUID: uid, Record: a.Catalog.RecordOfPool(child)}
			order.Terms = ipam.Terms{Family: ipam.IPv4, Length: 24, Block: netip.MustParsePrefix("10.0.7.0/24"), Reclaim: ipam.ReclaimDelete}
			order.Pools = []ipam.Pool{pool}
			own := order.recordOf(pool, order.Terms.Block)
			c.change(&own, &order)
			own = api.stores(t, own)
			if c.inUse {
				block := heldBlock("x", "10.0.7.0/28")
				block.Pool = child
				api.stores(t, block)
			}
			api.otherObjects = []client.Object{build.Pool("child").Obj()}
			record, err := a.Allocate(t.Context(), order)
			synctest.Wait()
			if !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			stored := api.stored(own.Name)
			switch {
			case stored == nil:
				t.Fatal("there is no record any more")
			case c.err != nil && string(stored.UID) != own.UID:
				t.Errorf("stored is %+v, want the former record", stored)
			case c.err != nil:
			case record.UID != string(stored.UID) || (record.UID == own.UID) != c.same || c.same == c.replaced:
				t.Errorf("got %+v, want the former record: %t", record, c.same)
			case string(stored.Spec.ClaimRef.UID) != order.HolderUID:
				t.Errorf("stored is %+v, want it with the pool's UID", stored.Spec)
			}
		})
	}
}

func TestTakeoverSkipsTerminatingRecord(t *testing.T) {
	order := childOrder(newUnsyncedAllocator(), 24)
	record := order.recordOf(parent(), netip.MustParsePrefix("10.0.7.0/24"))
	if !order.matchesRecord(record) {
		t.Error("it does not match its own record")
	}
	record.Terminating = true
	if order.matchesRecord(record) {
		t.Error("it matches one that is being deleted")
	}
	record.Terminating, order.Pools = false, nil
	if order.matchesRecord(record) {
		t.Error("it matches without any parent")
	}
}

func TestInterruptedCarveReturnsError(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		order := childOrder(a, 24)
		order.Terms.Block = netip.MustParsePrefix("10.0.7.0/24")
		order.existsAs("uid")
		own := ownRecord(a, ipam.PoolNamed("child"), "10.0.8.0/24", ipam.StateBound)
		api.stores(t, own)
		api.calls(map[string]error{"patch": errCut})
		if _, err := a.Allocate(t.Context(), order); !errors.Is(err, errCut) {
			t.Errorf("got %v, want %v", err, errCut)
		}
		api.refuses = nil
		api.terminates(t, own)
	})
}

func TestUnservableRequestReturnsReason(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		a.Catalog.SetProject("ns", "ns")
		pool := openParent(a)
		a.Catalog.SetPool(ipam.Pool{
			Key: ipam.PoolNamed("withheld"), CIDR: netip.MustParsePrefix("10.0.0.0/24"), Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 24, Max: 32}, OnExhaustion: ipam.OnExhaustionWait,
			Withheld: space.NewRanges(netip.MustParsePrefix("10.0.0.0/24"), []space.Range{space.RangeOf(netip.MustParsePrefix("10.0.0.0/24"))}),
		})
		a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "foreign", Provisioner: "example.com/ipam", Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}}})
		a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "west", Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 20, Max: 28}}})
		a.Catalog.SetPool(ipam.Pool{Key: ipam.PoolNamed("waits"), Home: ipam.PoolNamed("none"), Lengths: ipam.Lengths{Min: 0, Max: 128}, Classes: []string{"west"}})
		claim := ipam.Name{Namespace: "ns", Name: "x"}
		none := func(map[string]string) bool { return false }
		for name, c := range map[string]struct {
			request ipam.Request
			want    string
		}{
			"nothing is missing":                           {ipam.Request{Claim: claim, Pool: pool.Key, Length: 28}, ""},
			"its namespace is not known":                   {ipam.Request{Claim: ipam.Name{Namespace: "new", Name: "x"}, Pool: pool.Key, Length: 28}, "the namespace new has not been seen"},
			"a class whose provisioner has made no pool":   {ipam.Request{Claim: claim, Class: "foreign", Length: 28}, `no IPv4 pool that this namespace may use backs the IPClass "foreign": wait until its provisioner, example.com/ipam, has made one, or name another class`},
			"a class that is not there":                    {ipam.Request{Claim: claim, Class: "none"}, `there is no IPClass "none" that this namespace may use`},
			"its selector selects nothing":                 {ipam.Request{Claim: claim, Selects: none, Length: 28}, "spec.poolSelector selects no pool that this namespace may use"},
			"a longer block than there are":                {ipam.Request{Claim: claim, Pool: pool.Key, Length: 33}, "33"},
			"a block of another pool":                      {ipam.Request{Claim: claim, Pool: pool.Key, Block: netip.MustParsePrefix("10.1.0.0/28"), Length: ipam.NoLength}, "10.1.0.0/28"},
			"nothing can ever be free":                     {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("withheld"), Length: 28}, "no /28 can be handed out"},
			"a class whose pool waits for its parent":      {ipam.Request{Claim: claim, Class: "west", Length: 28}, "pool waits has no CIDR yet"},
			"a family of a pool that waits for its parent": {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("waits"), Family: ipam.IPv4, Length: 28}, "pool waits has no CIDR yet"},
			"a block of a pool that waits for its parent":  {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("waits"), Block: netip.MustParsePrefix("10.1.0.0/28"), Length: ipam.NoLength}, "pool waits has no CIDR yet"},
			"a pool that is not there":                     {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("none"), Length: 28}, `there is no IPPool "none" that this namespace may use`},
		} {
			res, err := a.Resolve(t.Context(), c.request)
			if c.want == "" && (err != nil || !slices.Equal(keysOf(res.Pools), []ipam.PoolKey{pool.Key})) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(res.Pools) > 0) {
				t.Errorf("%s: got %+v, %v; want %q", name, res.Pools, err, c.want)
			}
		}
		a.Queue.AddSource(func() bool { return false })
		if _, err := a.Resolve(t.Context(), ipam.Request{Claim: claim, Pool: pool.Key, Length: 28}); !errors.Is(err, ipam.ErrNotSynced) {
			t.Errorf("before all has been seen: got %v, want %v", err, ipam.ErrNotSynced)
		}
	})
}

func keysOf(pools []ipam.Pool) []ipam.PoolKey {
	keys := make([]ipam.PoolKey, len(pools))
	for i, pool := range pools {
		keys[i] = pool.Key
	}
	return keys
}
