package kubeutil

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// scriptedLease implements a lease with the answers of a script.
type scriptedLease struct {
	resourcelock.Interface
	holder string
	// err is the error of writes, and readErr that of reads.
	err, readErr error
	updates      int
}

func leases() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

func (l *scriptedLease) Identity() string { return "us" }
func (l *scriptedLease) Describe() string { return "the lease" }

func (l *scriptedLease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.readErr != nil {
		return nil, nil, l.readErr
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, []byte(l.holder), nil
}

func (l *scriptedLease) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return l.err
}

func (l *scriptedLease) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.updates++
	return l.err
}

func TestLeaseIsLostOnlyToAnotherHolder(t *testing.T) {
	stall := context.DeadlineExceeded
	ours := resourcelock.LeaderElectionRecord{HolderIdentity: "us"}
	for name, test := range map[string]struct {
		holder string // as it was read last
		update resourcelock.LeaderElectionRecord
		err    error
		lost   bool
	}{
		"it is renewed":                    {"us", ours, nil, false},
		"no answer in time":                {"us", ours, stall, false},
		"no connection":                    {"us", ours, errors.New("connection refused"), false},
		"too many requests":                {"us", ours, apierrors.NewTooManyRequests("later", 1), false},
		"etcd does not answer":             {"us", ours, apierrors.NewInternalError(stall), false},
		"another client has written to it": {"us", ours, apierrors.NewConflict(leases(), "x", stall), true},
		"it is gone":                       {"us", ours, apierrors.NewNotFound(leases(), "x"), true},
		"the right to it is gone":          {"us", ours, apierrors.NewForbidden(leases(), "x", stall), true},
		"the process ends":                 {"us", ours, context.Canceled, true},
		"no answer to a candidate that does not hold it": {"them", ours, stall, true},
		"no answer to a candidate for a free lease":      {"", ours, stall, true},
		"no answer to a holder that gives it back":       {"us", resourcelock.LeaderElectionRecord{}, stall, true},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &scriptedLease{holder: test.holder}
			lease := NewPatientLease(inner, logr.Discard())
			if _, _, err := lease.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			inner.err = test.err
			if err := lease.Update(t.Context(), test.update); (err != nil) != test.lost {
				t.Errorf("error %v, want one: %t", err, test.lost)
			}
		})
	}
}

// TestConflictIsResolvedByRead has a renewal time out after it may have been stored, and the next one in conflict,
// as the elector makes them.
func TestConflictIsResolvedByRead(t *testing.T) {
	ours, ctx := resourcelock.LeaderElectionRecord{HolderIdentity: "us"}, t.Context()
	conflict := apierrors.NewConflict(leases(), "x", errors.New("changed"))
	inner := &scriptedLease{holder: "us"}
	lease := NewPatientLease(inner, logr.Discard())
	_, _, err := lease.Get(ctx)
	expect := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) || want == nil && got != nil {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("the first read", err, nil)
	inner.err = context.DeadlineExceeded
	expect("a renewal without answer", lease.Update(ctx, ours), nil)
	inner.err, inner.readErr = conflict, context.DeadlineExceeded
	expect("the next renewal", lease.Update(ctx, ours), conflict)
	inner.err = nil // and a request would be one too many
	for range 2 {
		record, _, err := lease.Get(ctx)
		expect("a read without answer", err, nil)
		if !lease.isOurs(*record) {
			t.Errorf("read %+v", record)
		}
		expect("a renewal after that", lease.Update(ctx, ours), nil)
		expect("the renewal before the next read", lease.Update(ctx, ours), conflict)
	}
	if inner.updates != 2 {
		t.Errorf("%d updates were sent, want 2: none between the conflict and a read", inner.updates)
	}
	inner.readErr = nil
	_, _, err = lease.Get(ctx)
	expect("a read of our lease", err, nil)
	expect("a renewal after that", lease.Update(ctx, ours), nil)

	inner.err = conflict
	expect("a renewal after another replica's", lease.Update(ctx, ours), conflict)
	inner.holder, inner.err = "them", nil
	if record, _, err := lease.Get(ctx); err != nil || record.HolderIdentity != "them" {
		t.Errorf("read %+v, %v, want the lease of another", record, err)
	}
	expect("giving back the lease of another", lease.Update(ctx, resourcelock.LeaderElectionRecord{}), errNotHeld)
	inner.readErr = context.DeadlineExceeded
	_, _, err = lease.Get(ctx)
	expect("a read of the lease of another", err, context.DeadlineExceeded)
}

func TestFailedCreateIsNotHeld(t *testing.T) {
	inner := &scriptedLease{holder: "us"}
	lease, ours := NewPatientLease(inner, logr.Discard()), resourcelock.LeaderElectionRecord{HolderIdentity: "us"}
	if _, _, err := lease.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	inner.err = context.DeadlineExceeded
	if lease.Create(t.Context(), ours) == nil || lease.Update(t.Context(), ours) == nil {
		t.Error("it passes for held")
	}
}

func TestHolderReadsFormerLeaseIfItGetsNoAnswer(t *testing.T) {
	for holder, want := range map[string]bool{"us": true, "them": false, "": false} {
		inner := &scriptedLease{holder: holder}
		lease := NewPatientLease(inner, logr.Discard())
		if _, _, err := lease.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		inner.readErr = context.DeadlineExceeded
		record, raw, err := lease.Get(t.Context())
		if (err == nil) != want || want && (record.HolderIdentity != holder || string(raw) != holder) {
			t.Errorf("held by %q: read %+v, %q, %v, want it: %t", holder, record, raw, err, want)
		}
	}
}

func TestCreatedLeaseIsHeld(t *testing.T) {
	inner := &scriptedLease{}
	lease, ours := NewPatientLease(inner, logr.Discard()), resourcelock.LeaderElectionRecord{HolderIdentity: "us"}
	err := lease.Create(t.Context(), ours)
	inner.err = context.DeadlineExceeded
	if err := errors.Join(err, lease.Update(t.Context(), ours)); err != nil {
		t.Error(err)
	}
}

func TestReleasedLeaseIsNotHeld(t *testing.T) {
	inner := &scriptedLease{}
	lease := NewPatientLease(inner, logr.Discard())
	ours := resourcelock.LeaderElectionRecord{HolderIdentity: "us"}
	if err := lease.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	if err := lease.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Fatal(err)
	}
	inner.err = context.DeadlineExceeded
	if lease.Update(t.Context(), ours) == nil {
		t.Error("it passes for renewed, though it was given back")
	}
}
