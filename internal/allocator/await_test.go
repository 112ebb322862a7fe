package allocator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

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
		t.Run(name, func(t *testing.T) {
			runScene(t, func(s *scene) {
				s.open()
				child := build.Pool("child").Child("p", 30).CIDR("10.0.0.0/30").Obj()
				child.UID, child.ResourceVersion = "child-uid", "5"
				waiting, errs := convert.Pool(child)
				if len(errs) > 0 {
					t.Fatal(errs)
				}
				s.allocator.catalog.SetPool(waiting)
				s.allocator.queue.Wait(queue.WaiterOfPool(waiting, time.Time{}))
				stop := time.AfterFunc(c.shown, func() {
					own := ownRecord(s.allocator, ipam.PoolNamed("child"), "10.0.0.0/30", ipam.StateBound)
					own.Pool = s.pool.Key
					if err := s.server.create(convert.Allocation(own)); err != nil {
						t.Error(err)
					}
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
			t.Run(fmt.Sprintf("%s, released: %t", name, released), func(t *testing.T) {
				runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
					former := heldBlock("former", "10.0.0.0/16")
					former.Name.Name, former.Holder.Kind, former.HolderUID = "former-record", c.kind, "former"
					former = api.stores(t, former)
					api.otherObjects = c.claim
					api.refuses = func(verb string, _ client.Object) error {
						if verb == "get" {
							return c.fails
						}
						return nil
					}
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
			})
		}
	}
}
