package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestHolderIsFencedBeforeRelease(t *testing.T) {
	const block = "10.0.0.0/28"
	claim := func(record string) client.Object {
		c := claimNamed("x", "uid")
		c.Spec.AllocationName = record
		return c
	}
	givenUp := func(record string) client.Object {
		c := claimNamed("x", "uid")
		c.Annotations = map[string]string{v1alpha1.AnnotationGivenUp: record}
		return c
	}
	pool := func(cidr string) client.Object {
		p := build.Pool("x").Child("parent", 28).Obj()
		p.UID, p.Spec.CIDR = "uid", cidr
		return p
	}
	address := func(name string) client.Object {
		c := addressObject(convert.AddressClaimKind)
		c.SetNamespace("ns")
		c.SetName("x")
		c.SetUID("uid")
		if name != "" {
			_ = unstructured.SetNestedField(c.Object, name, "status", "addressRef", "name")
		}
		return c
	}
	claims, pools, addresses := claimOrder("x", 28).Holder, convert.HolderOfPool(ipam.PoolNamed("x")), convert.HolderOfAddressClaim(ipam.Name{Namespace: "ns", Name: "x"})
	for name, c := range map[string]struct {
		holder  ipam.Holder
		uid     string
		there   client.Object
		written bool
		has     bool
	}{
		"a claim that waits":                        {claims, "uid", claim(""), true, false},
		"a claim that waits, of which none knew":    {claims, "", claim(""), true, false},
		"a claim that states that it is given up":   {claims, "uid", givenUp("record/7"), false, false},
		"a claim that states that of a version":     {claims, "uid", givenUp("record/6"), true, false},
		"a claim that states that of another":       {claims, "uid", givenUp("former/7"), true, false},
		"a claim that has it":                       {claims, "uid", claim("x-record"), false, true},
		"a claim that has another":                  {claims, "uid", claim("another"), false, false},
		"another claim of the name":                 {claims, "former", claim(""), false, false},
		"a claim that is gone":                      {claims, "uid", nil, false, false},
		"a pool that waits":                         {pools, "uid", pool(""), true, false},
		"a pool that has it":                        {pools, "uid", pool(block), false, true},
		"a pool that has another CIDR":              {pools, "uid", pool("10.0.1.0/28"), false, false},
		"an IPAddressClaim that waits":              {addresses, "uid", address(""), true, false},
		"a holder of a kind that is not known":      {ipam.Holder{Group: "example.com", Kind: "Other", Namespace: "ns", Name: "x"}, "uid", nil, false, false},
		"an IPAddressClaim that names an IPAddress": {addresses, "uid", address("x"), false, false},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			record := heldBlock("x", block)
			record.Name.Name, record.UID, record.Version, record.Holder, record.HolderUID = "x-record", "record", "7", c.holder, c.uid
			if c.there != nil {
				c.there.SetResourceVersion("3")
				api.otherObjects = []client.Object{c.there}
			}
			api.refuses = func(verb string, obj client.Object) error {
				if verb == "patch" && obj.GetUID() != "uid" {
					t.Errorf("written to %+v", obj)
				}
				return nil
			}
			err := a.Fence(t.Context(), record)
			if errors.Is(err, ipam.ErrUnconfirmed) != c.has || err != nil && !c.has {
				t.Errorf("got %v, want that it has the record: %t", err, c.has)
			}
			var want []string
			if c.written {
				want = []string{`{"metadata":{"annotations":{"ipam.cadastre.dev/given-up":"record/7"},"resourceVersion":"3"}}`}
			}
			if !slices.Equal(api.written, want) {
				t.Errorf("it was written to: %s, want %s", api.written, want)
			}
		})
	}
	for verb, want := range map[string]string{"get": "connection reset", "patch": "giving up ns/x-record for IPClaim ns/x"} {
		runNamedOnReplica(t, verb+" is cut off", func(t *testing.T, a *Allocator, api *steady) {
			record := heldBlock("x", block)
			record.Name.Name, record.HolderUID = "x-record", "uid"
			api.otherObjects = []client.Object{claim("")}
			api.calls(map[string]error{verb: errCut})
			if err := a.Fence(t.Context(), record); !errors.Is(err, errCut) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			api.calls(map[string]error{"patch": apierrors.NewConflict(resource, "x", errors.New("changed"))})
			if err := a.Fence(t.Context(), record); !apierrors.IsConflict(err) {
				t.Errorf("another client writes to it: got %v", err)
			}
		})
	}
}

// TestIPAddressClaimNamingIPAddressKeepsRecord covers a leader that reads an old claim
// from its cache and would give the record up.
func TestIPAddressClaimNamingIPAddressKeepsRecord(t *testing.T) {
	for text, has := range map[string]bool{"10.0.0.7": true, "10.0.0.8": false, "": false} {
		runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
			claim, address := addressObject(convert.AddressClaimKind), addressObject("IPAddress")
			for _, obj := range []*unstructured.Unstructured{claim, address} {
				obj.SetNamespace("ns")
				obj.SetName("x")
				obj.SetUID("uid")
			}
			_ = unstructured.SetNestedField(claim.Object, "x", "status", "addressRef", "name")
			_ = unstructured.SetNestedField(address.Object, text, "spec", "address")
			api.otherObjects = []client.Object{claim, address}
			record := heldBlock("x", "10.0.0.7/32")
			record.Holder, record.HolderUID = convert.HolderOfAddressClaim(ipam.Name{Namespace: "ns", Name: "x"}), "uid"
			if err := a.Fence(t.Context(), record); errors.Is(err, ipam.ErrUnconfirmed) != has || err != nil && !has {
				t.Errorf("its IPAddress has %q: got %v, want that it has the record: %t", text, err, has)
			}
			api.refuses = func(_ string, obj client.Object) error {
				if obj.GetObjectKind().GroupVersionKind().Kind == "IPAddress" {
					return errCut
				}
				return nil
			}
			if err := a.Fence(t.Context(), record); !errors.Is(err, errCut) {
				t.Errorf("it cannot be read: got %v", err)
			}
		})
	}
}

func TestAbandonedFixedNameIsReleasedAtOnce(t *testing.T) {
	for _, uid := range []string{"", "uid"} {
		for _, fails := range []error{nil, errCut} {
			runNamedOnReplica(t, fmt.Sprintf("claim %q, the deletion fails: %v", uid, fails), func(t *testing.T, a *Allocator, api *steady) {
				order := claimOrder("x", 28)
				order.existsAs(uid)
				record := api.stores(t, order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28")))
				api.calls(map[string]error{"delete": fails})
				err := a.abandonRecord(t.Context(), order, record, ledger.ErrLost)
				if !errors.Is(err, ledger.ErrLost) || errors.Is(err, errCut) != (fails != nil && uid != "") {
					t.Errorf("got %v", err)
				}
				if there := api.stored(record.Name) != nil; fails == nil && uid != "" && there {
					t.Error("it is stored still")
				}
				synctest.Wait()
				if there := api.stored(record.Name) != nil; there != (fails != nil) {
					t.Errorf("in the end it is stored: %t", there)
				}
			})
		}
	}
}
