package addresses

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	// ErrForeignClaim means that the claim that a device needs exists and has another owner.
	ErrForeignClaim = errors.New("does not belong to the machine")
	// ErrClaimChanged means that a device needs another pool or Cluster than its claim has. The spec
	// of a claim is immutable, and its address can be in use, so it is not replaced.
	ErrClaimChanged = errors.New("cannot change its pool or its Cluster")
	// ErrInvalidAddress means that the IPAddress of a claim is for another claim or pool, or is not valid.
	ErrInvalidAddress = errors.New("is not valid for its claim")
)

// InstanceLabel is the label of the claims of one instance of a machine pool: see Machine.Instance.
const InstanceLabel = "addresses.cadastre.dev/instance"

// Machine holds what the claims of one machine are made from. It has no other state: make one for
// each pass of a controller. Its methods can run concurrently for different machines, but not for
// the same.
type Machine struct {
	// Client writes claims, and reads claims and IPAddresses; it can read from the manager's cache.
	Client client.Client
	// Live reads claims without a cache, such as the manager's GetAPIReader.
	Live client.Reader
	// Owner is the infrastructure machine, or an object between it and its claims, as the API server
	// has it. It must have a finalizer that the caller removes when Release has nothing to wait for.
	Owner client.Object
	// ClusterName is the name of the Cluster of the machine, usually the label
	// cluster.x-k8s.io/cluster-name of the owner.
	ClusterName string
	// Instance is empty, except if Owner is a machine pool that has no object for each instance. Then
	// it is the instance's name, and the Machine holds that instance alone.
	Instance string
	// Devices are the network devices that need addresses, with unique names.
	Devices []Device
}

// Device represents a network device of a machine.
type Device struct {
	// Name is a part of the names of the claims, and never changes while the device exists. The index
	// in a list can be the name only if no device is ever removed from the list or inserted into it.
	Name string
	// Pools has one pool for each address, in a fixed order: a device with two families has a pool of
	// each.
	Pools []ipamv1.IPPoolReference
	// Labels and Annotations are further ones for the claims of the device.
	Labels, Annotations map[string]string
}

// Address is an address of a device.
type Address struct {
	// Device is the name of the device.
	Device string
	Pool   ipamv1.IPPoolReference
	// Claim is the name of the IPAddressClaim.
	Claim string
	// Prefix is the address with the length of its network's prefix, such as 10.0.0.5/24.
	Prefix netip.Prefix
	// Gateway is not valid if the pool has no gateway.
	Gateway netip.Addr
}

// request holds what one claim is made from.
type request struct {
	device Device
	pool   ipamv1.IPPoolReference
	// claim is the name of the claim.
	claim string
}

// requests returns a request for each address.
func (m *Machine) requests() []request {
	var requests []request
	for _, device := range m.Devices {
		for i, pool := range device.Pools {
			requests = append(requests, request{device: device, pool: pool, claim: m.claimName(device.Name, i)})
		}
	}
	return requests
}

// validate returns an error if claims of this machine cannot be made.
func (m *Machine) validate() error {
	if m.ClusterName == "" {
		return errors.New("the machine has no ClusterName: wait until its Cluster is known")
	}
	var names []string
	for _, device := range m.Devices {
		if device.Name == "" || slices.Contains(names, device.Name) {
			return fmt.Errorf("the device name %q is empty or not unique: rename the device", device.Name)
		}
		names = append(names, device.Name)
	}
	return nil
}

// owns reports whether a claim is one of this machine. A claim whose reference to the owner is not
// that of a controller is one of the machine if it has no controller.
func (m *Machine) owns(claim *ipamv1.IPAddressClaim) bool {
	if m.instanceLabel() != claim.Labels[InstanceLabel] {
		return false
	}
	if controller := metav1.GetControllerOfNoCopy(claim); controller != nil {
		return controller.UID == m.Owner.GetUID()
	}
	return slices.ContainsFunc(claim.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.UID == m.Owner.GetUID()
	})
}

// check returns an error if a claim is not the one that the request asks for.
func (m *Machine) check(r request, claim *ipamv1.IPAddressClaim) error {
	if !m.owns(claim) {
		return fmt.Errorf("device %s: IPAddressClaim %s %w: delete it, or make a machine with another name",
			r.device.Name, claim.Name, ErrForeignClaim)
	}
	if cluster := claim.Spec.ClusterName; cluster != "" && cluster != m.ClusterName {
		return fmt.Errorf("device %s: IPAddressClaim %s %w: it is for the Cluster %s, not %s: make a new machine",
			r.device.Name, claim.Name, ErrClaimChanged, cluster, m.ClusterName)
	}
	if pool := claim.Spec.PoolRef; pool != r.pool {
		return fmt.Errorf("device %s: IPAddressClaim %s %w: it is for the %s %s, not the %s %s: make a new machine, or a device with another name",
			r.device.Name, claim.Name, ErrClaimChanged, pool.Kind, pool.Name, r.pool.Kind, r.pool.Name)
	}
	return nil
}
