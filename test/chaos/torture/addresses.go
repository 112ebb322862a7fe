package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// metal3Finalizer is on claims of Cluster API's provider for Metal3, which takes it off after the
// deletion, when the address is not in use any more.
const metal3Finalizer = "metal3data.infrastructure.cluster.x-k8s.io"

// addressActor makes Cluster API's IPAddressClaims as infrastructure providers do, now and then an
// IPAddress before its claim, as a person or a move does, and deletes them. The answer to a call
// allocates nothing to it: the witness has its addresses.
type addressActor struct {
	*party
	number int
	random *rand.Rand
	slots  [slots]*ipamv1.IPAddressClaim // nil if there is none, as far as it knows
}

func newAddressActor(p *party, n int, random *rand.Rand) actor {
	return &addressActor{party: p, number: n, random: random}
}

// act implements actor.
func (a *addressActor) act(ctx context.Context) error {
	slot := a.random.IntN(slots)
	if a.slots[slot] == nil {
		return a.make(ctx, slot)
	}
	return a.drop(ctx, slot)
}

// make makes a claim in a slot. Its name may be that of one that still exists.
func (a *addressActor) make(ctx context.Context, slot int) error {
	claim := a.demand(build.AddressClaim(namespaceName(a.random.IntN(namespaces)), fmt.Sprintf("a%d-%d", a.number, slot)))
	switch a.random.IntN(12) {
	case 0, 1:
		claim.Finalizers = append(claim.Finalizers, metal3Finalizer)
	case 2:
		claim.Finalizers = append(claim.Finalizers, holdFinalizer)
	case 3:
		if a.makeAddress(ctx, claim) == nil && a.random.IntN(4) == 0 {
			a.slots[slot] = claim // the address alone
			return nil
		}
	}
	err := a.create(ctx, saidOfAddress("create", claim), claim)
	if err == nil || !isRefusal(err) {
		a.slots[slot] = claim // it may exist
	}
	return err
}

// demand sets the pool of the address, and the requested address if there is one.
func (a *addressActor) demand(b *build.AddressClaimBuilder) *ipamv1.IPAddressClaim {
	switch dice := a.random.IntN(100); {
	case dice < 8:
		b.Pool(sharedName(a.random.IntN))
	case dice < 35:
		b.Pool(poolBig)
	case dice < 50:
		b.Pool(poolHosts)
	case dice < 60:
		b.Pool(poolTight)
	case dice < 65:
		b.Pool(poolRandom)
	case dice < 68:
		b.Pool(childName(a.random))
	case dice < 72:
		b.Pool(anySite(a.random.IntN))
	case dice < 78:
		b.Class("shared")
	case dice < 90: // sticky if blocks are kept, with few keys
		b.Class("keeping").Annotation(v1alpha1.AnnotationSticky, fmt.Sprintf("key-%d", a.random.IntN(4)))
	default:
		b.Pool(poolBig).Annotation(v1alpha1.AnnotationAddress, a.wish().String())
	}
	return b.Obj()
}

// wish returns an address of the big pool: one that was released lately, or one of those that are
// handed out first.
func (a *addressActor) wish() netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.freed) > 0 && a.random.IntN(2) == 0 {
		if addr := a.freed[a.random.IntN(len(a.freed))].Addr(); addr.As4()[1] == 0 {
			return addr
		}
	}
	n := a.random.Uint32N(1 << 13)
	return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
}

// makeAddress makes the IPAddress of a claim before the claim.
func (a *addressActor) makeAddress(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	for _, ofAnother := range []string{v1alpha1.AnnotationAddress, v1alpha1.AnnotationSticky} {
		delete(claim.Annotations, ofAnother) // the IPAddress decides, and is of a pool that keeps nothing
	}
	claim.Spec.PoolRef = build.AddressClaim("", "").Pool(poolBig).Obj().Spec.PoolRef
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef,
			Address: a.wish().String(), Prefix: new(int32(12)),
		},
	}
	what := fmt.Sprintf("create IPAddress %s/%s %s", address.Namespace, address.Name, address.Spec.Address)
	return a.create(ctx, what, address)
}

// drop deletes the claim of a slot, or the address alone if there is nothing else; finalizers are
// removed in a later step.
func (a *addressActor) drop(ctx context.Context, slot int) error {
	claim := a.slots[slot]
	if claim.UID == "" { // the address alone, or a claim whose create call was not answered
		address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
		if err := a.remove(ctx, address); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if !claim.DeletionTimestamp.IsZero() {
		err := a.letGoOfAddress(ctx, claim, false)
		if err == nil {
			a.slots[slot] = nil
		}
		return err
	}
	err := a.remove(ctx, claim)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err == nil && slices.ContainsFunc(claim.Finalizers, isForeign):
		claim.DeletionTimestamp = &claim.CreationTimestamp // it has one now
	default:
		a.slots[slot] = nil
	}
	return nil
}

// isForeign reports whether a finalizer is none of the operator's.
func isForeign(finalizer string) bool {
	return finalizer == metal3Finalizer || finalizer == holdFinalizer
}

// letGoOfAddress removes the finalizers of others from a claim, or all of them.
func (p *party) letGoOfAddress(ctx context.Context, claim *ipamv1.IPAddressClaim, all bool) error {
	return p.call(ctx, fmt.Sprintf("take finalizers (all: %v) off IPAddressClaim %s/%s", all, claim.Namespace, claim.Name), func(ctx context.Context) error {
		now := &ipamv1.IPAddressClaim{}
		if err := p.Get(ctx, client.ObjectKeyFromObject(claim), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := now.DeepCopy()
		now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool { return all || isForeign(f) })
		if now.UID != claim.UID || len(now.Finalizers) == len(before.Finalizers) {
			return nil
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return client.IgnoreNotFound(p.Patch(ctx, now, patch))
	}, nil)
}

// letGoOfAddresses does so for the claims that are being deleted, of a namespace or, if that is
// empty, of all, and returns their number.
func (p *party) letGoOfAddresses(ctx context.Context, namespace string, all func() bool) (forced int) {
	claims := &ipamv1.IPAddressClaimList{}
	_ = p.List(ctx, claims, client.InNamespace(namespace))
	for i := range claims.Items {
		claim := &claims.Items[i]
		if !claim.DeletionTimestamp.IsZero() && p.letGoOfAddress(ctx, claim, all()) == nil {
			forced++
		}
	}
	return forced
}

func never() bool { return false }

// endAddresses deletes every IPAddressClaim and IPAddress, and reports whether there was none any
// more.
func (p *party) endAddresses(ctx context.Context) bool {
	claims, addresses := &ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}
	if p.List(ctx, claims) != nil || p.List(ctx, addresses) != nil {
		return false
	}
	for i := range claims.Items {
		_ = p.remove(ctx, &claims.Items[i])
	}
	for i := range addresses.Items {
		_ = p.remove(ctx, &addresses.Items[i])
	}
	p.letGoOfAddresses(ctx, "", never)
	return len(claims.Items) == 0 && len(addresses.Items) == 0
}

func saidOfAddress(what string, claim *ipamv1.IPAddressClaim) string {
	return fmt.Sprintf("%s IPAddressClaim %s/%s of %s %s, finalizers %v, annotations %v", what, claim.Namespace, claim.Name,
		claim.Spec.PoolRef.Kind, claim.Spec.PoolRef.Name, claim.Finalizers, claim.Annotations)
}

// children is the number of names of child pools. All pool actors compete for them, and claims name
// them.
const children = 8

func childName(random *rand.Rand) string { return fmt.Sprintf("child-%d", random.IntN(children)) }

// poolActor makes child pools, by length or by CIDR, and deletes them with their claims. There are
// few pools, and to list the claims of one costs the API server more than a claim does: it takes
// its time.
type poolActor struct {
	*party
	random   *rand.Rand
	existing map[string]bool // as far as it knows: others make and delete them too
}

func newPoolActor(p *party, _ int, random *rand.Rand) actor {
	return &poolActor{p, random, map[string]bool{}}
}

// act implements actor.
func (a *poolActor) act(ctx context.Context) error {
	defer wait(ctx, between(a.random, 100*time.Millisecond, 300*time.Millisecond))
	name := childName(a.random)
	if !a.existing[name] {
		err := a.make(ctx, name)
		a.existing[name] = !isRefusal(err) || apierrors.IsAlreadyExists(err)
		return err
	}
	err := a.end(ctx, build.Pool(name).Obj())
	a.existing[name] = !apierrors.IsNotFound(err)
	return err
}

func (a *poolActor) make(ctx context.Context, name string) error {
	length := 22 + a.random.IntN(6)
	b := build.Pool(name).Child(poolParent, int32(length))
	how := fmt.Sprintf("/%d", length)
	asked := a.random.IntN(4) == 0
	if asked {
		addr := netip.AddrFrom4([4]byte{10, 80, byte(a.random.IntN(4)), byte(a.random.IntN(256))})
		how = netip.PrefixFrom(addr, length).Masked().String()
		b.CIDR(how)
	}
	pool := b.Obj()
	if asked {
		pool.Annotations = map[string]string{witness.AskedAnnotation: "yes"}
	}
	return a.create(ctx, "create IPPool "+name+" "+how, pool)
}

// end deletes a pool. While it has claims, that is refused; then it deletes some
// of those first.
func (a *poolActor) end(ctx context.Context, pool *v1alpha1.IPPool) error {
	err := a.remove(ctx, pool)
	if !apierrors.IsConflict(err) {
		return err
	}
	claims := &v1alpha1.IPClaimList{}
	if err := a.List(ctx, claims, client.MatchingFields{"spec.poolRef.name": pool.Name}); err != nil {
		return err
	}
	for i := range claims.Items {
		if err := a.remove(ctx, &claims.Items[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
