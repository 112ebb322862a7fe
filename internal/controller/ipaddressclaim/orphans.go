package ipaddressclaim

import (
	"context"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Orphans collects records without holder.
type Orphans interface {
	// Judge has records of holders of the kind judged by f.
	Judge(kind string, f func(context.Context, client.Reader, ipam.Record) (bool, error))
	// Gone notes that the holder of the records, of the UID, has been deleted.
	Gone(uid string, records ...ipam.Name)
	// Look has the records judged, of whose holder nothing is known: one that has none
	// is released after a grace period.
	Look(records ...ipam.Name)
}

// holds reports whether a record's holder exists: the IPAddress of the claim's name
// with this address, or, while there is no IPAddress, the claim. A record that is
// being deleted, while its claim is not and its status names no address, is what
// is left of a release that was cut short: the claim cannot be served until it is gone.
func holds(ctx context.Context, reader client.Reader, record ipam.Record) (bool, error) {
	key := client.ObjectKey{Namespace: record.Holder.Namespace, Name: record.Holder.Name}
	address, claim := &ipamv1.IPAddress{}, &ipamv1.IPAddressClaim{}
	err := reader.Get(ctx, key, address)
	if kubeutil.IgnoreNotFound(err) != nil {
		return false, err
	}
	inUse := err == nil && isOurs(address.Spec.PoolRef)
	if inUse && !has(address, record) {
		return false, nil
	}
	if inUse && !record.Terminating {
		return true, nil
	}
	if err := reader.Get(ctx, key, claim); err != nil {
		return inUse, kubeutil.IgnoreNotFound(err)
	}
	if record.Terminating && claim.Status.AddressRef.Name == "" && claim.DeletionTimestamp.IsZero() {
		return false, nil
	}
	return inUse || record.MayBeOf(string(claim.UID)), nil
}

// has reports whether an IPAddress is that of the record.
func has(address *ipamv1.IPAddress, record ipam.Record) bool {
	addr, invalid := convert.AddressInUse(nil, address.Spec.Address)
	return invalid == nil && addr == record.Block.Addr()
}
