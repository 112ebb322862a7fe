package live

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// objects holds the stored objects of an API server, by the key that names them.
type objects map[string]client.Object

// put stores an object as an API server does, and delivers it.
func (o objects) put(t *testing.T, l *Live, obj client.Object) {
	t.Helper()
	key := fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())
	obj.SetUID(types.UID(key))
	obj.SetResourceVersion(fmt.Sprint(rand.Uint64()))
	obj.SetGeneration(int64(rand.Uint32()))
	o[key] = obj
	for _, store := range storesOf(l, obj) {
		if err := store.Update(obj.DeepCopyObject()); err != nil {
			t.Fatal(err)
		}
	}
}

func (o objects) remove(t *testing.T, l *Live, key string) {
	t.Helper()
	for _, store := range storesOf(l, o[key]) {
		if err := store.Delete(o[key].DeepCopyObject()); err != nil {
			t.Fatal(err)
		}
	}
	delete(o, key)
}

// storesOf returns the stores to which an object is delivered: an IPClaim as one of a Cluster, too.
func storesOf(l *Live, obj client.Object) []cache.ReflectorStore {
	switch obj.(type) {
	case *v1alpha1.IPPool:
		return []cache.ReflectorStore{l.poolStore(ipam.PoolKindIPPool)}
	case *v1alpha1.LocalIPPool:
		return []cache.ReflectorStore{l.poolStore(ipam.PoolKindLocalIPPool)}
	case *incluster.InClusterIPPool:
		return []cache.ReflectorStore{l.poolStore(ipam.PoolKindInClusterIPPool)}
	case *v1alpha1.IPAllocation:
		return []cache.ReflectorStore{l.recordStore()}
	case *v1alpha1.IPClaim:
		return []cache.ReflectorStore{l.claimStore(), l.clusterClaimStore()}
	case *v1alpha1.IPClass:
		return []cache.ReflectorStore{l.classStore()}
	case *ipamv1.IPAddressClaim:
		return []cache.ReflectorStore{l.addressClaimStore()}
	default:
		panic(fmt.Sprintf("%T is not watched", obj))
	}
}

// allocation returns the record of a block.
func allocation(pool ipam.PoolKey, name, block string, holder ipam.Holder) *v1alpha1.IPAllocation {
	return convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: name}, Pool: pool, Block: netip.MustParsePrefix(block), Holder: holder,
		Purpose: purposeOf(holder), State: ipam.StateBound, Reclaim: ipam.ReclaimDelete,
	})
}

func purposeOf(holder ipam.Holder) ipam.Purpose {
	if holder.IsPool() {
		return ipam.PurposePool
	}
	return ipam.PurposeClaim
}

func claimed(pool, name, block string) *v1alpha1.IPAllocation {
	return allocation(ipam.PoolNamed(pool), name, block, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: name}))
}

// follower puts the messages of a subscription together.
type follower struct {
	pools  map[string]Pool
	blocks map[string]Block
	claims map[string]Waiting
}

func followerOf(s *Subscription) *follower {
	f := &follower{map[string]Pool{}, map[string]Block{}, map[string]Waiting{}}
	for blocks := range s.Blocks() {
		f.take(&Change{blocks: blocks})
	}
	f.take(&Change{pools: s.Pools, claims: s.Waiting})
	return f
}

func (f *follower) take(c *Change) {
	for _, pool := range c.pools {
		f.pools[pool.ID] = pool
	}
	for _, block := range c.blocks {
		f.blocks[block.ID] = block
	}
	for _, claim := range c.claims {
		f.claims[claim.ID] = claim
	}
	for _, id := range c.gone.Pools {
		delete(f.pools, id)
	}
	for _, id := range c.gone.Blocks {
		delete(f.blocks, id)
	}
	for _, id := range c.gone.Claims {
		delete(f.claims, id)
	}
}

// mentions returns the IDs of pools that any object mentions.
func (f *follower) mentions() []string {
	var all []string
	for _, pool := range f.pools {
		all = append(all, pool.Parent)
	}
	for _, block := range f.blocks {
		all = append(all, block.Pool, block.Child)
	}
	for _, claim := range f.claims {
		all = append(all, claim.Pools...)
	}
	return slices.DeleteFunc(all, func(id string) bool { return id == "" })
}

// TestSubscriberStateMatchesFreshSubscription changes pools, blocks, claims and classes at random, and
// compares the state that a subscriber has put together from changes with that of a new subscriber
// of a Live that has just read the same objects.
func TestSubscriberStateMatchesFreshSubscription(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random, stored := rand.New(rand.NewPCG(seed, 0)), objects{}
			l := newLive(clock.RealClock{})
			subscription := l.Subscribe()
			following := followerOf(subscription)
			for step := range 120 {
				change(t, l, random, stored)
				if random.IntN(3) > 0 {
					time.Sleep(usageEvery) // the usage of every pool is due
					l.publish()
				}
				for len(subscription.changes) > 0 {
					following.take(<-subscription.changes)
				}
				if step%10 != 9 {
					continue
				}
				time.Sleep(usageEvery)
				l.publish()
				for len(subscription.changes) > 0 {
					following.take(<-subscription.changes)
				}
				fresh := newLive(clock.RealClock{})
				for _, obj := range maps.Clone(stored) {
					stored.put(t, fresh, obj)
				}
				want := followerOf(fresh.Subscribe())
				if diff := cmp.Diff(want, following, cmp.AllowUnexported(follower{})); diff != "" {
					t.Fatalf("seed %d, step %d: (-begins +follows)\n%s", seed, step, diff)
				}
				for _, id := range following.mentions() {
					if _, ok := following.pools[id]; !ok {
						t.Fatalf("seed %d, step %d: %s is mentioned, and is not among the pools", seed, step, id)
					}
				}
			}
		})
	}
}

// change makes one of the possible changes.
func change(t *testing.T, l *Live, random *rand.Rand, stored objects) {
	n := random.IntN(6)
	root, child := fmt.Sprint("root-", n%3), fmt.Sprint("child-", n)
	switch random.IntN(16) {
	case 0:
		stored.put(t, l, build.Pool(root).CIDR(fmt.Sprintf("10.%d.0.0/16", n%3)).Domain([]string{"default", "lab"}[random.IntN(2)]).
			Reserved(fmt.Sprintf("10.%d.%d.0/24", n%3, random.IntN(4))).Classes("small").Obj())
	case 1:
		stored.put(t, l, build.Pool(child).Child(root, 24).Classes("small").Obj())
	case 2:
		stored.put(t, l, allocation(ipam.PoolNamed(root), "of-"+child, fmt.Sprintf("10.%d.%d.0/24", n%3, n), convert.HolderOfPool(ipam.PoolNamed(child))))
	case 3, 4, 5:
		stored.put(t, l, claimed(root, fmt.Sprint("r", n), fmt.Sprintf("10.%d.%d.0/28", n%3, random.IntN(8))))
	case 6:
		stored.put(t, l, claimed(child, fmt.Sprint("c", n), fmt.Sprintf("10.%d.%d.%d/32", n%3, n, random.IntN(4))))
	case 7:
		stored.put(t, l, build.Claim("team", fmt.Sprint("waits-", n)).Class("small").Length(24+int32(n%2)).Obj())
	case 8:
		stored.put(t, l, build.AddressClaim("team", fmt.Sprint("machine-", n)).Pool(child).Obj())
	case 9:
		stored.put(t, l, build.Class("small").Default().Obj())
	case 10:
		stored.put(t, l, build.Pool(fmt.Sprint("own-", n)).CIDR("172.16.0.0/24").In("team"))
	case 12:
		pool := build.Pool("ranges").CIDR("10.1.0.0/16").Occupies("10.1.200.0/30", fmt.Sprintf("10.1.200.8-10.1.200.%d", 8+n)).Obj()
		pool.Spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "root-1"}
		stored.put(t, l, pool)
	case 14:
		stored.put(t, l, claimed("ranges", fmt.Sprint("in-ranges-", n), fmt.Sprintf("10.1.200.%d/32", 8+n)))
	case 13:
		own := allocation(ipam.PoolNamed("root-1"), "of-ranges", "10.1.200.0/30", convert.HolderOfPool(ipam.PoolNamed("ranges")))
		own.Spec.AdditionalCIDRs = []string{"10.1.200.8/30", "10.1.200.12/31"}
		stored.put(t, l, own)
	case 11:
		stored.put(t, l, networkClaim(fmt.Sprint("r", n), []string{"", "prod", "dev"}[random.IntN(3)]))
	default:
		for _, key := range slices.Sorted(maps.Keys(stored)) {
			if random.IntN(len(stored)) < 2 {
				stored.remove(t, l, key)
			}
		}
	}
}

// TestRecordOfSeveralBlocksIsShownAsEach shows, and then removes, a record of three blocks.
func TestRecordOfSeveralBlocksIsShownAsEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored, l := objects{}, newLive(clock.RealClock{})
		stored.put(t, l, build.Pool("root").CIDR("10.1.0.0/24").Obj())
		pool := build.Pool("a").CIDR("10.1.0.0/24").Occupies("10.1.0.10-10.1.0.13", "10.1.0.16-10.1.0.19").Obj()
		pool.Spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "root"}
		stored.put(t, l, pool)
		subscription := l.Subscribe()
		f := followerOf(subscription)
		own := allocation(ipam.PoolNamed("root"), "of-a", "10.1.0.10/31", convert.HolderOfPool(ipam.PoolNamed("a")))
		own.Spec.AdditionalCIDRs = []string{"10.1.0.12/31", "10.1.0.16/30"}
		stored.put(t, l, own)
		follow := func() *follower {
			time.Sleep(usageEvery)
			l.publish()
			for len(subscription.changes) > 0 {
				f.take(<-subscription.changes)
			}
			return f
		}
		var got []string
		for id, block := range follow().blocks {
			got = append(got, fmt.Sprint(strings.TrimPrefix(id, string(own.UID)), " ", block.CIDR, " ", block.Pool, " ", block.Child))
		}
		slices.Sort(got)
		want := []string{" 10.1.0.10/31 IPPool/root IPPool/a", "/10.1.0.12/31 10.1.0.12/31 IPPool/root IPPool/a", "/10.1.0.16/30 10.1.0.16/30 IPPool/root IPPool/a"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("blocks (-want +got):\n%s", diff)
		}
		if usage := f.pools["IPPool/root"].Usage; usage.Carved != "8" || usage.Free != "248" {
			t.Errorf("the parent has the usage %+v, want 8 carved and 248 free", usage)
		}
		if a := f.pools["IPPool/a"]; a.Usage.Total != "8" || a.First != "10.1.0.10" || a.Last != "10.1.0.19" || fmt.Sprint(a.Withheld) != "[{10.1.0.14 10.1.0.15 not of this pool}]" {
			t.Errorf("the pool has the usage %+v, reaches from %s to %s, and withholds %v", a.Usage, a.First, a.Last, a.Withheld)
		}
		stored.remove(t, l, string(own.UID))
		if left := follow().blocks; len(left) > 0 {
			t.Errorf("blocks %v are left", left)
		}
	})
}

// TestChangesAreBatchedAndUsageIsThrottled records a thousand blocks, one every
// millisecond.
func TestChangesAreBatchedAndUsageIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored, l := objects{}, newLive(clock.RealClock{})
		stored.put(t, l, build.Pool("p").CIDR("10.0.0.0/16").Obj())
		subscription := l.Subscribe()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go l.Run(ctx)
		for i := range 1000 {
			stored.put(t, l, claimed("p", fmt.Sprint("b", i), fmt.Sprintf("10.0.%d.%d/32", i/256, i%256)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * usageEvery)
		synctest.Wait()
		changes, usages, blocks, last := len(subscription.changes), 0, 0, Pool{}
		for len(subscription.changes) > 0 {
			c := <-subscription.changes
			usages, blocks = usages+len(c.pools), blocks+len(c.blocks)
			for _, pool := range c.pools {
				last = pool
			}
		}
		if most := 1000/50 + 3; changes > most || changes < 10 {
			t.Errorf("%d changes in a second and a bit, want %d at most", changes, most)
		}
		if usages > 3 || last.Usage.Held != "1000" || last.Usage.Free != "64536" {
			t.Errorf("the pool was published %d times, last with %+v", usages, last.Usage)
		}
		if blocks != 1000 {
			t.Errorf("%d blocks were published, want each once", blocks)
		}
	})
}

// TestSlowSubscriberIsDisconnected does not read the published changes.
func TestSlowSubscriberIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored, l := objects{}, newLive(clock.RealClock{})
		slow, quick := l.Subscribe(), l.Subscribe()
		taken := 0
		for i := range mostChanges + 1 {
			stored.put(t, l, claimed("p", fmt.Sprint("b", i%7), "10.0.0.0/32"))
			l.publish()
			for len(quick.changes) > 0 {
				quick.Taken(<-quick.changes)
				taken++
			}
		}
		left := 0
		for range slow.Changes() { // it is closed
			left++
		}
		if left != mostChanges || len(l.subscribers) != 1 {
			t.Errorf("the slow one had %d changes waiting, want %d; %d subscribers are left, want the other one", left, mostChanges, len(l.subscribers))
		}
		if taken != mostChanges+1 || quick.items != 0 {
			t.Errorf("the other one took %d changes, and has %d things waiting", taken, quick.items)
		}
		slow.Close() // once more
	})
}

// TestSubscriberWithLargeBacklogIsDisconnected queues a few changes of many blocks.
func TestSubscriberWithLargeBacklogIsDisconnected(t *testing.T) {
	l := newLive(clock.RealClock{})
	s := l.Subscribe()
	large := &Change{blocks: make([]Block, mostItems)}
	l.offer(s, large) // it takes all messages, of any size
	if len(l.subscribers) != 1 || len(s.changes) != 1 {
		t.Fatalf("%d subscribers are left, with %d changes waiting", len(l.subscribers), len(s.changes))
	}
	l.offer(s, large)
	if len(l.subscribers) != 0 {
		t.Errorf("%d subscribers are left", len(l.subscribers))
	}
}

// TestUnreadPoolIsRemovedWithLastReference lets a block and a claim name pools
// that cannot be read.
func TestUnreadPoolIsRemovedWithLastReference(t *testing.T) {
	stored, l := objects{}, newLive(clock.RealClock{})
	l.publish()
	subscription := l.Subscribe()
	following := followerOf(subscription)
	has := func(want ...string) {
		t.Helper()
		l.publish()
		for len(subscription.changes) > 0 {
			following.take(<-subscription.changes)
		}
		if got := slices.Sorted(maps.Keys(following.pools)); !slices.Equal(got, want) {
			t.Errorf("pools: %v, want %v", got, want)
		}
		for id, pool := range following.pools {
			if pool.Known || pool.Usage != nil {
				t.Errorf("%s is known: %+v", id, pool)
			}
		}
	}
	stored.put(t, l, claimed("hidden", "b", "10.0.0.0/32"))
	has("IPPool/hidden")
	stored.put(t, l, build.Claim("team", "web").Pool("named").Length(32).Obj())
	has("IPPool/hidden", "IPPool/named")
	stored.remove(t, l, "*v1alpha1.IPAllocation team/b")
	has("IPPool/named")
	stored.remove(t, l, "*v1alpha1.IPClaim team/web")
	has()
}

// TestRegisterIsRebuiltOnlyAfterChange requests it twice, and again after a change.
func TestRegisterIsRebuiltOnlyAfterChange(t *testing.T) {
	stored, l := objects{}, newLive(clock.RealClock{})
	stored.put(t, l, build.Pool("p").CIDR("10.0.0.0/16").Obj())
	stored.put(t, l, claimed("p", "b", "10.0.0.0/32"))
	first := l.Register()
	if l.Register() != first {
		t.Error("it is put together again, and nothing has changed")
	}
	stored.put(t, l, claimed("p", "c", "10.0.0.1/32"))
	second := l.Register()
	if got := len(second.Pool(ipam.PoolNamed("p")).Records); second == first || got != 2 {
		t.Errorf("after a change it has %d records, want 2", got)
	}
	if got := len(first.Pool(ipam.PoolNamed("p")).Records); got != 1 {
		t.Errorf("the first one has %d records now, want 1 as before", got)
	}
}

// TestLargeChangeIsSplitIntoMessages puts more blocks into one change than fit into a message.
func TestLargeChangeIsSplitIntoMessages(t *testing.T) {
	change := &Change{blocks: make([]Block, 2*mostBlocks+1)}
	lines, err := change.Lines()
	if err != nil || len(lines) != 3 {
		t.Fatalf("%d lines, %v; want 3", len(lines), err)
	}
	sum := 0
	for _, line := range lines {
		var message blocksMessage
		if err := json.Unmarshal(line, &message); err != nil || len(message.Blocks) > mostBlocks {
			t.Errorf("%d blocks, %v", len(message.Blocks), err)
		}
		sum += len(message.Blocks)
	}
	if sum != len(change.blocks) {
		t.Errorf("%d blocks in all, want %d", sum, len(change.blocks))
	}
}
