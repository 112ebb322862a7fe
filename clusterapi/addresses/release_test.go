package addresses

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// release calls Release or ReleaseRemoved, and compares the sentences.
func (w *world) release(call func(context.Context) ([]string, error), want ...string) {
	w.Helper()
	waiting, err := call(w.Context())
	w.do(err)
	w.equal("waiting", waiting, want)
}

// served ensures the addresses of devices of the pool v4.
func (w *world) served(devices ...string) {
	w.Helper()
	w.machine.Devices = nil
	var waiting, ready []string
	for _, name := range devices {
		w.machine.Devices = append(w.machine.Devices, Device{Name: name, Pools: []ipamv1.IPPoolReference{v4}})
		waiting = append(waiting, "IPAddressClaim web-"+name+"-0 has no address yet"+notServed)
		ready = append(ready, name+" 10.0.0."+name+"/24")
	}
	w.waits(waiting...)
	for _, name := range devices {
		w.serve("web-"+name+"-0", "10.0.0."+name, 24, "")
	}
	w.ready(ready...)
}

func TestReleaseWaitsUntilAllClaimsAreGone(t *testing.T) {
	w := newWorld(t)
	w.served("1", "2", "3")
	other := *w.machine
	other.Owner, other.Devices = w.owner("other"), other.Devices[:1]
	_, _, err := other.Ensure(t.Context())
	w.do(err)

	w.machine.Devices = w.machine.Devices[:1] // 2 and 3 are removed
	w.machine.ClusterName = ""                // and the machine is not valid
	w.do(w.Delete(t.Context(), w.machine.Owner))
	w.release(w.machine.Release, "IPAddressClaim web-1-0 is being deleted", "IPAddressClaim web-2-0 is being deleted", "IPAddressClaim web-3-0 is being deleted")
	w.claims("other-1-0")
	w.freed("web-1-0")
	w.freed("web-3-0")
	w.release(w.machine.Release, "IPAddressClaim web-2-0 is being deleted")
	w.freed("web-2-0")
	w.release(w.machine.Release)
	w.claims("other-1-0")
}

func TestReleaseFindsClaimThatCacheDoesNotShow(t *testing.T) {
	w := newWorld(t)
	w.served("1")
	w.hide()
	w.release(w.machine.Release, "IPAddressClaim web-1-0 is being deleted")
	w.claims()
	w.freed("web-1-0")
	w.release(w.machine.Release)
}

func TestReleaseKeepsClaimThatWasMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.served("1")
	w.cache.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		list.(*ipamv1.IPAddressClaimList).Items[0].UID = "uid-of-earlier"
		return err
	}
	_, err := w.machine.Release(t.Context())
	if !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	w.claims("web-1-0")
}

// TestReleaseReturnsErrorsOfCalls ensures that no caller takes a release for done if a call fails.
func TestReleaseReturnsErrorsOfCalls(t *testing.T) {
	for call, want := range map[string]string{
		"list":     "listing IPAddressClaims: the API server is away",
		"live get": "looking for IPAddressClaim web-1-0: the API server is away",
	} {
		t.Run(call, func(t *testing.T) {
			w := newWorld(t)
			w.served("1")
			w.hide()
			w.failing = call
			_, err := w.machine.Release(t.Context())
			w.failed(err, errFailing, want)
			w.claims("web-1-0")
		})
	}
	t.Run("list for removed devices", func(t *testing.T) {
		w := newWorld(t)
		w.failing = "list"
		_, err := w.machine.ReleaseRemoved(t.Context())
		w.failed(err, errFailing, "listing IPAddressClaims: the API server is away")
	})
}

func TestReleaseWaitsForCacheThatShowsClaimThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.served("1")
	stale := w.claim("web-1-0")
	w.release(w.machine.Release, "IPAddressClaim web-1-0 is being deleted")
	w.freed("web-1-0")
	w.cache.List = func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
		list.(*ipamv1.IPAddressClaimList).Items = []ipamv1.IPAddressClaim{*stale}
		return nil
	}
	w.release(w.machine.Release, "IPAddressClaim web-1-0 is being deleted")
	w.cache.List = nil
	w.release(w.machine.Release)
}

func TestReleaseRemovedKeepsClaimsOfDevices(t *testing.T) {
	w := newWorld(t)
	w.served("1", "2")
	w.release(w.machine.ReleaseRemoved)
	w.claims("web-1-0", "web-2-0")

	w.machine.Devices = w.machine.Devices[1:]
	w.ready("2 10.0.0.2/24")
	w.claims("web-1-0", "web-2-0") // Ensure deletes nothing
	w.release(w.machine.ReleaseRemoved, "IPAddressClaim web-1-0 is being deleted")
	w.claims("web-2-0")
	w.freed("web-1-0")
	w.release(w.machine.ReleaseRemoved)
	w.ready("2 10.0.0.2/24")
}

// TestReleaseRemovedKeepsAddressThatMovedInList removes the first pool of a device. By their names,
// the first claim is then for the second pool, and the second claim is for no device.
func TestReleaseRemovedKeepsAddressThatMovedInList(t *testing.T) {
	w := newWorld(t)
	w.machine.Devices[0].Pools = []ipamv1.IPPoolReference{v4, v6}
	w.waits("IPAddressClaim web-eth0-0 has no address yet"+notServed, "IPAddressClaim web-eth0-1 has no address yet"+notServed)
	w.machine.Devices[0].Pools = []ipamv1.IPPoolReference{v6}
	_, err := w.machine.ReleaseRemoved(t.Context())
	w.failed(err, ErrClaimChanged, "device eth0: IPAddressClaim web-eth0-0 cannot change its pool or its Cluster: it is for the Pool v4, not the Pool v6: make a new machine, or a device with another name")
	w.claims("web-eth0-0", "web-eth0-1")
}

func TestReleaseRemovedReleasesNothingOfInvalidMachine(t *testing.T) {
	w := newWorld(t)
	w.served("1", "2")
	w.machine.Devices = []Device{w.machine.Devices[0], w.machine.Devices[0]}
	_, err := w.machine.ReleaseRemoved(t.Context())
	w.failed(err, nil, `the device name "1" is empty or not unique: rename the device`)
	w.claims("web-1-0", "web-2-0")
}
