package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// forceRecords releases blocks by hand, under the operator's account, as a policy refuses it to all
// others: some of claims that live, and go on living; and, in the background, some in a namespace
// that goes away while claims there are still in use.
func (n *nemesis) forceRecords(ctx context.Context) error {
	n.serial++
	name := fmt.Sprintf("doomed-%d", n.serial)
	n.doom(ctx, name)
	seed := n.random.Uint64()
	n.ending.Go(func() error { return n.forceDoomed(ctx, name, rand.New(rand.NewPCG(seed, 0))) })
	if err := n.forceLiving(ctx, namespaceName(n.random.IntN(namespaces))); err != nil {
		return err
	}
	n.last(ctx, 500*time.Millisecond, 2*time.Second)
	return nil
}

// doom makes a namespace with claims in use, and deletes it.
func (n *nemesis) doom(ctx context.Context, name string) {
	_ = n.admin.Create(ctx, build.Namespace(name))
	for i := range 6 {
		claim := build.Claim(name, fmt.Sprintf("c-%d", i)).Pool(poolBig).Length(int32(26 + i)).Finalizer(holdFinalizer).Obj()
		_ = n.try(ctx, attempt{what: said("create", claim), obj: claim, do: func(ctx context.Context) error {
			return n.Create(ctx, claim)
		}})
		address := build.AddressClaim(name, fmt.Sprintf("a-%d", i)).Pool(poolBig).Finalizer(holdFinalizer).Obj()
		_ = n.try(ctx, attempt{what: saidOfAddress("create", address), obj: address, do: func(ctx context.Context) error {
			return n.Create(ctx, address)
		}})
	}
	_ = n.admin.Delete(ctx, build.Namespace(name))
}

// untilEmptied bounds the time that kube-controller-manager takes to delete the contents of a
// namespace. It lets 5 s pass before it begins.
const untilEmptied = 20 * time.Second

// forceDoomed forces half of the records of a namespace that goes away, if they are kept because
// the claims are in use, lets others take the blocks, and then lets the namespace go.
func (n *nemesis) forceDoomed(ctx context.Context, name string, random *rand.Rand) error {
	healing, cancel := n.healing(ctx)
	defer cancel()
	records := &v1alpha1.IPAllocationList{}
	until(healing, untilEmptied, func() bool {
		return n.admin.List(healing, records, client.InNamespace(name)) == nil && allTerminating(records)
	})
	for i := range records.Items {
		if record := &records.Items[i]; !record.DeletionTimestamp.IsZero() && random.IntN(2) == 0 {
			n.force(healing, record)
		}
	}
	wait(healing, between(random, time.Second, 3*time.Second))
	n.endNamespace(ctx, name, func(context.Context) error { return nil })
	return nil
}

func allTerminating(records *v1alpha1.IPAllocationList) bool {
	for _, r := range records.Items {
		if r.DeletionTimestamp.IsZero() {
			return false
		}
	}
	return len(records.Items) > 0
}

// mostForced is the number of live claims that lose their blocks at a time, at most.
const mostForced = 4

// forceLiving releases the blocks of some claims that live.
func (n *nemesis) forceLiving(ctx context.Context, namespace string) error {
	records := &v1alpha1.IPAllocationList{}
	ctx, cancel := n.healing(ctx) // every begun step must be ended
	defer cancel()
	if n.admin.List(ctx, records, client.InNamespace(namespace)) != nil {
		return nil // the next time, then
	}
	n.random.Shuffle(len(records.Items), func(i, j int) { records.Items[i], records.Items[j] = records.Items[j], records.Items[i] })
	forced := 0
	for i := range records.Items {
		record := &records.Items[i]
		if forced == mostForced || !n.witness.IsHeld(string(record.UID)) {
			continue
		}
		forced++
		_ = n.call(ctx, fmt.Sprintf("delete record %s/%s", record.Namespace, record.Name), func(ctx context.Context) error {
			return n.operator.Delete(ctx, record, client.Preconditions{UID: &record.UID})
		}, nil)
		if !n.force(ctx, record) {
			return errors.New("a record stays as it is")
		}
	}
	return nil
}

// force removes the operator's finalizer from a record, and reports whether it completed.
func (n *nemesis) force(ctx context.Context, record *v1alpha1.IPAllocation) bool {
	n.witness.Force(string(record.UID))
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, record.UID)
	return until(ctx, untilEmptied, func() bool {
		err := n.call(ctx, fmt.Sprintf("FORCE record %s/%s %s", record.Namespace, record.Name, record.Spec.CIDR), func(ctx context.Context) error {
			return n.operator.Patch(ctx, record.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		}, nil)
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
	})
}
