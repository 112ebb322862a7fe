package story

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
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

// Events records the events of a story, in the order in which they were made. It implements
// events.EventRecorder.
type Events struct {
	mu sync.Mutex
	// objects is the object of each event, such as IPClaim a, and texts holds the texts of the
	// events, such as "Warning PoolExhausted: no free /24".
	objects, texts []string
}

// Eventf implements events.EventRecorder.
func (e *Events) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) { //nolint:revive // the arguments of events.EventRecorder
	e.mu.Lock()
	defer e.mu.Unlock()
	obj := regarding.(client.Object)
	e.objects = append(e.objects, kindOf(obj)+" "+obj.GetName())
	e.texts = append(e.texts, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}

func (e *Events) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.texts)
}

// Of returns the events of one object, without their notes, such as "Warning PoolExhausted".
func (e *Events) Of(obj client.Object) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for i, text := range e.texts {
		if e.objects[i] == kindOf(obj)+" "+obj.GetName() {
			event, _, _ := strings.Cut(text, ":")
			all = append(all, event)
		}
	}
	return all
}

// HasEvents expects the events that an object has had since the story began, each once and in
// this order.
func (w *World) HasEvents(obj client.Object, want ...string) {
	w.t.Helper()
	if got := w.Events.Of(obj); !slices.Equal(got, want) {
		w.t.Fatalf("%s %s has the events %q, want %q", kindOf(obj), obj.GetName(), got, want)
	}
}

// Requests records the requests that are enqueued for a controller. It implements the part of
// kubeutil.Queue that sources use.
type Requests struct {
	kubeutil.Queue

	t    *testing.T
	mu   sync.Mutex
	came []string
}

// Started starts a source of a controller's requests, which ends with the story.
func (w *World) Started(s source.Source) *Requests {
	w.t.Helper()
	r := &Requests{t: w.t}
	suite.Must(w.t, s.Start(w.t.Context(), r))
	return r
}

// Add implements kubeutil.Queue.
func (r *Requests) Add(request reconcile.Request) { r.AddAfter(request, 0) }

// AddAfter implements kubeutil.Queue.
func (r *Requests) AddAfter(request reconcile.Request, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(request.String(), "/")
	if after > 0 {
		name = fmt.Sprintf("%s after %s", name, after)
	}
	r.came = append(r.came, name)
}

// Enqueued expects the requests that were enqueued since it was last called, such as "team/a",
// or "p after 1s", in any order and any number of times. Without arguments it expects none.
func (r *Requests) Enqueued(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Compact(slices.Sorted(slices.Values(r.came)))
	r.came = nil
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Fatalf("%q are enqueued, want %q", got, want)
	}
}

// Measured expects the value of a metric, summed over the time series that have all the label
// values.
func (w *World) Measured(want float64, name string, labels ...string) {
	w.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.Metrics.Collectors()...)
	families, err := registry.Gather()
	suite.Must(w.t, err)
	got := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && hasLabels(m, labels) {
				got += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	if got != want {
		w.t.Fatalf("%s%q is %g, want %g", name, labels, got, want)
	}
}

func hasLabels(m *dto.Metric, values []string) bool {
	for _, value := range values {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value }) {
			return false
		}
	}
	return true
}

// HasHistory expects the entries of the history since it was last called, such as "Released
// 10.0.0.0/28 Orphaned", in this order.
func (w *World) HasHistory(want ...string) {
	w.t.Helper()
	var got []string
	for _, e := range w.entries.Take(w.History) {
		text := fmt.Sprintf("%s %s %s", e.Action, e.Block, e.Reason)
		if !e.Until.IsZero() {
			text += fmt.Sprintf(", %s for %s", e.State, e.Until.Sub(w.Clock.Now()))
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		w.t.Fatalf("the history says %q, want %q", got, want)
	}
}
