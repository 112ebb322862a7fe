package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// pollEvery holds the interval at which the progress of the operator is checked.
const pollEvery = 500 * time.Millisecond

// verify waits until an IPAllocation exists for every IPAddress of our pools, and removes the
// finalizers that the other provider has put on the new claims since.
func (r *run) verify(ctx context.Context, pl plan) error {
	pools := map[poolRef]bool{}
	for _, pp := range pl.pools {
		pools[refOfPool(pp.pool)] = true
	}
	theirs := []string{r.provider.claimFinalizer, r.provider.addressFinalizer}
	if err := r.clean(ctx, pools, theirs); err != nil {
		return err
	}
	return r.await(ctx, "recorded by the operator: see that it is running", func() ([]string, error) { return r.unrecorded(ctx, pools) })
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
		if err := r.wait(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// unrecorded returns the IPAddresses of pools of which no IPAllocation names the block, and the
// claim by its UID.
func (r *run) unrecorded(ctx context.Context, pools map[poolRef]bool) ([]string, error) {
	st, err := r.readAddresses(ctx)
	if err != nil {
		return nil, err
	}
	claims, deleting := map[client.ObjectKey]types.UID{}, map[client.ObjectKey]bool{}
	for _, claim := range st.claims {
		claims[keyOf(claim)], deleting[keyOf(claim)] = claim.GetUID(), claim.GetDeletionTimestamp() != nil
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
		if record.Spec.State != v1alpha1.AllocationBound {
			continue
		}
		key := client.ObjectKey{Namespace: record.Namespace, Name: record.Spec.ClaimRef.Name}
		recorded[held{key, addressOfBlock(record.Spec.CIDR), record.Spec.ClaimRef.UID}] = true
	}
	var missing []string
	for _, address := range st.addresses {
		key := claimOf(address)
		if key.Name == "" || claims[key] == "" {
			key = keyOf(address)
		}
		addr := addressOf(address).String()
		isRecorded := recorded[held{key, addr, claims[key]}] || deleting[key] && recorded[held{key, addr, ""}]
		if pools[namedPool(address)] && !isRecorded {
			missing = append(missing, kindAddress+" "+keyOf(address).String())
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// records returns the IPAllocations of pools.
func (r *run) records(ctx context.Context, pools map[poolRef]bool) ([]v1alpha1.IPAllocation, error) {
	all := &v1alpha1.IPAllocationList{}
	if err := r.client.List(ctx, all, client.InNamespace(r.o.Namespace)); err != nil {
		return nil, fmt.Errorf("listing IPAllocations: %w", err)
	}
	return slices.DeleteFunc(all.Items, func(record v1alpha1.IPAllocation) bool {
		return record.Spec.PoolRef == nil || !pools[recordedPool(&record)]
	}), nil
}

// recordedPool returns the pool of a record.
func recordedPool(record *v1alpha1.IPAllocation) poolRef {
	ref := poolRef{Group: v1alpha1.GroupVersion.Group, Kind: string(record.Spec.PoolRef.Kind), Name: record.Spec.PoolRef.Name}
	if record.Spec.PoolRef.Kind == v1alpha1.PoolKindLocalIPPool { // the pool is in its holder's namespace
		ref.Namespace = cmp.Or(record.Spec.ClaimRef.Namespace, record.Namespace)
	}
	return ref
}

// cleanings bounds the searches for finalizers of the other provider.
const cleanings = 3

// clean removes, from the claims and IPAddresses of pools, finalizers that their owner does not
// remove again. The in-cluster provider, while it runs, puts its own on a claim of the name of
// one that it knew; and as it writes all finalizers that it has seen, it may bring back ours
// after a rollback.
func (r *run) clean(ctx context.Context, pools map[poolRef]bool, finalizers []string) error {
	isMarked := func(obj client.Object) bool {
		return slices.ContainsFunc(obj.GetFinalizers(), func(f string) bool { return slices.Contains(finalizers, f) })
	}
	for range cleanings {
		st, err := r.readAddresses(ctx)
		if err != nil {
			return err
		}
		var marked []*unstructured.Unstructured
		for _, obj := range slices.Concat(st.claims, st.addresses) {
			if pools[r.provider.refOf(obj)] && isMarked(obj) {
				marked = append(marked, obj)
			}
		}
		if len(marked) == 0 {
			return nil
		}
		if err := r.all(ctx, len(marked), func(ctx context.Context, i int) error { return r.unmark(ctx, marked[i], finalizers) }); err != nil {
			return err
		}
		r.say("Took finalizers that are not theirs off %s.", ipam.FormatCount(len(marked), "object"))
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
	r.say("The %s provider runs, and continues to write finalizers to claims: stop it if nothing else uses it, and run this command again.", r.provider.name)
	return nil
}

// unmark removes finalizers from an object.
func (r *run) unmark(ctx context.Context, obj *unstructured.Unstructured, finalizers []string) error {
	return onConflict(func() error {
		now, err := r.findUnmoved(ctx, obj)
		if err != nil || now == nil {
			return err
		}
		before := now.DeepCopy()
		now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return slices.Contains(finalizers, f) }))
		if len(now.GetFinalizers()) == len(before.GetFinalizers()) {
			return nil
		}
		return client.IgnoreNotFound(r.patch(ctx, now, before))
	})
}
