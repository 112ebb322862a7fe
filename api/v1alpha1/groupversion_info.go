// Package v1alpha1 is the API of Cadastre: pools of addresses (IPPool, and the namespaced
// LocalIPPool), the policy for kinds of address space (IPClass), requests for blocks (IPClaim) and
// the register of held blocks (IPAllocation).
//
// Blocks and addresses are strings in canonical text form (RFC 4632, RFC 5952); constraints on a
// single object are CEL rules, so that they also hold while no webhook runs. Those of a new IPClaim are
// in the operator instead: while no replica runs, none can be created.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.cadastre.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of these types.
	GroupVersion = schema.GroupVersion{Group: "ipam.cadastre.dev", Version: "v1alpha1"}

	// SchemeBuilder collects the functions that add the types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this group version to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&IPPool{}, &IPPoolList{},
		&LocalIPPool{}, &LocalIPPoolList{},
		&IPClass{}, &IPClassList{},
		&IPClaim{}, &IPClaimList{},
		&IPAllocation{}, &IPAllocationList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
