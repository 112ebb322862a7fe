package allocator

import (
	"context"
	"fmt"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// update writes what differs between two states of a record, on condition that it is
// still the one, in the version, that was seen.
func (a *Allocator) update(ctx context.Context, before, after ipam.Record) (ipam.Record, error) {
	return a.patch(ctx, before, after, convert.Allocation(after))
}

// updateAdopted is update for a record that is taken over. It is written in any case, so
// that its maker cannot delete it any more: deletions carry the version that they
// judged.
func (a *Allocator) updateAdopted(ctx context.Context, before, after ipam.Record) (ipam.Record, error) {
	obj := convert.Allocation(after)
	obj.Annotations[v1alpha1.AnnotationAdopted] = utilrand.String(8)
	return a.patch(ctx, before, after, obj)
}

func (a *Allocator) patch(ctx context.Context, before, after ipam.Record, obj *v1alpha1.IPAllocation) (ipam.Record, error) {
	from := convert.Allocation(before)
	from.UID, from.ResourceVersion = "", "" // so that the patch names both
	sent := a.ledger.Revision()
	err := a.client.Patch(ctx, obj, client.MergeFrom(from))
	if err == nil && obj.ResourceVersion != before.Version {
		err = a.ledger.Acknowledge(obj.ResourceVersion, sent)
	}
	if err != nil {
		return ipam.Record{}, fmt.Errorf("changing IPAllocation %s: %w", before.Name, err)
	}
	after.Version = obj.ResourceVersion
	return after, nil
}
