package addresses

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const providerFinalizer = "provider.example.com"

var (
	v4 = ipamv1.IPPoolReference{APIGroup: "example.com", Kind: "Pool", Name: "v4"}
	v6 = ipamv1.IPPoolReference{APIGroup: "example.com", Kind: "Pool", Name: "v6"}
)

// world holds an API server with the machine web, of the Cluster example, with the device eth0.
type world struct {
	client.Client
	*testing.T
	machine *Machine
	// cache changes what Machine.Client shows.
	cache interceptor.Funcs
	// failing is the call that fails, if any.
	failing string
}

var errFailing = errors.New("the API server is away")

// answer returns the error of a call.
func (w *world) answer(call string) error {
	if call == w.failing {
		return errFailing
	}
	return nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), ipamv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&ipamv1.IPAddressClaim{}).Build()
	w := &world{T: t, Client: api}
	w.machine = &Machine{
		Client: interceptor.NewClient(api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if err := w.answer(fmt.Sprintf("get %T", object)); err != nil {
					return err
				}
				if w.cache.Get != nil {
					return w.cache.Get(ctx, c, key, object, opts...)
				}
				return c.Get(ctx, key, object, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if err := w.answer("list"); err != nil {
					return err
				}
				if w.cache.List != nil {
					return w.cache.List(ctx, c, list, opts...)
				}
				return c.List(ctx, list, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
				object.SetUID(types.UID("uid-" + object.GetName())) // the fake sets none
				return errors.Join(w.answer("create"), c.Create(ctx, object, opts...))
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return errors.Join(w.answer("patch"), c.Patch(ctx, object, patch, opts...))
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
				precondition := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions // the fake ignores it
				current := &ipamv1.IPAddressClaim{}
				err := c.Get(ctx, client.ObjectKeyFromObject(object), current)
				if err == nil && (precondition == nil || *precondition.UID != current.UID) {
					return apierrors.NewConflict(ipamv1.GroupVersion.WithResource("ipaddressclaims").GroupResource(), object.GetName(), errors.New("another UID"))
				}
				return c.Delete(ctx, object, opts...)
			},
		}),
		Live: interceptor.NewClient(api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if object.GetName() != "" {
					t.Error("an object is read into another one")
				}
				return errors.Join(w.answer("live get"), c.Get(ctx, key, object, opts...))
			},
		}),
		Owner:       w.owner("web"),
		ClusterName: "example",
		Devices:     []Device{{Name: "eth0", Pools: []ipamv1.IPPoolReference{v4}}},
	}
	return w
}

// owner creates an infrastructure machine, for which a ConfigMap stands.
func (w *world) owner(name string) *corev1.ConfigMap {
	w.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Finalizers: []string{"machine.example.com"},
	}}
	w.do(w.Create(w.Context(), owner))
	return owner
}

func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// claim returns a claim that exists.
func (w *world) claim(name string) *ipamv1.IPAddressClaim {
	w.Helper()
	claim := &ipamv1.IPAddressClaim{}
	w.do(w.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: name}, claim))
	return claim
}

// claims compares the names of all claims that exist and are not being deleted.
func (w *world) claims(want ...string) {
	w.Helper()
	list := &ipamv1.IPAddressClaimList{}
	w.do(w.List(w.Context(), list))
	var got []string
	for _, claim := range list.Items {
		if claim.DeletionTimestamp.IsZero() {
			got = append(got, claim.Name)
		}
	}
	w.equal("claims", got, want)
}

// serve does what an IPAM provider does for a claim.
func (w *world) serve(name, address string, prefix int32, gateway string) *ipamv1.IPAddress {
	w.Helper()
	claim := w.claim(name)
	claim.Finalizers = append(claim.Finalizers, providerFinalizer)
	w.do(w.Update(w.Context(), claim))
	served := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim", Name: name, UID: claim.UID, Controller: new(true)},
		}},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: name}, PoolRef: claim.Spec.PoolRef,
			Address: address, Prefix: &prefix, Gateway: gateway,
		},
	}
	w.do(w.Create(w.Context(), served))
	claim.Status.AddressRef.Name = name
	w.do(w.Status().Update(w.Context(), claim))
	return served
}

// freed does what an IPAM provider does for a claim that is being deleted.
func (w *world) freed(name string) {
	w.Helper()
	claim := w.claim(name)
	if claim.DeletionTimestamp.IsZero() {
		w.Fatalf("%s is not being deleted", name)
	}
	claim.Finalizers = nil
	w.do(w.Update(w.Context(), claim))
}

// ready calls Ensure, and compares the addresses.
func (w *world) ready(want ...string) []Address {
	w.Helper()
	addresses, waiting, err := w.machine.Ensure(w.Context())
	w.do(err)
	w.equal("waiting", waiting, []string(nil))
	var got []string
	for _, address := range addresses {
		got = append(got, address.Device+" "+address.Prefix.String())
	}
	w.equal("addresses", got, want)
	return addresses
}

// waits calls Ensure, and compares the sentences.
func (w *world) waits(want ...string) {
	w.Helper()
	addresses, waiting, err := w.machine.Ensure(w.Context())
	w.do(err)
	w.equal("waiting", waiting, want)
	if addresses != nil {
		w.Errorf("addresses: %v", addresses)
	}
}

// fails calls Ensure, and compares its error.
func (w *world) fails(is error, want string) {
	w.Helper()
	_, _, err := w.machine.Ensure(w.Context())
	w.failed(err, is, want)
}

func (w *world) failed(err, is error, want string) {
	w.Helper()
	if err == nil {
		w.Fatalf("no error, want %s", want)
	}
	if is != nil && !errors.Is(err, is) {
		w.Errorf("the error is not %q", is)
	}
	w.equal("error", err.Error(), want)
}

func (w *world) equal(what string, got, want any) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// hide makes the cache show no claim and no IPAddress.
func (w *world) hide() {
	w.cache = interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(ipamv1.GroupVersion.WithResource("any").GroupResource(), key.Name)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	}
}
