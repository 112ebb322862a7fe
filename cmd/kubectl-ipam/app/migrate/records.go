package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// releasedByOperator describes the state that a rollback waits for: a holder that is gone, or
// is being deleted, has its block until the operator has released the block.
const releasedByOperator = "released by the operator: see that it is running, and that no finalizer keeps the claim"

// remaining holds the IPAllocations of a pool that a rollback neither gives back nor deletes.
type remaining struct {
	// news lists the IPAllocations that a person has to remove first.
	news []row
	// leaving names the IPAllocations that the operator is about to release.
	leaving []string
}

// add judges records by their holders, which were read after them. isOurs reports whether the
// rollback itself ends a holder that exists.
func (found *remaining) add(records []v1alpha1.IPAllocation, holders map[string]metav1.Object, isOurs func(holder string) bool) {
	for i := range records {
		record, name := &records[i], "IPAllocation "+keyOf(&records[i]).String()
		switch holder := holderName(record); {
		case isKept(record) && record.Spec.State == v1alpha1.AllocationCooling:
			found.news = append(found.news, row{name, cannot, record.Spec.CIDR + " was released, and its reuseDelay has not passed: wait until the IPAllocation is gone"})
		case isKept(record):
			found.news = append(found.news, row{name, cannot, record.Spec.CIDR + " is retained, and its claim is gone: delete the IPAllocation"})
		case isOurs(holder):
		case isLeaving(holders[holder]):
			found.leaving = append(found.leaving, name)
		default:
			found.news = append(found.news, row{holder, cannot, record.Spec.CIDR + " was claimed after the import: delete it"})
		}
	}
}

// isLeaving reports whether a holder is gone or going: the operator releases its block by itself.
func isLeaving(holder metav1.Object) bool {
	return holder == nil || holder.GetDeletionTimestamp() != nil
}

// isKept reports whether a record stays although its holder is gone.
func isKept(record *v1alpha1.IPAllocation) bool {
	state := record.Spec.State
	return record.DeletionTimestamp.IsZero() && (state == v1alpha1.AllocationRetained || state == v1alpha1.AllocationCooling)
}

// holderName returns the name of the holder of a record, as tables show it.
func holderName(record *v1alpha1.IPAllocation) string {
	holder := ipam.Holder{Kind: record.Spec.ClaimRef.Kind, Name: record.Spec.ClaimRef.Name}
	if holder.Kind != string(v1alpha1.PoolKindIPPool) {
		holder.Namespace = cmp.Or(record.Spec.ClaimRef.Namespace, record.Namespace)
	}
	return holder.String()
}

// nameOfHolder returns the holderName of an object.
func nameOfHolder(kind string, obj metav1.Object) string {
	return ipam.Holder{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}.String()
}

// held reads the records of pools, and their holders.
func (r *run) held(ctx context.Context, pools map[ipam.Holder]bool) ([]v1alpha1.IPAllocation, map[string]metav1.Object, error) {
	records, err := r.records(ctx, pools)
	if err != nil {
		return nil, nil, err
	}
	holders, err := r.holders(ctx, records)
	return records, holders, err
}

// holders reads the holders of records, by holderName: IPAddresses without a claim, too.
func (r *run) holders(ctx context.Context, records []v1alpha1.IPAllocation) (map[string]metav1.Object, error) {
	found, kinds := map[string]metav1.Object{}, map[string]bool{}
	for i := range records {
		kinds[records[i].Spec.ClaimRef.Kind] = true
	}
	for kind := range kinds {
		read := []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind(kind)}
		if kind == kindClaim {
			read = []schema.GroupVersionKind{addressKind(kindAddress), addressKind(kindClaim)}
		}
		for _, gvk := range read {
			objects, _, err := r.list(ctx, gvk)
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

// awaitReleased waits until none of the remaining IPAllocations is about to be released.
func (r *run) awaitReleased(ctx context.Context, leaving func() ([]string, error)) error {
	if err := r.await(ctx, releasedByOperator, leaving); err != nil {
		return fmt.Errorf("waiting for releases that are under way: %w", err)
	}
	return nil
}

// pollEvery holds the interval at which the progress of the operator is checked.
const pollEvery = 500 * time.Millisecond

// verify waits until an IPAllocation exists for every IPAddress of our pools.
func (r *run) verify(ctx context.Context) error {
	pools := map[ipam.Holder]bool{}
	for _, pp := range r.plan.pools {
		pools[refOfPool(pp.pool)] = true
	}
	if err := onConflict(func() error { return r.removeFinalizers(ctx, pools) }); err != nil {
		return err
	}
	return r.await(ctx, "recorded by the operator: see that it is running", func() ([]string, error) { return r.unrecorded(ctx, pools) })
}

// removeFinalizers removes Metal3's finalizer from the claims of our pools. Its provider, which
// first lists the claims of its pool, can put the finalizer on a claim that was created again since,
// and does not remove it from claims of other pools.
func (r *run) removeFinalizers(ctx context.Context, pools map[ipam.Holder]bool) error {
	claims, _, err := r.list(ctx, addressKind(kindClaim))
	if err != nil {
		return err
	}
	for _, claim := range claims {
		before := claim.DeepCopy()
		if !pools[namedPool(claim)] || !controllerutil.RemoveFinalizer(claim, claimFinalizer) {
			continue
		}
		if err := client.IgnoreNotFound(r.patch(ctx, claim, before)); err != nil {
			return err
		}
	}
	return nil
}

// await waits until nothing is missing. It gives up if nothing changes for the time-out.
func (r *run) await(ctx context.Context, what string, missing func() ([]string, error)) error {
	last, since := -1, r.o.Clock.Now()
	for {
		names, err := missing()
		if err != nil || len(names) == 0 {
			return err
		}
		if len(names) != last {
			last, since = len(names), r.o.Clock.Now()
		}
		if r.o.Clock.Since(since) > r.o.Timeout {
			return fmt.Errorf("%s (%s): not %s, and run the same command again", ipam.FormatCount(len(names), "object"), ipam.FirstFew(names), what)
		}
		if err := waitFor(ctx, r.o.Clock, pollEvery); err != nil {
			return err
		}
	}
}

// unrecorded returns the IPAddresses of pools of which no IPAllocation names the block, and the
// claim by its UID.
func (r *run) unrecorded(ctx context.Context, pools map[ipam.Holder]bool) ([]string, error) {
	claims, addresses, err := r.readAddresses(ctx)
	if err != nil {
		return nil, err
	}
	uids, deleting := map[client.ObjectKey]types.UID{}, map[client.ObjectKey]bool{}
	for _, claim := range claims {
		uids[keyOf(claim)], deleting[keyOf(claim)] = claim.GetUID(), claim.GetDeletionTimestamp() != nil
	}
	records, err := r.records(ctx, pools)
	if err != nil {
		return nil, err
	}
	type held struct {
		key     client.ObjectKey
		address string
		uid     types.UID
	}
	recorded := map[held]bool{}
	for _, record := range records {
		if record.Spec.State == v1alpha1.AllocationBound {
			address, _, _ := strings.Cut(record.Spec.CIDR, "/")
			key := client.ObjectKey{Namespace: record.Namespace, Name: record.Spec.ClaimRef.Name}
			recorded[held{key, address, record.Spec.ClaimRef.UID}] = true
		}
	}
	var missing []string
	for _, address := range addresses {
		key, addr := claimOf(address), addressOf(address).String()
		if uids[key] == "" {
			key = keyOf(address)
		}
		isRecorded := recorded[held{key, addr, uids[key]}] || deleting[key] && recorded[held{key, addr, ""}]
		if pools[namedPool(address)] && !isRecorded {
			missing = append(missing, kindAddress+" "+keyOf(address).String())
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// records returns the IPAllocations of pools.
func (r *run) records(ctx context.Context, pools map[ipam.Holder]bool) ([]v1alpha1.IPAllocation, error) {
	all := &v1alpha1.IPAllocationList{}
	if err := r.client.List(ctx, all, client.InNamespace(r.o.Namespace)); err != nil {
		return nil, fmt.Errorf("listing IPAllocations: %w", err)
	}
	return slices.DeleteFunc(all.Items, func(record v1alpha1.IPAllocation) bool {
		return record.Spec.PoolRef == nil || !pools[recordedPool(&record)]
	}), nil
}

// recordedPool returns the pool of a record.
func recordedPool(record *v1alpha1.IPAllocation) ipam.Holder {
	namespace := cmp.Or(record.Spec.ClaimRef.Namespace, record.Namespace) // that of a LocalIPPool is its holder's
	return convert.HolderOfPool(convert.PoolKey(namespace, v1alpha1.PoolReference(*record.Spec.PoolRef)))
}
