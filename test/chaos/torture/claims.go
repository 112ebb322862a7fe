package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// slots is how many claims one client has at a time.
const slots = 10

// claimActor makes IPClaims by all paths, and deletes them. It has a few names,
// which it uses again and again.
type claimActor struct {
	*party
	number int
	random *rand.Rand
	slots  [slots]*v1alpha1.IPClaim // nil if there is none, as far as it knows
	serial int
}

func newClaimActor(p *party, n int, random *rand.Rand) actor {
	return &claimActor{party: p, number: n, random: random}
}

// act implements actor.
func (a *claimActor) act(ctx context.Context) error {
	slot := a.random.IntN(slots)
	claim := a.slots[slot]
	if claim == nil {
		made, err := a.make(ctx, slot)
		if err == nil || !isRefusal(err) {
			a.slots[slot] = made // it may exist
		}
		return err
	}
	switch dice := a.random.IntN(100); {
	case dice < 60:
		return a.drop(ctx, slot)
	case dice < 75:
		return a.replace(ctx, slot, func(claim *v1alpha1.IPClaim) {
			claim.Spec.CIDR, claim.Spec.AllocationName = "", ""
		})
	case dice < 88: // as from a file that was saved
		return a.replace(ctx, slot, func(*v1alpha1.IPClaim) {})
	case dice < 92: // again, though it exists
		_ = a.create(ctx, asAsked(claim), "create again")
		return nil
	case dice < 95:
		return a.applyAgain(ctx, slot)
	default:
		return a.rehearse(ctx)
	}
}

// make makes a new claim in a slot.
func (a *claimActor) make(ctx context.Context, slot int) (*v1alpha1.IPClaim, error) {
	b := build.Claim(namespaceName(a.random.IntN(namespaces)), a.name(slot))
	if a.random.IntN(25) == 0 {
		b.Finalizer(holdFinalizer)
	}
	how := a.demand(b)
	claim := b.Obj()
	switch dice := a.random.IntN(100); {
	case dice < 15:
		claim.Name, claim.GenerateName = "", fmt.Sprintf("g%d-", a.number)
		return claim, a.create(ctx, claim, "generateName "+how)
	case dice < 30:
		a.serial++
		claim.Name = fmt.Sprintf("s%d-%d", a.number, a.serial)
		return claim, a.apply(ctx, claim, "apply "+how)
	}
	return claim, a.create(ctx, claim, "create "+how)
}

// name returns one of the client's own names, or now and then one over which clients compete.
func (a *claimActor) name(slot int) string {
	if a.random.IntN(20) == 0 {
		return fmt.Sprintf("shared-%d", a.random.IntN(4))
	}
	return fmt.Sprintf("c%d-%d", a.number, slot)
}

// demand sets the request of a claim, and returns "exact" if it names the block.
func (a *claimActor) demand(b *build.ClaimBuilder) string {
	length := func(from, to int) int32 { return int32(from + a.random.IntN(to-from+1)) }
	dice := a.random.IntN(100)
	switch {
	case dice < 6:
		b.Pool(sharedName(a.random.IntN)).Length(length(29, 32))
	case dice < 30:
		b.Pool(poolBig).Length(length(24, 32))
	case dice < 45:
		b.Class("shared").Length(length(24, 32))
	case dice < 57:
		b.Pool(poolTight).Length(length(28, 30))
	case dice < 63:
		b.Pool(poolReject).Length(length(27, 30))
	case dice < 69:
		b.Pool(poolHosts)
	case dice < 75:
		b.Class("keeping")
	case dice < 79:
		b.Pool(poolCool).Length(length(28, 32))
	case dice < 83:
		b.Pool(poolRandom).Length(length(26, 32))
	case dice < 89:
		b.Pool(childName(a.random)).Length(length(28, 32))
	case dice < 93:
		b.Pool(anySite(a.random.IntN)).Length(length(28, 32))
	default:
		b.Pool(poolBig).CIDR(a.exact().String())
		return "exact"
	}
	return ""
}

// exact returns a block of the big pool: one that was released lately, or one of those that are
// handed out first.
func (a *claimActor) exact() netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.freed) > 0 && a.random.IntN(3) > 0 {
		return a.freed[a.random.IntN(len(a.freed))]
	}
	n := a.random.Uint32N(1 << 14)
	addr := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
	return netip.PrefixFrom(addr, 24+a.random.IntN(9)).Masked()
}

func (a *claimActor) create(ctx context.Context, claim *v1alpha1.IPClaim, what string) error {
	return a.party.create(ctx, said(what, claim), claim)
}

func (a *claimActor) apply(ctx context.Context, claim *v1alpha1.IPClaim, what string) error {
	claim.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IPClaim"))
	return a.try(ctx, attempt{what: said(what, claim), obj: claim, do: func(ctx context.Context) error {
		body, err := json.Marshal(claim)
		if err != nil {
			return err
		}
		return a.Patch(ctx, claim, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("torture"), client.ForceOwnership)
	}})
}

// applyAgain applies an existing claim, as GitOps does every few minutes. It is no attempt: if the
// claim has gone in between, it makes one that no client was promised.
func (a *claimActor) applyAgain(ctx context.Context, slot int) error {
	claim := asAsked(a.slots[slot])
	if claim.Name == "" {
		return nil
	}
	claim.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IPClaim"))
	body, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	err = a.call(ctx, said("apply again", claim), func(ctx context.Context) error {
		return a.Patch(ctx, claim, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("torture"), client.ForceOwnership)
	}, func() string { return blockOf(claim).String() })
	if err == nil {
		a.slots[slot] = claim
	}
	return err
}

// rehearse sends a dry run of a claim.
func (a *claimActor) rehearse(ctx context.Context) error {
	a.serial++
	b := build.Claim(namespaceName(a.random.IntN(namespaces)), fmt.Sprintf("d%d-%d", a.number, a.serial))
	how := a.demand(b)
	claim := b.Obj()
	return a.try(ctx, attempt{what: said("dry run "+how, claim), obj: claim, rehearsed: true, do: func(ctx context.Context) error {
		return a.Create(ctx, claim, client.DryRunAll)
	}})
}

// drop deletes the claim of a slot; a finalizer is removed in a later step.
func (a *claimActor) drop(ctx context.Context, slot int) error {
	claim := a.slots[slot]
	if claim.Name == "" { // a name was never answered
		a.slots[slot] = nil
		return nil
	}
	if len(claim.Finalizers) > 0 && !claim.DeletionTimestamp.IsZero() {
		return a.letGo(ctx, slot)
	}
	err := a.remove(ctx, claim)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case len(claim.Finalizers) > 0 && err == nil:
		claim.DeletionTimestamp = &claim.CreationTimestamp // it has one now
		return nil
	}
	a.freeSlot(slot)
	return nil
}

func (a *claimActor) letGo(ctx context.Context, slot int) error {
	claim := a.slots[slot]
	err := a.call(ctx, "take the finalizer off "+claim.Namespace+"/"+claim.Name, func(ctx context.Context) error {
		return a.Patch(ctx, bare(claim), build.Merge(`{"metadata":{"finalizers":null}}`))
	}, nil)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	a.freeSlot(slot)
	return nil
}

// freeSlot forgets a claim and remembers its block.
func (a *claimActor) freeSlot(slot int) {
	block := blockOf(a.slots[slot])
	a.slots[slot] = nil
	if !block.IsValid() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.freed = append(a.freed, block); len(a.freed) > 32 {
		a.freed = a.freed[1:]
	}
}

// replace deletes a claim and at once makes one of the same name.
func (a *claimActor) replace(ctx context.Context, slot int, edit func(*v1alpha1.IPClaim)) error {
	claim := a.slots[slot]
	if claim.Name == "" || len(claim.Finalizers) > 0 {
		return a.drop(ctx, slot)
	}
	if err := a.remove(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	next := bare(claim)
	edit(next)
	a.slots[slot] = nil
	err := a.create(ctx, next, "create again")
	if err == nil || !isRefusal(err) {
		a.slots[slot] = next
	}
	return err
}

// bare returns a claim without the fields that the API server sets.
func bare(claim *v1alpha1.IPClaim) *v1alpha1.IPClaim {
	b := build.Claim(claim.Namespace, claim.Name).Obj()
	b.Spec = *claim.Spec.DeepCopy()
	return b
}

// asAsked returns a claim as a client requests it that leaves the choice of block to the operator.
func asAsked(claim *v1alpha1.IPClaim) *v1alpha1.IPClaim {
	b := bare(claim)
	b.Spec.CIDR, b.Spec.AllocationName = "", ""
	return b
}

func said(what string, claim *v1alpha1.IPClaim) string {
	spec := claim.Spec
	where := "class " + spec.ClassName
	if spec.PoolRef != nil {
		where = "pool " + spec.PoolRef.Name
	}
	size := "default size"
	if spec.PrefixLength != nil {
		size = fmt.Sprintf("/%d", *spec.PrefixLength)
	}
	return fmt.Sprintf("%s IPClaim %s/%s of %s, %s %s", what, claim.Namespace, claim.Name+claim.GenerateName, where, size, spec.CIDR)
}
