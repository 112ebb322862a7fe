package allocator

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
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
		s.list()
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
		must(t, s.allocator.Release(s.t.Context(), first))
		second := s.recorded(order, "10.0.0.1/32")
		synctest.Wait()

		_ = s.allocator.Release(s.t.Context(), first) // late, by another process
		if !s.isStored(second) {
			t.Fatal("the release of a record that was gone freed the one that has its name")
		}
		_, err := s.allocator.TakeOver(s.t.Context(), second, second.HolderUID)
		must(t, err)
		if err := s.allocator.Release(s.t.Context(), second); !apierrors.IsConflict(err) || !s.isStored(second) {
			t.Errorf("the release by a maker that gave up freed an adopted block: %v", err)
		}
		synctest.Wait()
		if room := s.allocator.Ledger.HasRoom(s.pool.Key, 32, second.Block); room {
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
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			order := s.bound("c", "claim-uid", 32)
			mine := s.recorded(order, "10.0.0.0/32")
			s.recorded(s.order("rival", 30), "10.0.0.0/30")
			s.deliverAll()
			claim := claimNamed("c", "claim-uid")
			if c.has != "" {
				claim.Spec.AllocationName = mine.Name.Name
			}
			s.otherObjects = []client.Object{claim}
			_, err := s.allocator.Allocate(s.t.Context(), order)
			if c.want != nil {
				if !errors.Is(err, c.want) || !s.isStored(mine) {
					t.Errorf("got %v, and the record there: %t", err, s.isStored(mine))
				}
				return
			}
			if taken, ok := errors.AsType[*ipam.TakenError](err); !ok || s.isStored(mine) || len(s.written) != 1 {
				t.Errorf("got %v (%v), the record there: %t, the claim written to: %s", err, taken, s.isStored(mine), s.written)
			}
		})
	}
}

// restore puts the store back to a revision.
func (s *apiServer) restore(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.log = revision, s.log[:revision]
	clear(s.objects)
	for _, event := range s.log {
		obj := event.Object.(*v1alpha1.IPAllocation).DeepCopy()
		s.objects[client.ObjectKeyFromObject(obj)] = obj
		maps.DeleteFunc(s.objects, func(_ client.ObjectKey, o *v1alpha1.IPAllocation) bool {
			return o.UID == obj.UID && event.Type == watch.Deleted
		})
	}
}

// TestViewMovesOnDuringWrite shows a later record to a replica before its own write is answered: the revision of the
// write is below that of the view then, and the store has not gone back.
func TestViewMovesOnDuringWrite(t *testing.T) {
	for name, write := range map[string]func(*scene, ipam.Record) error{
		"a create": func(s *scene, _ ipam.Record) error {
			_, err := s.allocator.Allocate(s.t.Context(), s.order("x", 31))
			return err
		},
		"a change": func(s *scene, kept ipam.Record) error {
			return s.allocator.ApplyTransition(s.t.Context(), kept, ipam.Transition{State: ipam.StateRetained})
		},
	} {
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			s.open()
			kept := s.recorded(s.order("kept", 31), "10.0.0.6/31")
			synctest.Wait()
			s.afterWrite = func() {
				s.recorded(s.order("later", 31), "10.0.0.4/31")
				synctest.Wait()
			}
			if err := write(s, kept); err != nil {
				t.Error(err)
			}
			if n := s.allocator.Ledger.Stats().Rollbacks; n != 0 || s.afterWrite != nil {
				t.Errorf("counted %d times that the store has gone back", n)
			}
		})
	}
}

// TestWriteBelowViewRevisionIsAbandoned lets the store go back while a replica
// runs, whose watch shows nothing until the revision is as high as before. Another replica records
// a block, which that watch never shows.
func TestWriteBelowViewRevisionIsAbandoned(t *testing.T) {
	const existing = "a create for a claim that exists"
	for name, write := range map[string]func(*scene, ipam.Record) error{
		"a create of an attempt": func(s *scene, _ ipam.Record) error {
			_, err := s.allocator.Allocate(s.t.Context(), s.order("x", 31))
			return err
		},
		existing: func(s *scene, _ ipam.Record) error {
			_, err := s.allocator.Allocate(s.t.Context(), s.bound("x", "uid", 31))
			return err
		},
		"a change": func(s *scene, kept ipam.Record) error {
			return s.allocator.ApplyTransition(s.t.Context(), kept, ipam.Transition{State: ipam.StateRetained})
		},
	} {
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			s.open()
			kept := s.recorded(s.order("kept", 31), "10.0.0.6/31")
			snapshot := s.server.revision
			for _, block := range []string{"10.0.0.4/32", "10.0.0.5/32"} {
				s.recorded(s.order(block[:8], 32), block)
			}
			synctest.Wait()
			s.server.restore(snapshot)
			rival := s.recorded(s.order("rival", 31), "10.0.0.0/31")

			if err := write(s, kept); !errors.Is(err, ipam.ErrUnconfirmed) {
				t.Errorf("got %v, want %v", err, ipam.ErrUnconfirmed)
			}
			synctest.Wait()
			if n := s.allocator.Ledger.Stats().Rollbacks; n != 1 {
				t.Errorf("counted %d times that the store has gone back", n)
			}
			record, err := s.allocator.Allocate(s.t.Context(), s.order("y", 31))
			if err != nil || record.Block.Overlaps(rival.Block) {
				t.Errorf("got %s, %v, want a block that does not overlap %s", record.Block, err, rival.Block)
			}
			if name == existing {
				if err := write(s, kept); !isA[*ipam.TakenError](err) {
					t.Errorf("the record that is seen now: got %v, want that it gives way", err)
				}
				synctest.Wait()
				if err := write(s, kept); err != nil {
					t.Errorf("once that is gone: %v", err)
				}
			}
		})
	}
}

// TestTakeoverNeedsRunningWatch covers an interrupted watch, during which the store
// can go back.
func TestTakeoverNeedsRunningWatch(t *testing.T) {
	for name, want := range map[string]error{"it runs": nil, "it is interrupted": ipam.ErrUnconfirmed} {
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			s.down = want != nil
			record := s.recorded(s.bound("x", "uid", 31), "10.0.0.0/31")
			s.open()
			if _, err := s.allocator.Adopt(s.t.Context(), record); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}
