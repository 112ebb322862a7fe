package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/entries"
)

// recordHistory makes the allocator keep its history, and returns a function that returns the entries
// since its last call.
func recordHistory(a *Allocator) func() []string {
	recorder, take := entries.Recorder()
	a.History = recorder
	return func() []string {
		var got []string
		for _, e := range take() {
			got = append(got, fmt.Sprintf("%s %s %s", e.Action, e.Block, e.Reason))
		}
		return got
	}
}

func expectRecorded(t *testing.T, got func() []string, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, got()); diff != "" {
		t.Errorf("the history differs (-want +got):\n%s", diff)
	}
}

func TestHistoryHasEachEntryOfBlockOnce(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		recorded, ctx := recordHistory(a), t.Context()
		record, err := a.Allocate(ctx, orderFromPools(claimOrder("x", 28), parent()))
		must(t, err)
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 Allocated")

		must(t, a.ApplyTransition(ctx, record, ipam.Transition{State: ipam.StateRetained, ReleaseAfter: time.Now().Add(time.Hour)}))
		synctest.Wait()
		record, err = a.Allocate(ctx, orderFromPools(claimOrder("x", 28), parent()))
		must(t, err)
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 TakenOver")

		for range 2 {
			record, err = a.TakeOver(ctx, record, "uid")
			must(t, err)
		}
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 Adopted")

		must(t, a.giveUp(ctx, record, nil))
		expectRecorded(t, recorded, "Released 10.0.0.0/28 GivenUp")
	})
}

func TestHistoryHasReleaseOfUnusedBlock(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		recorded := recordHistory(a)
		record, err := a.Allocate(t.Context(), orderFromPools(claimOrder("x", 28), parent()))
		must(t, err)
		a.Discard(t.Context(), record)
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 Allocated", "Released 10.0.0.0/28 Unused")
	})
}

func TestHistoryOmitsFailedAttempt(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		recorded := recordHistory(a)
		order := a.withRecordName(orderFromPools(claimOrder("x", 28), parent()))
		lost := api.stores(t, order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28")))
		if err := a.abandonRecord(t.Context(), order, lost, ledger.ErrLost); !errors.Is(err, ledger.ErrLost) {
			t.Fatal(err)
		}
		synctest.Wait()
		if api.stored(lost.Name) != nil {
			t.Error("the record of the attempt exists")
		}
		expectRecorded(t, recorded)
	})
}

// TestHistoryHasBlockAlreadyInUse covers also a record whose pool is missing, and which
// is confirmed only once the pool exists.
func TestHistoryHasBlockAlreadyInUse(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		recorded := recordHistory(a)
		holder := convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "a"})
		order := Order{Origin: OriginAddress, Holder: holder}
		order.Terms.Block, order.Terms.Length = netip.MustParsePrefix("10.0.0.7/32"), 32
		_, err := a.RecordExisting(t.Context(), order, parent().Key)
		must(t, err)
		expectRecorded(t, recorded, "Granted 10.0.0.7/32 Existing")

		order.Holder = convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "b"})
		_, err = a.RecordExisting(t.Context(), order, ipam.PoolNamed("missing"))
		if _, ok := errors.AsType[*ipam.MissingError](err); !ok {
			t.Fatalf("error %v, want that the pool is missing", err)
		}
		expectRecorded(t, recorded, "Granted 10.0.0.7/32 Existing")
	})
}

// TestHistoryHasUnconfirmedBlockAlreadyInUse covers a record that the watch does not show in time: it
// stays, and no later step records it for a holder that has the block.
func TestHistoryHasUnconfirmedBlockAlreadyInUse(t *testing.T) {
	for isExisting, want := range map[bool][]string{true: {"Granted 10.0.0.0/28 Existing"}, false: nil} {
		runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
			recorded := recordHistory(a)
			order := claimOrder("x", 28)
			order.Origin, order.isExisting = OriginController, isExisting
			record := api.stores(t, order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28")))
			if err := a.abandonRecord(t.Context(), order, record, ipam.ErrUnconfirmed); !errors.Is(err, ipam.ErrUnconfirmed) {
				t.Errorf("got %v", err)
			}
			expectRecorded(t, recorded, want...)
			api.expectThere(t)
		})
	}
}
