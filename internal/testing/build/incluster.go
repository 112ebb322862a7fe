package build

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provider "sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
)

// InClusterPool returns a pool of the in-cluster provider that Cadastre does not serve, with its name as UID.
func InClusterPool(namespace, name string, prefix int, addresses ...string) *incluster.InClusterIPPool {
	return &incluster.InClusterIPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1},
		Spec:       provider.InClusterIPPoolSpec{Addresses: addresses, Prefix: prefix},
	}
}

// Served returns the pool as Cadastre serves it: with the condition Ready, of a reason.
func Served[T v1alpha1.Pool](pool T, reason string) T {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}
	if reason == v1alpha1.ReasonReady {
		ready.Status = metav1.ConditionTrue
	}
	pool.PoolStatus().Conditions = []metav1.Condition{ready, {Type: v1alpha1.ConditionAllocated, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRecorded}}
	return pool
}
