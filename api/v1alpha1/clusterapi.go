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

// Names that Cadastre reads and writes on Cluster API's Clusters, and on the IPClaims of their
// networks.
const (
	// LabelClusterNetworks on a Cluster, or on its Namespace, with the value ClusterNetworksEnabled
	// has the networks of the Cluster filled in when it is created. On a Cluster,
	// ClusterNetworksDisabled overrides the Namespace.
	LabelClusterNetworks    = "ipam.cadastre.dev/cluster-networks"
	ClusterNetworksEnabled  = "enabled"
	ClusterNetworksDisabled = "disabled"

	// AnnotationPods and AnnotationServices on a Cluster, or on its Namespace as a default, name the
	// classes of the blocks for spec.clusterNetwork, one for each address family, such as
	// pod-networks/20,pod-networks-v6. A length follows a class whose default does not fit.
	AnnotationPods     = "ipam.cadastre.dev/pods"
	AnnotationServices = "ipam.cadastre.dev/services"

	// AnnotationControlPlaneEndpoint names the class of the address for spec.controlPlaneEndpoint, and
	// the port, such as vips:6443. With variable:vip:6443 the address is the one of the topology
	// variable vip.
	AnnotationControlPlaneEndpoint = "ipam.cadastre.dev/control-plane-endpoint"

	// AnnotationVariables names the topology variables that get a block or an address, each with its
	// class, such as lbRange=lb-ranges/28,vip=vips.
	AnnotationVariables = "ipam.cadastre.dev/variables"

	// AnnotationNetworksFilled on a Cluster lists its values that are claimed for it, such as
	// pods=10.4.0.0/16@pod-networks,control-plane-endpoint=10.6.0.7@vips. Only the operator writes it;
	// a Cluster that is created with it, as by clusterctl move, keeps it.
	AnnotationNetworksFilled = "ipam.cadastre.dev/networks-filled"

	// AnnotationClusterNetwork on an IPClaim names the Cluster, the purpose and the index of the block,
	// such as prod/pods/0. Only the operator writes it.
	AnnotationClusterNetwork = "ipam.cadastre.dev/cluster-network"

	// AnnotationAttempt on such an IPClaim identifies the create of the Cluster that last used the
	// claim.
	AnnotationAttempt = "ipam.cadastre.dev/attempt"

	// FinalizerClusterNetwork is on the IPClaims of a Cluster that exists: it stays until the Cluster
	// is gone, or has another value in place of the block.
	FinalizerClusterNetwork = "ipam.cadastre.dev/cluster-network"

	// MaxClusterName is the greatest length of the name of a Cluster whose networks are filled in: its
	// claims have the name as a label.
	MaxClusterName = 63
)
