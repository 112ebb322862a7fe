// Package addresses gets the addresses of machines for infrastructure providers of Cluster API, as
// the contract for IPAM providers requires of them, from any IPAM provider:
// https://cluster-api.sigs.k8s.io/developer/providers/contracts/ipam#infrastructure-provider
//
// A controller calls
//
//   - Watch, when it is set up, so that nothing polls: a wait ends with an event;
//   - Machine.Ensure, before it creates the machine at its infrastructure;
//   - Machine.ReleaseRemoved, when a device is gone from the infrastructure;
//   - Machine.Release, when the machine is gone from the infrastructure.
//
// The order of a release is: the machine is deleted at its infrastructure, then Release deletes the
// claims, then their IPAM providers free the addresses, then the controller removes its finalizer
// from the owner. So no address is given to another machine while this one uses it. There is one
// exception: if a user deletes the owner in the foreground, Kubernetes' garbage collector deletes the
// claims at once, because the contract requires blockOwnerDeletion.
//
// The caller must not call Machine's methods while the owner or its Cluster is paused, such as by
// clusterctl move. IPAM providers do not serve or release claims of a paused Cluster; the claims
// wait until the pause ends.
//
// The package uses ipam.cluster.x-k8s.io/v1beta2, which Cluster API 1.11 and later serve.
// IPAM providers can use v1beta1.
//
// The controller needs these rights, and update of the owner's finalizers:
//
//	+kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=create;delete;get;list;patch;watch
//	+kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch
package addresses
