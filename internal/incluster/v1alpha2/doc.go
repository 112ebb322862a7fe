// Package v1alpha2 has the pools of Cluster API's in-cluster IPAM provider, InClusterIPPool and
// GlobalInClusterIPPool, as pools of Cadastre. Their specs, and the counts of their status, are the
// types of that provider. Conditions are added to the status.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1alpha2
