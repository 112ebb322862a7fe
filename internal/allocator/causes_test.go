package allocator

import (
	"errors"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// The classic causes of duplicates. The fourth, a collector that frees an
// allocation in flight, is played in internal/controller/allocationgc.

func TestAllocationBeforeFirstListFails(t *testing.T) {
	runScene(t, func(s *scene) {
		s.recorded(s.order("elsewhere", 30), "10.0.0.0/30")
		written := len(s.server.records())
		if _, err := s.allocator.Allocate(s.t.Context(), s.order("early", 30)); !errors.Is(err, ipam.ErrNotSynced) {
			t.Errorf("before the first list: got %v, want ErrNotSynced", err)
		}
		if got := len(s.server.records()); got != written {
			t.Errorf("before the first list: %d records were made", got-written)
		}
		s.deliverAll()
		record, err := s.allocator.Allocate(s.t.Context(), s.order("later", 30))
		if err != nil || record.Block.String() != "10.0.0.4/30" {
			t.Errorf("after it: got %s, %v, want 10.0.0.4/30", record.Block, err)
		}
	})
}

// TestStaleViewOfOwnWriteDoesNotOverlap holds the watch up: the second request
// finds its block in a view that does not show the record of the first.
func TestStaleViewOfOwnWriteDoesNotOverlap(t *testing.T) {
	runScene(t, func(s *scene) {
		close(s.lists)
		synctest.Wait()
		granted := make(chan ipam.Record, 2)
		for _, order := range []Order{s.order("first", 31), s.order("second", 30)} {
			go func() {
				record, err := s.allocator.Allocate(s.t.Context(), order)
				if err != nil {
					t.Error(err)
				}
				granted <- record
			}()
			synctest.Wait() // until it awaits its record
		}
		if got := len(s.server.records()); got != 2 {
			t.Fatalf("%d records before the watch showed any, want 2", got)
		}
		a, b := s.server.records()[0].Spec.CIDR, s.server.records()[1].Spec.CIDR
		close(s.events)
		first, second := <-granted, <-granted
		if first.Block.Overlaps(second.Block) {
			t.Errorf("two holders: %s and %s", first.Block, second.Block)
		}
		if got := s.server.revision; got != 3 { // with that of the pool's own record
			t.Errorf("%s and %s were recorded, and %d writes undid it: the view forgot what this process was writing", a, b, got-3)
		}
	})
}

// TestLateReleaseKeepsBlockOfAnotherRecord releases a record when another record has its name,
// or after it was adopted.
func TestLateReleaseKeepsBlockOfAnotherRecord(t *testing.T) {
	runScene(t, func(s *scene) {
		s.deliverAll()
		order := s.bound("c", "claim-uid", 32)
		first := s.recorded(order, "10.0.0.1/32")
		if err := s.allocator.Release(s.t.Context(), first); err != nil {
			t.Fatal(err)
		}
		second := s.recorded(order, "10.0.0.1/32")
		synctest.Wait()

		_ = s.allocator.Release(s.t.Context(), first) // late, by another process
		if !s.isStored(second) {
			t.Fatal("the release of a record that was gone freed the one that has its name")
		}
		if _, err := s.allocator.takeOver(s.t.Context(), second, second.HolderUID); err != nil {
			t.Fatal(err)
		}
		if err := s.allocator.Release(s.t.Context(), second); !apierrors.IsConflict(err) || !s.isStored(second) {
			t.Errorf("the release by a maker that gave up freed an adopted block: %v", err)
		}
		synctest.Wait()
		if room := s.allocator.ledger.HasRoom(s.pool.Key, 32, second.Block); room {
			t.Error("the view shows the block as free")
		}
	})
}

// TestStaleClaimWithRivalKeepsNamedRecord repeats a trace that the model found: a leader reads a claim
// from a cache that does not show yet that it has its block, and finds its record overlapped by
// another record whose maker is about to give way.
func TestStaleClaimWithRivalKeepsNamedRecord(t *testing.T) {
	for name, c := range map[string]struct {
		has  string // the record that the claim names at the API server
		want error
	}{
		"a claim that has the record keeps it":                  {"the record", ipam.ErrUnconfirmed},
		"one that waits is written to, and the record given up": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			runScene(t, func(s *scene) {
				order := s.bound("c", "claim-uid", 32)
				mine := s.recorded(order, "10.0.0.0/32")
				s.recorded(s.order("rival", 30), "10.0.0.0/30")
				s.deliverAll()
				claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: types.UID("claim-uid"), ResourceVersion: "1"}}
				if c.has != "" {
					claim.Spec.AllocationName = mine.Name.Name
				}
				s.claims[client.ObjectKeyFromObject(claim)] = claim
				_, err := s.allocator.Allocate(s.t.Context(), order)
				if c.want != nil {
					if !errors.Is(err, c.want) || !s.isStored(mine) {
						t.Errorf("got %v, and the record there: %t", err, s.isStored(mine))
					}
					return
				}
				if taken, ok := errors.AsType[*ipam.TakenError](err); !ok || s.isStored(mine) || s.fenced != 1 {
					t.Errorf("got %v (%v), the record there: %t, the claim written to %d times", err, taken, s.isStored(mine), s.fenced)
				}
			})
		})
	}
}
