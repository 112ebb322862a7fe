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

// recording makes the allocator keep its history, and returns a function that returns the entries
// since its last call.
func recordHistory(a *Allocator) func() []string {
	recorder, take := entries.Recorder()
	a.history = recorder
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

// TestHistoryHasEachEntryOfBlockOnce expects each entry once, from the grant until the block is given up.
func TestHistoryHasEachEntryOfBlockOnce(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		recorded, ctx := recordHistory(a), t.Context()
		record, err := a.Allocate(ctx, orderFromPools(claimOrder("x", 28), parent()))
		if err != nil {
			t.Fatal(err)
		}
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 Allocated")

		if err := a.ApplyTransition(ctx, record, ipam.Transition{State: ipam.StateRetained, ReleaseAfter: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if record, err = a.Allocate(ctx, orderFromPools(claimOrder("x", 28), parent())); err != nil {
			t.Fatal(err)
		}
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 TakenOver")

		if record, err = a.takeOver(ctx, record, record.HolderUID); err != nil {
			t.Fatal(err)
		}
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 Adopted")

		if err := a.giveUp(ctx, record, nil); err != nil {
			t.Fatal(err)
		}
		expectRecorded(t, recorded, "Released 10.0.0.0/28 GivenUp")
	})
}

// TestHistoryHasReleaseOfUnusedBlock covers a request that was over before it was
// answered.
func TestHistoryHasReleaseOfUnusedBlock(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		recorded := recordHistory(a)
		record, err := a.Allocate(t.Context(), orderFromPools(claimOrder("x", 28), parent()))
		if err != nil {
			t.Fatal(err)
		}
		a.Discard(t.Context(), record)
		expectRecorded(t, recorded, "Granted 10.0.0.0/28 Allocated", "Released 10.0.0.0/28 Unused")
	})
}

// TestHistoryOmitsFailedAttempt covers a block that no holder had.
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
		if _, err := a.RecordExisting(t.Context(), order, parent().Key); err != nil {
			t.Fatal(err)
		}
		expectRecorded(t, recorded, "Granted 10.0.0.7/32 Existing")

		order.Holder = convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "b"})
		_, err := a.RecordExisting(t.Context(), order, ipam.PoolNamed("missing"))
		if _, ok := errors.AsType[*ipam.MissingError](err); !ok {
			t.Fatalf("error %v, want that the pool is missing", err)
		}
		expectRecorded(t, recorded, "Granted 10.0.0.7/32 Existing")
	})
}
