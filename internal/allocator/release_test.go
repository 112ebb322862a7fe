package allocator

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

var errCut = errors.New("connection reset")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// creates makes a record as another process does.
func (c *steady) creates(t *testing.T, record ipam.Record, finalizers ...string) ipam.Record {
	t.Helper()
	obj := convert.Allocation(record)
	if len(finalizers) > 0 {
		obj.Finalizers = finalizers
	}
	must(t, c.server.create(obj))
	record.UID, record.Version = string(obj.UID), obj.ResourceVersion
	return record
}

// stores makes a record, and waits until the replica has seen it.
func (c *steady) stores(t *testing.T, record ipam.Record, finalizers ...string) ipam.Record {
	t.Helper()
	record = c.creates(t, record, finalizers...)
	synctest.Wait()
	return record
}

// terminates requests the deletion of a record, whose finalizer stays.
func (c *steady) terminates(t *testing.T, record ipam.Record) {
	t.Helper()
	must(t, c.server.delete(convert.Allocation(record), &metav1.Preconditions{}))
	synctest.Wait()
}

// stored returns a record as it is stored, by its name; nil if it is gone.
func (c *steady) stored(name ipam.Name) *v1alpha1.IPAllocation {
	for _, obj := range c.server.list().Items {
		if obj.Namespace == name.Namespace && obj.Name == name.Name {
			return &obj
		}
	}
	return nil
}

// calls notes the verbs of all calls on records except creates. The verbs in fails fail with its
// errors.
func (c *steady) calls(fails map[string]error) func() []string {
	var verbs []string
	c.refuses = func(verb string, obj client.Object) error {
		if _, ok := obj.(*v1alpha1.IPAllocation); ok {
			verbs = append(verbs, verb)
		}
		return fails[verb]
	}
	return func() []string { return verbs }
}

// heldBlock returns the record of a claim.
func heldBlock(claim, block string) ipam.Record {
	prefix := netip.MustParsePrefix(block)
	return claimOrder(claim, prefix.Bits()).recordOf(parent(), prefix)
}

// ownRecord returns the own record of a child pool.
func ownRecord(a *Allocator, pool ipam.PoolKey, block string, state ipam.State) ipam.Record {
	order := Order{Holder: convert.HolderOfPool(pool), Record: a.Catalog.RecordOfPool(pool)}
	record := order.recordOf(parent(), netip.MustParsePrefix(block))
	record.Reclaim, record.State = ipam.ReclaimDelete, state
	return record
}

// notFoundError returns the API server's error for a missing object.
func notFoundError(kind string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, "x")
}

// namespaceNotFoundError returns its error if the namespace of an object is missing.
func namespaceNotFoundError() error { return notFoundError("namespaces") }

// refusedAsInvalid returns the error of a webhook that refuses a request with the reason Invalid.
func refusedAsInvalid() error {
	err := apierrors.NewInvalid(schema.GroupKind{}, "x", nil)
	err.ErrStatus.Message = `admission webhook "w" denied the request: ` + err.ErrStatus.Message
	return err
}

func TestFailedReleaseReturnsError(t *testing.T) {
	for name, c := range map[string]struct {
		fails map[string]error
		want  string // empty: no error
	}{
		"the deletion is cut off":                    {map[string]error{"delete": errCut}, "deleting IPAllocation ns/x-former: connection reset"},
		"the record is gone":                         {map[string]error{"delete": notFoundError("ipallocations")}, ""},
		"its namespace is gone":                      {map[string]error{"delete": namespaceNotFoundError()}, `namespaces "x" not found`},
		"the API server is not specific":             {map[string]error{"delete": &apierrors.StatusError{}}, "deleting IPAllocation ns/x-former"},
		"removing its finalizer is cut off":          {map[string]error{"patch": errCut}, "removing the finalizer of IPAllocation ns/x-former: connection reset"},
		"it is gone before its finalizer is removed": {map[string]error{"patch": notFoundError("ipallocations")}, ""},
		"its namespace is gone at the patch":         {map[string]error{"patch": namespaceNotFoundError()}, `namespaces "x" not found`},
		"it has another finalizer, is gone":          {map[string]error{"patch": apierrors.NewInvalid(schema.GroupKind{}, "x", nil), "get": notFoundError("ipallocations")}, ""},
		"it has another, and cannot be read":         {map[string]error{"patch": apierrors.NewInvalid(schema.GroupKind{}, "x", nil), "get": errCut}, "removing the finalizer of IPAllocation ns/x-former: connection reset"},
		"a webhook refuses the patch":                {map[string]error{"patch": refusedAsInvalid(), "get": errCut}, `admission webhook "w" denied`},
		"it has another, and is not writable":        {map[string]error{"patch": apierrors.NewInvalid(schema.GroupKind{}, "x", nil)}, "removing the finalizer of IPAllocation ns/x-former"},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			record := heldBlock("x", "10.0.0.0/28")
			record.Name.Name = "x-former"
			record = api.stores(t, record)
			api.calls(c.fails)
			err := a.Release(t.Context(), record)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestReleaseRemovesOnlyOwnFinalizer(t *testing.T) {
	const theirs = "example.com/theirs"
	for name, c := range map[string]struct {
		finalizers, left []string
		uid              string
	}{
		"ours comes last":              {[]string{theirs, v1alpha1.FinalizerHeld}, []string{theirs}, ""},
		"ours comes first":             {[]string{v1alpha1.FinalizerHeld, theirs}, []string{theirs}, ""},
		"ours is off already":          {[]string{theirs}, []string{theirs}, ""},
		"another record has the name":  {[]string{theirs, v1alpha1.FinalizerHeld}, []string{theirs, v1alpha1.FinalizerHeld}, "former"},
		"another has it, ours is last": {[]string{v1alpha1.FinalizerHeld}, []string{v1alpha1.FinalizerHeld}, "former"},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			record := api.stores(t, heldBlock("x", "10.0.0.0/28"), c.finalizers...)
			if c.uid != "" {
				record.UID, record.Terminating = c.uid, true
			}
			must(t, a.Release(t.Context(), record))
			stored := api.stored(record.Name)
			if stored == nil || !slices.Equal(stored.Finalizers, c.left) || stored.DeletionTimestamp.IsZero() != (c.uid != "") {
				t.Errorf("stored is %+v, want it with %v", stored, c.left)
			}
		})
	}
}

// TestReleaseLeavesFinalizerOfNextRecord expects a conflict if the record is replaced by another one of its name
// between the last read and the write.
func TestReleaseLeavesFinalizerOfNextRecord(t *testing.T) {
	const theirs = "example.com/theirs"
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		record := api.stores(t, heldBlock("x", "10.0.0.0/28"), theirs, v1alpha1.FinalizerHeld)
		var calls []string
		api.refuses = func(verb string, _ client.Object) error {
			if calls = append(calls, verb); slices.Equal(calls, []string{"delete", "patch", "get", "patch"}) {
				must(t, api.server.patch(convert.Allocation(record), build.Merge(`{"metadata":{"finalizers":[]}}`)))
				api.creates(t, record, theirs, v1alpha1.FinalizerHeld)
			}
			return nil
		}
		if err := a.Release(t.Context(), record); !apierrors.IsConflict(err) {
			t.Errorf("got %v after %v, want a conflict", err, calls)
		}
		if stored := api.stored(record.Name); stored == nil || string(stored.UID) == record.UID || !slices.Contains(stored.Finalizers, v1alpha1.FinalizerHeld) {
			t.Errorf("stored is %+v, want the next record, whole", stored)
		}
	})
}

func TestPoolRecordIsReleasedInTwoSteps(t *testing.T) {
	child := ipam.PoolNamed("child")
	for name, c := range map[string]struct {
		state ipam.State
		inUse bool
		fails map[string]error
		err   error
		calls []string
		after ipam.State // empty: it is gone
	}{
		"nothing is recorded in it":                    {ipam.StateBound, false, nil, nil, []string{"patch", "delete", "patch"}, ""},
		"it was marked before":                         {ipam.StateReleasing, false, nil, nil, []string{"delete", "patch"}, ""},
		"a block is recorded in it":                    {ipam.StateBound, true, nil, ipam.ErrPoolInUse, nil, ipam.StateBound},
		"it was marked, and a block is recorded":       {ipam.StateReleasing, true, nil, ipam.ErrPoolInUse, []string{"patch"}, ipam.StateBound},
		"it was marked, a block is recorded, cut off":  {ipam.StateReleasing, true, map[string]error{"patch": errCut}, ipam.ErrPoolInUse, []string{"patch"}, ipam.StateReleasing},
		"marking it is cut off":                        {ipam.StateBound, false, map[string]error{"patch": errCut}, errCut, []string{"patch"}, ipam.StateBound},
		"it is gone when it is marked":                 {ipam.StateBound, false, map[string]error{"patch": notFoundError("ipallocations")}, nil, []string{"patch"}, ipam.StateBound},
		"the operator's namespace is gone at the mark": {ipam.StateBound, false, map[string]error{"patch": namespaceNotFoundError()}, apierrors.NewNotFound(resource, ""), []string{"patch"}, ipam.StateBound},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			own := api.stores(t, ownRecord(a, child, "10.0.0.0/24", c.state))
			if c.inUse {
				block := heldBlock("x", "10.0.0.0/28")
				block.Pool = child
				api.stores(t, block)
			}
			calls := api.calls(c.fails)
			began := time.Now()
			err := a.Release(t.Context(), own)
			switch {
			case apierrors.IsNotFound(c.err):
				if !apierrors.IsNotFound(err) {
					t.Errorf("got %v, want that the namespace is gone", err)
				}
			case !errors.Is(err, c.err):
				t.Errorf("got %v, want %v", err, c.err)
			}
			if c.fails["patch"] != nil && c.inUse && !errors.Is(err, errCut) {
				t.Errorf("got %v, which does not state that the mark stays", err)
			}
			if got := calls(); !slices.Equal(got, c.calls) {
				t.Errorf("calls were %v, want %v", got, c.calls)
			}
			stored := api.stored(own.Name)
			if there := stored != nil; there != (c.after != "") || there && ipam.State(stored.Spec.State) != c.after {
				t.Errorf("stored is %+v, want state %q", stored, c.after)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("it took %v", took)
			}
			synctest.Wait()
			if _, seen := a.Ledger.Record(own.Name); seen != (c.after != "") {
				t.Errorf("the view shows it: %t", seen)
			}
		})
	}
}

// TestPoolRecordStaysUntilMarkIsSeen holds the watch up.
func TestPoolRecordStaysUntilMarkIsSeen(t *testing.T) {
	for name, shown := range map[string]bool{"it is shown in time": true, "it is not": false} {
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			own := ownRecord(s.allocator, ipam.PoolNamed("child"), "10.0.0.0/30", ipam.StateBound)
			own.Pool = s.pool.Key
			own = s.creates(t, own)
			s.list()
			wait := confirmTimeout
			if shown {
				wait = time.Second
				time.AfterFunc(wait, func() { close(s.events) })
			}
			began := time.Now()
			err := s.allocator.Release(s.t.Context(), own)
			if took := time.Since(began); took != wait {
				t.Errorf("it took %v, want %v", took, wait)
			}
			if shown && err != nil || !shown && !errors.Is(err, ipam.ErrUnconfirmed) {
				t.Errorf("got %v", err)
			}
			if there := s.isStored(own); there == shown {
				t.Errorf("the record exists: %t", there)
			}
			if !shown {
				close(s.events)
			}
		})
	}
}

// TestUnusedRecordIsAbandoned expects that a record is kept if it was taken over: it had another
// holder before.
func TestUnusedRecordIsAbandoned(t *testing.T) {
	for name, adopted := range map[string]bool{"made for the request": false, "taken over": true} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			record := heldBlock("x", "10.0.0.0/28")
			record.Adopted = adopted
			record = api.stores(t, record)
			a.Discard(t.Context(), record)
			synctest.Wait()
			if there := api.stored(record.Name) != nil; there != adopted {
				t.Errorf("the record exists: %t, want %t", there, adopted)
			}
		})
	}
}

// TestFailedDiscardIsNotRetried leaves the record to the collection of orphans.
func TestFailedDiscardIsNotRetried(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		own := api.stores(t, ownRecord(a, ipam.PoolNamed("child"), "10.0.0.0/24", ipam.StateBound))
		calls := api.calls(map[string]error{"patch": errCut})
		a.Discard(t.Context(), own)
		synctest.Wait()
		if got := calls(); len(got) != 1 {
			t.Errorf("calls were %v, want one", got)
		}
	})
}

func TestRecordChangesAreStored(t *testing.T) {
	due := time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		write func(*Allocator, context.Context, ipam.Record) error
		want  func(v1alpha1.IPAllocationSpec) bool
	}{
		"kept for a time": {
			func(a *Allocator, ctx context.Context, r ipam.Record) error {
				return a.ApplyTransition(ctx, r, ipam.Transition{State: ipam.StateCooling, ReleaseAfter: due})
			},
			func(s v1alpha1.IPAllocationSpec) bool {
				return s.State == v1alpha1.AllocationCooling && s.ReleaseAfter != nil && s.ReleaseAfter.Time.Equal(due)
			},
		},
		"kept for ever": {
			func(a *Allocator, ctx context.Context, r ipam.Record) error {
				return a.ApplyTransition(ctx, r, ipam.Transition{State: ipam.StateRetained})
			},
			func(s v1alpha1.IPAllocationSpec) bool {
				return s.State == v1alpha1.AllocationRetained && s.ReleaseAfter == nil
			},
		},
		"its policy": {
			func(a *Allocator, ctx context.Context, r ipam.Record) error {
				changed, err := a.SetReclaimPolicy(ctx, r, ipam.ReclaimRetain)
				if err == nil && (changed.Reclaim != ipam.ReclaimRetain || changed.Version == r.Version || changed.UID != r.UID) {
					err = errors.New("the returned record is not the stored one")
				}
				return err
			},
			func(s v1alpha1.IPAllocationSpec) bool {
				return s.ReclaimPolicy == v1alpha1.ReclaimRetain && s.State == v1alpha1.AllocationBound
			},
		},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			record := api.stores(t, heldBlock("x", "10.0.0.0/28"))
			api.calls(map[string]error{"patch": errCut})
			if err := c.write(a, t.Context(), record); !errors.Is(err, errCut) || !strings.Contains(err.Error(), "changing IPAllocation "+record.Name.String()) {
				t.Errorf("cut off: got %v", err)
			}
			api.refuses = nil
			must(t, c.write(a, t.Context(), record))
			if stored := api.stored(record.Name); !c.want(stored.Spec) {
				t.Errorf("stored is %+v", stored.Spec)
			}
			if err := c.write(a, t.Context(), record); !apierrors.IsConflict(err) {
				t.Errorf("of a record that has changed since: got %v, want a conflict", err)
			}
		})
	}
}
