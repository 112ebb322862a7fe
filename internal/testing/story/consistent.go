package story

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Consistent expects that no two records of a pool overlap, and that each object which is Ready
// has the record of its block: under its name, and not of an earlier object of its name.
func (w *World) Consistent() {
	w.t.Helper()
	records := w.storedRecords()
	for i, a := range records {
		for _, b := range records[:i] {
			if a.Pool == b.Pool && a.Block.Overlaps(b.Block) {
				w.t.Fatalf("the block %s of %s is held twice: by %s and by %s", a.Block, a.Pool, a.Holder, b.Holder)
			}
		}
	}
	for _, kind := range w.plane.kinds {
		for _, obj := range w.listed(kind) {
			w.expectRecord(obj, records)
		}
	}
}

func (w *World) storedRecords() []ipam.Record {
	w.t.Helper()
	list := &v1alpha1.IPAllocationList{}
	suite.Must(w.t, w.plane.admin.List(w.t.Context(), list))
	var records []ipam.Record
	for i := range list.Items {
		record, unreadable := convert.Record(&list.Items[i])
		if unreadable != nil {
			w.t.Fatal(unreadable)
		}
		records = append(records, record)
	}
	return records
}

// listed returns all objects of a kind.
func (w *World) listed(kind client.Object) []client.Object {
	w.t.Helper()
	gvk, err := w.plane.admin.GroupVersionKindFor(kind)
	suite.Must(w.t, err)
	gvk.Kind += "List"
	list, err := w.plane.admin.Scheme().New(gvk)
	suite.Must(w.t, err)
	suite.Must(w.t, w.plane.admin.List(w.t.Context(), list.(client.ObjectList)))
	items, err := meta.ExtractList(list)
	suite.Must(w.t, err)
	objects := make([]client.Object, len(items))
	for i, item := range items {
		objects[i] = item.(client.Object)
	}
	return objects
}

// expectRecord expects that an object that is Ready has its record.
func (w *World) expectRecord(obj client.Object, records []ipam.Record) {
	w.t.Helper()
	holder, block := w.heldBy(obj)
	if block == "" || !meta.IsStatusConditionTrue(conditionsOf(obj), v1alpha1.ConditionReady) {
		return
	}
	for _, r := range records {
		if r.Holder == holder && r.Block.String() == block && r.MayBeOf(string(obj.GetUID())) {
			return
		}
	}
	w.t.Fatalf("%s is Ready with %s, of which there is no record for its UID %s", holder, block, obj.GetUID())
}

// heldBy returns the block of an object, and the holder that the object is. The block is empty
// if the object has none.
func (w *World) heldBy(obj client.Object) (ipam.Holder, string) {
	w.t.Helper()
	name := ipam.Name{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	switch obj := obj.(type) {
	case *v1alpha1.IPClaim:
		return convert.HolderOfClaim(name), obj.Spec.CIDR
	case v1alpha1.Pool:
		return convert.HolderOfPool(convert.KeyOf(obj)), obj.PoolSpec().CIDR
	case *ipamv1.IPAddressClaim:
		address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Status.AddressRef.Name}}
		if address.Name != "" && w.isStored(address) {
			return convert.HolderOfAddressClaim(name), address.Spec.Address + "/32"
		}
	}
	return ipam.Holder{}, ""
}
