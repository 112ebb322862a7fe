package provisioner

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
