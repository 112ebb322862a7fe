package allocator

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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

// TestWriteBelowViewRevisionIsAbandoned lets the store go back while a replica
// runs, whose watch shows nothing until the revision is as high as before. Another replica records
// a block, which that watch never shows.
func TestWriteBelowViewRevisionIsAbandoned(t *testing.T) {
	for name, write := range map[string]func(*scene, ipam.Record) error{
		"a create of an attempt": func(s *scene, _ ipam.Record) error {
			_, err := s.allocator.Allocate(s.t.Context(), s.order("x", 31))
			return err
		},
		"a create for a claim that exists": func(s *scene, _ ipam.Record) error {
			_, err := s.allocator.Allocate(s.t.Context(), s.bound("x", "uid", 31))
			return err
		},
		"a change": func(s *scene, kept ipam.Record) error {
			return s.allocator.ApplyTransition(s.t.Context(), kept, ipam.Transition{State: ipam.StateRetained})
		},
	} {
		t.Run(name, func(t *testing.T) {
			runScene(t, func(s *scene) {
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
				if n := s.allocator.ledger.Rollbacks(); n != 1 {
					t.Errorf("counted %d times that the store has gone back", n)
				}
				record, err := s.allocator.Allocate(s.t.Context(), s.order("y", 31))
				if err != nil || record.Block.Overlaps(rival.Block) {
					t.Errorf("got %s, %v, want a block that does not overlap %s", record.Block, err, rival.Block)
				}
			})
		})
	}
}

// TestTakeoverNeedsRunningWatch covers an interrupted watch, during which the store
// can go back.
func TestTakeoverNeedsRunningWatch(t *testing.T) {
	for name, want := range map[string]error{"it runs": nil, "it is interrupted": ipam.ErrUnconfirmed} {
		t.Run(name, func(t *testing.T) {
			runScene(t, func(s *scene) {
				s.down = want != nil
				record := s.recorded(s.bound("x", "uid", 31), "10.0.0.0/31")
				s.open()
				if _, err := s.allocator.Adopt(s.t.Context(), record); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
		})
	}
}
