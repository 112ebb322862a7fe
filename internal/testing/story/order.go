package story

import (
	"cmp"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// inOrder fails the story if the object comes, by its name, before one of the same order that
// was created earlier. Creation times are whole seconds, and the name decides between objects
// of the same age: in any other order the older object would be the first only if a second
// began in between.
func (w *World) inOrder(obj client.Object) {
	w.t.Helper()
	if orderOf(obj) == noOrder {
		return
	}
	for _, earlier := range w.ordered {
		if orderOf(earlier) == orderOf(obj) && compareNames(obj, earlier) < 0 && w.counts(earlier) {
			w.t.Fatalf("%s %s is created after %s %s, which comes first by name if they are of the same second: rename one of them, so that the older one comes first",
				kindOf(obj), client.ObjectKeyFromObject(obj), kindOf(earlier), client.ObjectKeyFromObject(earlier))
		}
	}
	w.ordered = append(w.ordered, obj)
}

// order represents an order in which the operator puts objects, by their age and then by their
// names.
type order int

const (
	noOrder order = iota
	// queueOrder has the objects that wait for a block.
	queueOrder
	// defaultOrder has the classes that are the default.
	defaultOrder
)

func orderOf(obj client.Object) order {
	switch obj := obj.(type) {
	case *v1alpha1.IPClaim, *ipamv1.IPAddressClaim:
		return queueOrder
	case v1alpha1.Pool:
		if obj.PoolSpec().ParentRef != nil {
			return queueOrder
		}
	case *v1alpha1.IPClass:
		if inventory.IsDefault(obj) {
			return defaultOrder
		}
	}
	return noOrder
}

func compareNames(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(kindOf(a), kindOf(b)))
}

// counts reports whether an object still has its position in its order: it is stored, and has
// no block yet.
func (w *World) counts(obj client.Object) bool {
	w.t.Helper()
	now := obj.DeepCopyObject().(client.Object)
	err := w.plane.admin.Get(w.t.Context(), client.ObjectKeyFromObject(obj), now)
	suite.Must(w.t, client.IgnoreNotFound(err))
	if err != nil || now.GetUID() != obj.GetUID() {
		return false
	}
	switch now := now.(type) {
	case *v1alpha1.IPClaim:
		return now.Status.AllocatedCIDR == ""
	case *ipamv1.IPAddressClaim:
		return now.Status.AddressRef.Name == ""
	case v1alpha1.Pool:
		return now.PoolStatus().AllocatedCIDR == ""
	}
	return true
}
