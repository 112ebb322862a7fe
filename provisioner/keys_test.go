package provisioner

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func TestLostKeysAreTakenFromPools(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 16)
	w.settles()
	must(t, w.store.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ranges", Name: "provisioner-ipam.example.com.ranges"}}))
	w.settles()
	w.expects("with the keys of its pools", 1, ReasonProvisioned)
	if entries, err := w.controller.keys.list(t.Context()); err != nil || len(entries) != 1 {
		t.Errorf("the keys are %v, %v", entries, err)
	}
	pool := w.pools()[0]
	pool.Annotations = map[string]string{v1alpha1.AnnotationPaused: "by a user"}
	must(t, w.store.Update(t.Context(), &pool))
	w.passes(settle)
	w.settles()
	must(t, w.store.Get(t.Context(), client.ObjectKeyFromObject(&pool), &pool))
	if paused := pool.Annotations[v1alpha1.AnnotationPaused]; paused != "by a user" || len(w.pools()) != 2 {
		t.Errorf("of %d pools, the one that a user paused has %q; want another one in its place", len(w.pools()), paused)
	}
}

// TestPoolBelongsToClassOfKey covers a user who adds a class to a pool, before the one that it was made for.
func TestPoolBelongsToClassOfKey(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.settles()
	other := w.class()
	other.ObjectMeta, other.Status = metav1.ObjectMeta{Name: "other"}, v1alpha1.IPClassStatus{}
	w.create(other)
	pool := w.pools()[0]
	pool.Spec.ClassNames = []string{"other", className}
	must(t, w.store.Update(t.Context(), &pool))
	if _, err := w.controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "other"}}); err != nil {
		t.Error(err)
	}
	w.settles()
	w.expects("with a second class", 1, ReasonProvisioned)
}

// TestUnreadableKeyStopsNothingElse covers a user who edits the ConfigMap.
func TestUnreadableKeyStopsNothingElse(t *testing.T) {
	w := newWorld(t)
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ranges", Name: "provisioner-ipam.example.com.ranges"}, Data: map[string]string{"other": "{"}}
	w.create(stored)
	w.demands(28, 1)
	w.settles()
	w.expects("beside an unreadable key", 1, ReasonProvisioned)
	must(t, w.store.Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
	if stored.Data["other"] != "{" {
		t.Error("the unreadable key is gone")
	}
}

// TestConditionIsNotTrueAfterError expects a pass that the API server has cut off not to report success.
func TestConditionIsNotTrueAfterError(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.fails = func(what string) error {
		if what == "before Create" {
			return errors.New("the API server is away")
		}
		return nil
	}
	if _, err := w.pass(); err == nil {
		t.Error("the pass succeeds")
	}
	if conditions := w.class().Status.Conditions; len(conditions) > 0 {
		t.Errorf("the conditions are %v", conditions)
	}
}

func TestNameIsOneLabelValue(t *testing.T) {
	for name, isValid := range map[string]bool{
		"a.b/c": true, "ipam.example.com/ranges": true, "a.b.c": false, "a.b/c.d": false, "A.b/c": false, "a.b/": false, "/c": false, "a/b/c": false,
		v1alpha1.NativeProvisioner: false, "ipam.example.com/" + strings.Repeat("a", 47): false,
	} {
		if _, err := (Options{Name: name, Namespace: "ranges"}).withDefaults(); (err == nil) != isValid {
			t.Errorf("%q: got %v, want it to be valid: %t", name, err, isValid)
		}
	}
}

func TestKeyIsChangedOnlyIfAsExpected(t *testing.T) {
	k := newWorld(t).controller.keys
	first, second := entry{Class: className, PrefixLength: 24, State: provisioning}, entry{Class: className, PrefixLength: 24, State: ready}
	for i, step := range []struct {
		expected, next *entry
		stale          bool
	}{
		{&first, &second, true}, {nil, &first, false}, {nil, &first, true}, {&second, &first, true}, {&first, &second, false}, {&first, nil, true}, {&second, nil, false}, {&second, nil, true},
	} {
		if err := k.change(t.Context(), "p", step.expected, step.next); errors.Is(err, errStale) != step.stale || err != nil && !step.stale {
			t.Errorf("step %d: got %v, stale should be %t", i, err, step.stale)
		}
	}
}
