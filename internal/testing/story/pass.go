package story

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Pass holds the result of one call of Reconcile. Its methods state the expected results.
type Pass struct {
	t      *testing.T
	writes []string
	result reconcile.Result
	events int
	// conditions are the conditions of the object after the pass.
	conditions []metav1.Condition
}

// Reconciled calls Reconcile for an object, which is then updated to the stored state. The pass
// is expected to be without error.
func (w *World) Reconciled(by reconcile.Reconciler, obj client.Object) *Pass {
	w.t.Helper()
	pass, err := w.pass(by, obj)
	suite.Must(w.t, err)
	return pass
}

// Retried calls Reconcile as Reconciled does, but the pass is expected to end with an error, so
// that it is tried again with back-off.
func (w *World) Retried(by reconcile.Reconciler, obj client.Object) *Pass {
	w.t.Helper()
	pass, err := w.pass(by, obj)
	if err == nil {
		w.t.Fatalf("%s is not tried again", client.ObjectKeyFromObject(obj))
	}
	return pass
}

func (w *World) pass(by reconcile.Reconciler, obj client.Object) (*Pass, error) {
	w.t.Helper()
	w.writes.take()
	before := w.Events.count()
	result, err := by.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	pass := &Pass{t: w.t, writes: w.writes.take(), result: result, events: w.Events.count() - before}
	w.Seen()
	switch gone := w.plane.admin.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj); {
	case gone == nil:
		pass.conditions = conditionsOf(obj)
	case client.IgnoreNotFound(gone) != nil:
		w.t.Fatal(gone)
	}
	return pass, err
}

func conditionsOf(obj client.Object) []metav1.Condition {
	switch obj := obj.(type) {
	case *v1alpha1.IPClaim:
		return obj.Status.Conditions
	case *v1alpha1.IPClass:
		return obj.Status.Conditions
	case v1alpha1.Pool:
		return obj.PoolStatus().Conditions
	case interface{ GetConditions() []metav1.Condition }:
		return obj.GetConditions()
	}
	return nil
}

// Ready expects the condition Ready to be True.
func (p *Pass) Ready() *Pass {
	p.t.Helper()
	if ready := p.ready(); ready.Status != metav1.ConditionTrue {
		p.t.Fatalf("Ready is %s, %s: %s; want True", ready.Status, ready.Reason, ready.Message)
	}
	return p
}

// Reason expects the reason of the condition Ready.
func (p *Pass) Reason(reason string) *Pass {
	p.t.Helper()
	if ready := p.ready(); ready.Reason != reason {
		p.t.Fatalf("Ready is %s, %s: %s; want the reason %s", ready.Status, ready.Reason, ready.Message, reason)
	}
	return p
}

// NotReady expects the condition Ready to be False for a reason.
func (p *Pass) NotReady(reason string) *Pass {
	p.t.Helper()
	if ready := p.ready(); ready.Status != metav1.ConditionFalse || ready.Reason != reason {
		p.t.Fatalf("Ready is %s, %s: %s; want False, %s", ready.Status, ready.Reason, ready.Message, reason)
	}
	return p
}

// Saying expects that the message of the condition Ready names something.
func (p *Pass) Saying(what string) *Pass {
	p.t.Helper()
	if ready := p.ready(); !strings.Contains(ready.Message, what) {
		p.t.Fatalf("Ready says %q, want that it names %q", ready.Message, what)
	}
	return p
}

func (p *Pass) ready() metav1.Condition {
	p.t.Helper()
	ready := meta.FindStatusCondition(p.conditions, v1alpha1.ConditionReady)
	if ready == nil {
		p.t.Fatal("there is no condition Ready")
	}
	return *ready
}

// Wrote expects the writes of the pass, in order: "create IPAllocation", or "patch
// IPPool/status". Without arguments it expects none.
func (p *Pass) Wrote(writes ...string) *Pass {
	p.t.Helper()
	if !slices.Equal(p.writes, writes) {
		p.t.Fatalf("the pass wrote %q, want %q", p.writes, writes)
	}
	return p
}

// HasEvents expects the number of events that the pass made.
func (p *Pass) HasEvents(n int) *Pass {
	p.t.Helper()
	if p.events != n {
		p.t.Fatalf("the pass made %d events, want %d", p.events, n)
	}
	return p
}

// RequeueAfter returns the time after which the object is reconciled again.
func (p *Pass) RequeueAfter() time.Duration { return p.result.RequeueAfter }

// After expects that the object is reconciled again after a time; 0: not before something
// changes.
func (p *Pass) After(d time.Duration) *Pass {
	p.t.Helper()
	if p.result.RequeueAfter != d {
		p.t.Fatalf("it is reconciled again after %s, want %s", p.result.RequeueAfter, d)
	}
	return p
}
