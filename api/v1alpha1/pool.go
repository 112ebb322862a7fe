package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pool is implemented by all kinds of pools, such as *IPPool and *LocalIPPool.
// +kubebuilder:object:generate=false
type Pool interface {
	metav1.Object
	runtime.Object
	// PoolKind returns the kind of the pool, regardless of its TypeMeta.
	PoolKind() PoolKind
	// PoolSpec and PoolStatus return the parts that all kinds have, for reading and writing.
	PoolSpec() *PoolSpec
	PoolStatus() *PoolStatus
	// SharedWith returns which claims can use the pool in addition to those of its namespace: a
	// visibility and a project, as in IPPoolSpec.
	SharedWith() (Visibility, string)
}

var (
	_ Pool = &IPPool{}
	_ Pool = &LocalIPPool{}
)

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

// SharedWith implements Pool: only claims of its namespace can use it.
func (*LocalIPPool) SharedWith() (Visibility, string) { return "", "" }
