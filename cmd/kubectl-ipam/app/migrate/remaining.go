package migrate

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// releasedByOperator describes the state that a rollback waits for: a holder that is gone, or
// is being deleted, has its block until the operator has released the block.
const releasedByOperator = "released by the operator: see that it is running, and that no finalizer keeps the claim"

// remaining holds the IPAllocations that a rollback finds in its pools beside those that it
// gives back or deletes.
type remaining struct {
	// rows lists the IPAllocations that a person has to remove first.
	rows []row
	// leaving names the IPAllocations that the operator is about to release.
	leaving []string
}

// remainingOf judges records by their holders, which were read after them. isOurs reports
// whether the rollback itself ends a holder that exists.
func remainingOf(records []v1alpha1.IPAllocation, holders map[string]metav1.Object, isOurs func(*v1alpha1.IPAllocation) bool) remaining {
	var found remaining
	for i := range records {
		record, holder := &records[i], holders[holderName(&records[i])]
		switch {
		case isKept(record):
			found.rows = append(found.rows, keptRow(record))
		case isOurs(record):
		case isLeaving(holder):
			found.leaving = append(found.leaving, "IPAllocation "+keyOf(record).String())
		default:
			found.rows = append(found.rows, row{holderName(record), cannot, record.Spec.CIDR + " was claimed after the import: delete it"})
		}
	}
	return found
}

// isLeaving reports whether a holder is gone, or is being deleted: if so, the operator releases
// its block by itself.
func isLeaving(holder metav1.Object) bool {
	return holder == nil || holder.GetDeletionTimestamp() != nil
}

// isKept reports whether a record stays although its holder is gone.
func isKept(record *v1alpha1.IPAllocation) bool {
	state := record.Spec.State
	return record.DeletionTimestamp.IsZero() && (state == v1alpha1.AllocationRetained || state == v1alpha1.AllocationCooling)
}

func keptRow(record *v1alpha1.IPAllocation) row {
	name := "IPAllocation " + keyOf(record).String()
	if record.Spec.State == v1alpha1.AllocationCooling {
		return row{name, cannot, record.Spec.CIDR + " was released, and its reuseDelay has not passed: wait until the IPAllocation is gone"}
	}
	return row{name, cannot, record.Spec.CIDR + " is retained, and its claim is gone: delete the IPAllocation"}
}

// holderName returns the name of the holder of a record, as tables show it.
func holderName(record *v1alpha1.IPAllocation) string {
	ref := record.Spec.ClaimRef
	if ref.Kind == string(v1alpha1.PoolKindIPPool) {
		return ref.Kind + " " + ref.Name
	}
	return ref.Kind + " " + client.ObjectKey{Namespace: cmp.Or(ref.Namespace, record.Namespace), Name: ref.Name}.String()
}

// holders reads the holders of records, by holderName. An IPAddress without a claim holds its
// address, too.
func (r *run) holders(ctx context.Context, records []v1alpha1.IPAllocation) (map[string]metav1.Object, error) {
	found, kinds := map[string]metav1.Object{}, map[string]bool{}
	for i := range records {
		kinds[records[i].Spec.ClaimRef.Kind] = true
	}
	for kind := range kinds {
		read := []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind(kind)}
		if kind == kindClaim {
			version := schema.GroupVersion{Group: addressGroup, Version: addressVersion}
			read = []schema.GroupVersionKind{version.WithKind(kindAddress), version.WithKind(kindClaim)}
		}
		for _, gvk := range read {
			objects, _, err := list(ctx, r.client, gvk, client.InNamespace(r.o.Namespace))
			if err != nil {
				return nil, err
			}
			for _, obj := range objects {
				found[nameOfHolder(kind, obj)] = obj
			}
		}
	}
	return found, nil
}

// nameOfHolder returns the holderName of an object.
func nameOfHolder(kind string, obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return kind + " " + obj.GetName()
	}
	return kind + " " + keyOf(obj).String()
}

// awaitReleased reads the remaining IPAllocations until none of them is about to be released.
func (r *run) awaitReleased(ctx context.Context, read func() (remaining, error)) (remaining, error) {
	var found remaining
	err := r.await(ctx, releasedByOperator, func() (leaving []string, err error) {
		found, err = read()
		return found.leaving, err
	})
	if err != nil {
		return found, fmt.Errorf("waiting for releases that are under way: %w", err)
	}
	return found, nil
}
