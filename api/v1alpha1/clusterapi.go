package v1alpha1

// Names that Cadastre reads and writes on Cluster API's IPAddressClaims and IPAddresses.
const (
	// AnnotationAddress on an IPAddressClaim requests that address, such as 10.0.0.7. It is read
	// when the claim is created.
	AnnotationAddress = "ipam.cadastre.dev/address"

	// AnnotationSticky on an IPAddressClaim is a key of up to 253 characters: the claim gets the
	// address of the last claim of the namespace with the same key, if the address is still
	// retained.
	AnnotationSticky = "ipam.cadastre.dev/sticky"

	// AnnotationAllocation on an IPAddress names the IPAllocation that holds it.
	AnnotationAllocation = "ipam.cadastre.dev/allocation"

	// LabelPool and LabelPoolKind on an IPAddress name its pool, also if the claim names a class. A
	// name of more than 63 characters is replaced by a hash.
	LabelPool     = "ipam.cadastre.dev/pool"
	LabelPoolKind = "ipam.cadastre.dev/pool-kind"

	// LabelCluster on a LocalIPPool names the Cluster to which it belongs; `clusterctl move` moves
	// the pool with the Cluster. While the Cluster is missing or paused, the pool allocates no
	// blocks.
	LabelCluster = "cluster.x-k8s.io/cluster-name"

	// FinalizerRelease is on every IPAddressClaim that Cadastre serves: it stays until the address
	// is released.
	FinalizerRelease = "ipam.cadastre.dev/release-address"

	// FinalizerProtect is on every IPAddress of Cadastre: it stays until the
	// claim is gone (contract: "a Finalizer that prevents accidental deletion").
	FinalizerProtect = "ipam.cadastre.dev/protect-address"

	// ReasonAddressAllocated: the condition Ready of an IPAddressClaim is True;
	// its address is held and status.addressRef names the IPAddress.
	ReasonAddressAllocated = "AddressAllocated"
)
