package operator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
)

// TestProviderState tells one story: each step changes the cluster, and expects a state.
func TestProviderState(t *testing.T) {
	clock := clocktesting.NewFakeClock(began)
	var failure error
	store := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if failure != nil {
				return failure
			}
			return c.Get(ctx, key, obj, opts...)
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
