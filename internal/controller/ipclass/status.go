package ipclass

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// count adds up the cluster-scoped pools that back the class. It does not count pools that cannot
// hand out blocks at the moment. Nor does it count LocalIPPools: every user can read a class, but a
// LocalIPPool concerns its own namespace only, and no other namespace can use its capacity.
func (c *Controller) count(class *v1alpha1.IPClass) {
	var total, allocated, available, withheld, outOfRange space.Count
	ready := int32(0)
	read, _ := convert.Class(class)
	backing, _ := c.Catalog.PoolsOf("", read)
	for _, pool := range backing {
		if c.Catalog.PoolReady(pool) != nil {
			continue
		}
		capacity, ok := c.Ledger.Capacity(pool.Key)
		if !ok {
			continue
		}
		ready++
		total, allocated = total.Add(capacity.Total), allocated.Add(capacity.Allocated)
		available, withheld = available.Add(capacity.Available), withheld.Add(capacity.Withheld)
		outOfRange = outOfRange.Add(capacity.OutOfRange)
	}
	class.Status.ObservedGeneration = class.Generation
	class.Status.Pools = ready
	class.Status.Capacity = convert.Capacity(total, allocated, available, withheld, outOfRange)
}

// condition sets the condition Ready. It is False only if the class itself must be changed. A class
// that no pool backs is Ready: its pools may come after it, and Flux applies nothing else before
// all classes of a repository are Ready.
func (c *Controller) condition(class *v1alpha1.IPClass) {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: class.Generation,
	}
	family := ipam.Family(class.Spec.IPFamily)
	defaultClass, _ := c.Catalog.DefaultClass(family, func(inventory.ClassEntry) bool { return true })
	switch {
	case class.Spec.Provisioner != "" && class.Spec.Provisioner != v1alpha1.NativeProvisioner:
		ready.Reason, ready.Message = v1alpha1.ReasonForeignProvisioner, fmt.Sprintf("claims of this class are served by %s: look there for their state", class.Spec.Provisioner)
	case inventory.IsDefault(class) && defaultClass.Name != "" && defaultClass.Name != class.Name:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonNotDefault, notDefault(defaultClass, class)
	case class.Status.Pools == 0:
		ready.Reason, ready.Message = v1alpha1.ReasonNoPools, "no IPPool that is ready backs this class, and claims wait for one: add it to the classNames of a pool"
	default:
		ready.Reason, ready.Message = v1alpha1.ReasonReady, "claims of this class are served"
	}
	meta.SetStatusCondition(&class.Status.Conditions, ready)
}

// notDefault returns a message that gives the reason why another class is the default of the
// family.
func notDefault(first inventory.ClassEntry, class *v1alpha1.IPClass) string {
	if first.Replaces == class.Name {
		return fmt.Sprintf("the IPClass %q replaces this one as the default class for %s: remove the annotation %s here", first.Name, class.Spec.IPFamily, v1alpha1.AnnotationDefaultClass)
	}
	return fmt.Sprintf("the IPClass %q is older and the default class for %s: remove the annotation of one of them", first.Name, class.Spec.IPFamily)
}
