package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pool is a pool of either kind, *IPPool or *LocalIPPool: what the operator's
// code works on.
// +kubebuilder:object:generate=false
type Pool interface {
	metav1.Object
	runtime.Object
	// PoolKind is the kind of the pool, whatever its TypeMeta says.
	PoolKind() PoolKind
	// PoolSpec and PoolStatus are what both kinds have, to be read and written.
	PoolSpec() *PoolSpec
	PoolStatus() *PoolStatus
	// SharedWith says whose claims may use the pool beside those of its own
	// namespace: a visibility and a project, as of IPPoolSpec.
	SharedWith() (Visibility, string)
}

var (
	_ Pool = &IPPool{}
	_ Pool = &LocalIPPool{}
)

// NewPool is an empty pool of a kind; an IPPool where none is stated.
func NewPool(kind PoolKind) Pool {
	if kind == PoolKindLocalIPPool {
		return &LocalIPPool{}
	}
	return &IPPool{}
}

// PoolKind implements Pool.
func (*IPPool) PoolKind() PoolKind { return PoolKindIPPool }

// PoolSpec implements Pool.
func (p *IPPool) PoolSpec() *PoolSpec { return &p.Spec.PoolSpec }

// PoolStatus implements Pool.
func (p *IPPool) PoolStatus() *PoolStatus { return &p.Status }

// SharedWith implements Pool.
func (p *IPPool) SharedWith() (Visibility, string) { return p.Spec.Visibility, p.Spec.Project }

// PoolKind implements Pool.
func (*LocalIPPool) PoolKind() PoolKind { return PoolKindLocalIPPool }

// PoolSpec implements Pool.
func (p *LocalIPPool) PoolSpec() *PoolSpec { return &p.Spec.PoolSpec }

// PoolStatus implements Pool.
func (p *LocalIPPool) PoolStatus() *PoolStatus { return &p.Status }

// SharedWith implements Pool: nobody else may use it, whatever it says.
func (*LocalIPPool) SharedWith() (Visibility, string) { return "", "" }
