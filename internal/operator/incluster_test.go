package operator

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestProviderState tells one story: each step changes the cluster, and expects a state.
func TestProviderState(t *testing.T) {
	clock := clocktesting.NewFakeClock(began)
	var failure, listFailure error
	store := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if failure != nil {
				return failure
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if listFailure != nil {
				return listFailure
			}
			return c.List(ctx, list, opts...)
		},
	})
	changes := 0
	p := newProvider(store, "capi", clock, func() { changes++ }, logr.Discard())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: providerLease}}
	renew := func(holder string) {
		t.Helper()
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(clock.Now()))}
		if err := store.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	create := func(obj client.Object) func() {
		return func() {
			t.Helper()
			if err := store.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
	}
	slice := func(name string, ready *bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: incluster.WebhookService}},
			Endpoints:  []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ready}}},
		}
	}
	if !p.isRunning() {
		t.Error("before the first look it does not count as running")
	}
	for _, step := range []struct {
		name    string
		do      func()
		want    providerState
		running bool
	}{
		{"nothing is there", func() {}, providerAbsent, false},
		{"an endpoint that is not ready", create(slice("a", new(false))), providerAbsent, false},
		{"an endpoint of its webhooks", create(slice("b", nil)), providerServing, false},
		{"a lease that was never renewed before our eyes", func() { create(lease)(); renew("a") }, providerLeading, true},
		{"the API server does not answer", func() { failure = errors.New("no answer"); clock.Step(time.Hour) }, providerLeading, true},
		{"it answers again, and the lease has not changed", func() { failure = nil }, providerServing, false},
		{"the lease is renewed", func() { renew("a") }, providerLeading, true},
		{"almost until it expires", func() { clock.Step(14 * time.Second) }, providerLeading, true},
		{"until it has expired", func() { clock.Step(time.Second) }, providerServing, false},
		{"another process has it", func() { renew("b") }, providerLeading, true},
		{"that gives it up", func() { renew("") }, providerServing, false},
		{"the endpoints cannot be listed", func() { listFailure = errors.New("no answer") }, providerServing, false},
	} {
		before, changesBefore := p.current(), changes
		step.do()
		if p.look(t.Context()); p.current() != step.want || p.isRunning() != step.running {
			t.Fatalf("%s: the state is %s, running %t; want %s, %t", step.name, p.current(), p.isRunning(), step.want, step.running)
		}
		if (before != step.want) != (changes == changesBefore+1) {
			t.Fatalf("%s: %d changes are notified", step.name, changes-changesBefore)
		}
	}
}

// TestProviderIsLookedForUntilTheEnd lets the provider start later.
func TestProviderIsLookedForUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, store := clocktesting.NewFakeClock(began), fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
		p := newProvider(store, "capi", clock, func() {}, logr.Discard())
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx) })
		expect := func(want providerState) {
			t.Helper()
			if synctest.Wait(); p.current() != want {
				t.Errorf("the state is %s, want %s", p.current(), want)
			}
		}
		expect(providerAbsent)
		suite.Must(t, store.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: providerLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")},
		}))
		clock.Step(providerInterval)
		expect(providerLeading)
		stop()
		running.Wait()
	})
}

// TestRepeatedFailureToLookIsLoggedOnce expects the number of lines so far after each look.
func TestRepeatedFailureToLookIsLoggedOnce(t *testing.T) {
	var failure error
	lines, first, second := 0, errors.New("first"), errors.New("second")
	store := build.Before(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), func() error { return failure })
	p := newProvider(store, "capi", clocktesting.NewFakeClock(began), func() {}, funcr.New(func(_, _ string) { lines++ }, funcr.Options{}))
	for i, look := range []struct {
		failure error
		lines   int
	}{{first, 1}, {first, 1}, {second, 2}, {second, 2}, {nil, 3}, {second, 4}} {
		failure = look.failure
		if p.look(t.Context()); lines != look.lines {
			t.Errorf("after look %d: %d lines, want %d", i, lines, look.lines)
		}
	}
}
