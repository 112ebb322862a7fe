package register

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// The resources of the in-cluster provider's kinds.
const (
	inClusterPools       = "inclusterippools"
	globalInClusterPools = "globalinclusterippools"
)

// InClusterPools returns the listings of the pools of the in-cluster provider's kinds, which a cluster
// need not have.
func InClusterPools(keep func(v1alpha1.Pool)) []Listing {
	return []Listing{
		Each(inClusterPools, &incluster.InClusterIPPoolList{}, keep),
		Each(globalInClusterPools, &incluster.GlobalInClusterIPPoolList{}, keep),
	}
}

// addInCluster adds a pool that Cadastre serves.
func (o *Objects) addInCluster(pool v1alpha1.Pool) {
	if IsServed(pool) {
		o.InClusterPools = append(o.InClusterPools, pool)
	}
}

// IsServed reports whether Cadastre serves a pool: one of the in-cluster provider's kinds if it has the
// condition Ready, which that provider does not write, and which its CRDs remove when it takes the
// pools back. The pool's own record is no sign: it stays then.
func IsServed(pool v1alpha1.Pool) bool {
	if !ipam.PoolKind(pool.PoolKind()).IsInCluster() {
		return true
	}
	return meta.FindStatusCondition(pool.PoolStatus().Conditions, v1alpha1.ConditionReady) != nil
}

// IsProviderRunning reports whether the in-cluster provider hands out the addresses of a pool, as the
// operator last saw it.
func IsProviderRunning(pool v1alpha1.Pool) bool {
	ready := meta.FindStatusCondition(pool.PoolStatus().Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonProviderRunning
}

// ResourceOf returns the name of the resource of a pool, as in a role.
func ResourceOf(pool ipam.PoolKey) string {
	switch pool.Kind {
	case ipam.PoolKindLocalIPPool:
		return "localippools"
	case ipam.PoolKindInClusterIPPool:
		return inClusterPools
	case ipam.PoolKindGlobalInClusterIPPool:
		return globalInClusterPools
	}
	return "ippools"
}
