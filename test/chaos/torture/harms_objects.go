package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

const noFinalizers = `{"metadata":{"finalizers":null}}`

func keyOf(name string) client.ObjectKey {
	return client.ObjectKey{Name: name}
}

// fillSeats lists everything, again and again, with more requests at a time than the API server has
// seats.
func (n *nemesis) fillSeats(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, between(n.random, 2*time.Second, 4*time.Second))
	defer cancel()
	flood, err := cluster.NewClient(n.tenant)
	if err != nil {
		return err
	}
	var listing sync.WaitGroup
	for range seats {
		listing.Go(func() {
			for ctx.Err() == nil {
				_ = flood.List(ctx, &v1alpha1.IPAllocationList{})
				_ = flood.List(ctx, &v1alpha1.IPClaimList{})
			}
		})
	}
	listing.Wait()
	return nil
}

// revokeCertificate removes the certificate of the webhooks, or the CA that the API server trusts.
func (n *nemesis) revokeCertificate(ctx context.Context) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "cadastre-webhook-server-cert"}}
	var err error
	switch n.random.IntN(3) {
	case 0:
		err = n.admin.Delete(ctx, secret)
	case 1:
		err = n.admin.Patch(ctx, secret, build.Merge(`{"data":null}`))
	default:
		err = n.distrust(ctx)
	}
	if err != nil { // a missing object cannot be removed
		return fmt.Errorf("%w: %w", errNothing, err)
	}
	n.last(ctx, 500*time.Millisecond, 2*time.Second)
	return nil
}

// distrust makes the API server trust no certificate of any webhook.
func (n *nemesis) distrust(ctx context.Context) error {
	hooks := &admissionv1.MutatingWebhookConfiguration{}
	if err := n.admin.Get(ctx, keyOf("zz-cadastre-mutating-webhook-configuration"), hooks); err != nil {
		return err
	}
	for i := range hooks.Webhooks {
		hooks.Webhooks[i].ClientConfig.CABundle = nil
	}
	return n.admin.Update(ctx, hooks)
}

// deleteSomeClaims deletes so many IPClaims, and half as many IPAddressClaims, and returns how many
// went.
func (n *nemesis) deleteSomeClaims(ctx context.Context, most int) (deleted int) {
	claims := &v1alpha1.IPClaimList{}
	_ = n.admin.List(ctx, claims)
	claims.Items = slices.DeleteFunc(claims.Items, func(claim v1alpha1.IPClaim) bool { // of a Cluster that is being created
		return claim.Annotations[v1alpha1.AnnotationAttempt] != ""
	})
	n.random.Shuffle(len(claims.Items), func(i, j int) { claims.Items[i], claims.Items[j] = claims.Items[j], claims.Items[i] })
	for i := range claims.Items[:min(most, len(claims.Items))] {
		if n.remove(ctx, &claims.Items[i]) == nil {
			deleted++
		}
	}
	addresses := &ipamv1.IPAddressClaimList{}
	_ = n.admin.List(ctx, addresses)
	n.random.Shuffle(len(addresses.Items), func(i, j int) {
		addresses.Items[i], addresses.Items[j] = addresses.Items[j], addresses.Items[i]
	})
	for i := range addresses.Items[:min(most/2, len(addresses.Items))] {
		if n.remove(ctx, &addresses.Items[i]) == nil {
			deleted++
		}
	}
	return deleted
}

// forceClaims removes other people's finalizers from claims that are being deleted; from an
// IPAddressClaim now and then also the operator's, as an impatient person does: the address is in
// use then until its IPAddress is gone.
func (n *nemesis) forceClaims(ctx context.Context) error {
	forced := n.letGoOfAddresses(ctx, "", func() bool { return n.random.IntN(3) == 0 })
	for ns := range namespaces {
		forced += n.letGoOfClaims(ctx, namespaceName(ns))
	}
	if forced == 0 {
		return errNothing
	}
	return nil
}

// letGoOfClaims removes the finalizers from the claims of a namespace that are being deleted, as
// far as it can, and returns their number.
func (n *nemesis) letGoOfClaims(ctx context.Context, namespace string) (forced int) {
	claims := &v1alpha1.IPClaimList{}
	_ = n.admin.List(ctx, claims, client.InNamespace(namespace))
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.DeletionTimestamp.IsZero() || len(claim.Finalizers) == 0 {
			continue
		}
		if n.admin.Patch(ctx, claim, build.Merge(noFinalizers)) == nil {
			forced++
		}
	}
	return forced
}

// deleteNamespace deletes a namespace, with its contents, and makes it again when it is gone. That
// takes a while, in which other faults are injected.
func (n *nemesis) deleteNamespace(ctx context.Context) error {
	name := namespaceName(n.random.IntN(namespaces))
	n.endNamespace(ctx, name, func(ctx context.Context) error { return n.admin.Create(ctx, build.Namespace(name)) })
	n.last(ctx, time.Second, 3*time.Second)
	return nil
}

// In a namespace that is deleted, each object must go within releasedWithin of its deletion:
// that is up to the operator. The time at which kube-controller-manager deletes it, and then the
// namespace, is not: that one looks again later and later, and waits half a minute for any object
// that it cannot delete on an API server that is as busy as here.
const (
	releasedWithin = 100 * time.Second
	goneWithin     = 10 * time.Minute
)

// endNamespace deletes a namespace in the background. If that fails, it ends the run at once, and
// not when the storm is over.
func (n *nemesis) endNamespace(ctx context.Context, name string, then func(context.Context) error) {
	n.ending.Go(func() error {
		ctx := context.WithoutCancel(ctx) // also when the storm is over
		done := func(within time.Duration, step func() bool) bool {
			return untilEvery(ctx, within, 500*time.Millisecond, step)
		}
		isGone := func() bool {
			n.letGoOfClaims(ctx, name)
			n.letGoOfAddresses(ctx, name, never)
			namespace := build.Namespace("")
			err := n.admin.Get(ctx, keyOf(name), namespace)
			return apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp == nil // made again by another
		}
		lingers := func() bool { return len(n.witness.LingerIn(name, releasedWithin)) > 0 }
		switch {
		case !done(time.Minute, func() bool { return client.IgnoreNotFound(n.admin.Delete(ctx, build.Namespace(name))) == nil }):
			n.witness.Violate(fmt.Sprintf("the namespace %s cannot be deleted", name))
		case !done(goneWithin, func() bool { return isGone() || lingers() }):
			n.witness.Violate(fmt.Sprintf("the namespace %s does not go away", name), n.witness.LeftIn(name)...)
		case lingers():
			n.witness.Violate(fmt.Sprintf("the operator does not release all that was deleted with the namespace %s", name), n.witness.LingerIn(name, releasedWithin)...)
		case !done(time.Minute, func() bool { return client.IgnoreAlreadyExists(then(ctx)) == nil }):
			n.witness.Violate(fmt.Sprintf("nothing comes after the namespace %s", name))
		}
		return nil
	})
}

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
		_ = n.create(ctx, said("create", claim), claim)
		address := build.AddressClaim(name, fmt.Sprintf("a-%d", i)).Pool(poolBig).Finalizer(holdFinalizer).Obj()
		_ = n.create(ctx, saidOfAddress("create", address), address)
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
			return n.operator.Patch(ctx, record.DeepCopy(), build.Merge(patch))
		}, nil)
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
	})
}
