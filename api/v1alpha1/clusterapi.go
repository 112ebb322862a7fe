package v1alpha1

// What Cadastre reads and writes on Cluster API's IPAddressClaims and
// IPAddresses.
const (
	// AnnotationAddress on an IPAddressClaim asks for that very address, such as
	// 10.0.0.7. Read when the claim is created.
	AnnotationAddress = "ipam.cadastre.dev/address"

	// AnnotationSticky on an IPAddressClaim is a key of up to 253 characters: the
	// claim gets the address that the last claim of the namespace with the same
	// key had, if that is still retained.
	AnnotationSticky = "ipam.cadastre.dev/sticky"

	// AnnotationAllocation on an IPAddress names the IPAllocation that holds it.
	AnnotationAllocation = "ipam.cadastre.dev/allocation"

	// LabelPool and LabelPoolKind on an IPAddress name the pool that it is from,
	// also where the claim names a class. A name of more than 63 characters is
	// given as a hash.
	LabelPool     = "ipam.cadastre.dev/pool"
	LabelPoolKind = "ipam.cadastre.dev/pool-kind"

	// LabelCluster on a LocalIPPool names the Cluster to which it belongs, with
	// which `clusterctl move` takes it along. While that is missing or paused, the
	// pool hands out nothing.
	LabelCluster = "cluster.x-k8s.io/cluster-name"

	// FinalizerRelease is on every IPAddressClaim that Cadastre serves: it stays
	// until the address is given back.
	FinalizerRelease = "ipam.cadastre.dev/release-address"

	// FinalizerProtect is on every IPAddress of Cadastre: it stays until the
	// claim is gone (contract: "a Finalizer that prevents accidental deletion").
	FinalizerProtect = "ipam.cadastre.dev/protect-address"

	// ReasonAddressAllocated: the condition Ready of an IPAddressClaim is True;
	// its address is held and status.addressRef names the IPAddress.
	ReasonAddressAllocated = "AddressAllocated"
)
