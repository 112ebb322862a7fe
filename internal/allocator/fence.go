package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// giveUp releases a record where its holder does not have it, and says because of
// what.
func (a *Allocator) giveUp(ctx context.Context, record ipam.Record, cause error) error {
	if err := a.Fence(ctx, record); err != nil {
		return err
	}
	err := a.Release(ctx, record)
	if err == nil {
		a.history.Released(record, history.GivenUp)
	}
	return errors.Join(cause, err)
}

// Fence sees to it that nobody can make the record's holder name it any more who
// read the holder before: a leader that was paused between confirming the record
// and writing that into its claim. To be called before the release of a record
// whose holder may exist.
//
// Where the holder has the record, what the caller saw of it was old: the error
// is then ipam.ErrUnconfirmed. Where somebody else changes the holder at this
// moment, it is a conflict. Nothing is done for a holder that is gone, or has
// something else by now; of a kind that is not known here it is up to the caller.
func (a *Allocator) Fence(ctx context.Context, record ipam.Record) error {
	var holder client.Object
	var has func() string
	switch {
	case record.Holder.Kind == "IPClaim":
		claim := &v1alpha1.IPClaim{}
		holder, has = claim, func() string { return claim.Spec.AllocationName }
	case record.Holder.IsPool():
		pool := v1alpha1.NewPool(v1alpha1.PoolKind(record.Holder.Kind))
		holder, has = pool, func() string { return pool.PoolSpec().CIDR }
	case record.Holder.Kind == convert.AddressClaimKind:
		claim := addressObject(convert.AddressClaimKind)
		holder, has = claim, func() string { return addressOf(claim) }
	default:
		return nil
	}
	err := a.client.Get(ctx, client.ObjectKey{Namespace: record.Holder.Namespace, Name: record.Holder.Name}, holder)
	switch {
	case err != nil:
		return kubeutil.IgnoreNotFound(err)
	case !record.MayBeOf(string(holder.GetUID())):
		return nil
	case has() == record.Name.Name || has() == record.Block.String():
		return hasRecord(record)
	case has() != "" && record.Holder.Kind == convert.AddressClaimKind:
		return a.fenceAddress(ctx, record, has())
	case has() != "":
		return nil
	}
	return a.markGivenUp(ctx, record, holder)
}

// markGivenUp writes into the holder that the record was given up for it, unless an earlier
// attempt to release the record has.
func (a *Allocator) markGivenUp(ctx context.Context, record ipam.Record, holder client.Object) error {
	if given := holder.GetAnnotations()[v1alpha1.AnnotationGivenUp]; given != "" && given == record.UID {
		return nil
	}
	before := holder.DeepCopyObject().(client.Object)
	annotations := maps.Clone(holder.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationGivenUp] = record.UID
	holder.SetAnnotations(annotations)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.client.Patch(ctx, holder, patch); err != nil {
		return kubeutil.IgnoreNotFound(fmt.Errorf("giving up %s for %s: %w", record.Name, record.Holder, err))
	}
	return nil
}

// hasRecord is the error where the holder has the record.
func hasRecord(record ipam.Record) error {
	return fmt.Errorf("%s has %s: %w", record.Holder, record.Name, ipam.ErrUnconfirmed)
}

// fenceAddress is Fence for a claim that names its IPAddress: it has the record where that
// is the IPAddress's.
func (a *Allocator) fenceAddress(ctx context.Context, record ipam.Record, name string) error {
	address := addressObject("IPAddress")
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: record.Holder.Namespace, Name: name}, address); err != nil {
		return kubeutil.IgnoreNotFound(err)
	}
	text, _, _ := unstructured.NestedString(address.Object, "spec", "address")
	if addr, err := netip.ParseAddr(text); err == nil && addr == record.Block.Addr() {
		return hasRecord(record)
	}
	return nil
}

// addressObject is an empty IPAddressClaim or IPAddress: Cluster API's types are not known
// here.
func addressObject(kind string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: convert.AddressClaimGroup, Version: "v1beta2", Kind: kind})
	return obj
}

// addressOf is the name of the claim's IPAddress, which is the claim's own; empty
// where its status names none.
func addressOf(claim *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef", "name")
	return name
}
