package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LocalIPPoolSpec is the desired state of a LocalIPPool.
type LocalIPPoolSpec struct {
	PoolSpec `json:",inline"`
}

// LocalIPPool is a pool that belongs to a namespace: one CIDR from which blocks are allocated only
// to claims of its namespace. A root pool states its CIDR, in a routing domain that is private to
// the namespace, so that it does not conflict with pools outside the namespace; a child pool is a
// block of an IPPool that its creator has the right to use, or of a LocalIPPool in its namespace.
// Claims that name a class with allowLocalPools are served from the pools of their namespace before
// those of the platform. The annotations ipam.cadastre.dev/paused and cluster.x-k8s.io/paused pause
// it with any value, including "false", as they do an IPPool.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=localippool,categories=cadastre
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parentRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Allocations",type=integer,JSONPath=`.status.allocations`
// +kubebuilder:printcolumn:name="Used%",type=integer,JSONPath=`.status.utilizationPercent`
// +kubebuilder:printcolumn:name="Largest Free",type=string,JSONPath=`.status.largestFreePrefix`
// +kubebuilder:printcolumn:name="Domain",type=string,priority=1,JSONPath=`.spec.routingDomain`
// +kubebuilder:printcolumn:name="Available",type=string,priority=1,JSONPath=`.status.capacity.available`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.cidr`
// +kubebuilder:selectablefield:JSONPath=`.spec.parentRef.name`
type LocalIPPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec LocalIPPoolSpec `json:"spec"`
	// +optional
	Status PoolStatus `json:"status,omitempty"`
}

// LocalIPPoolList is a list of LocalIPPools.
// +kubebuilder:object:root=true
type LocalIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LocalIPPool `json:"items"`
}
