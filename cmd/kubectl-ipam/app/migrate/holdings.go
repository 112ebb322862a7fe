package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"go4.org/netipx"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// holder carries out a register.
type holder struct {
	run
	register *register
}

// apply makes the pools, parents first, and the claims. It does not touch an object that exists
// as planned, so that it goes on from the point of an interruption.
func (h *holder) apply(ctx context.Context) error {
	for _, pool := range h.register.pools {
		if h.register.exists[pool] {
			continue
		}
		if err := h.client.Create(ctx, pool.DeepCopy()); err != nil {
			return fmt.Errorf("creating IPPool %s: %w", pool.Name, err)
		}
	}
	if err := inOrder(ctx, h.awaitReady, h.makeClaims, h.awaitBound); err != nil {
		return err
	}
	h.say("Imported %s and %s.", ipam.FormatCount(len(h.register.pools), "pool"), ipam.FormatCount(len(h.register.claims), "held block"))
	return nil
}

// makeClaims creates the claims. A block may still be recorded although its holder is gone:
// that holder was just deleted, or an earlier run was killed while it created the claim. The
// operator releases such a block, in the second case after its --orphan-grace, and makeClaims
// waits for that.
func (h *holder) makeClaims(ctx context.Context) error {
	var mu sync.Mutex
	var refused []*v1alpha1.IPClaim
	var why error
	err := inParallel(ctx, h.register.claims, func(ctx context.Context, claim *v1alpha1.IPClaim) error {
		err := h.makeClaim(ctx, claim)
		if !isTaken(err) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		refused, why = append(refused, claim), err
		return nil
	})
	if err != nil || len(refused) == 0 {
		return err
	}
	if leaving, err := h.areLeaving(ctx, refused); !leaving || err != nil {
		return cmp.Or(err, why)
	}
	h.say("Waiting for the operator to release %s, the former holders of which are gone.", ipam.FormatCount(len(refused), "block"))
	return h.await(ctx, "given back by the operator: see that it is running", func() ([]string, error) {
		var names []string
		for _, claim := range refused {
			switch err := h.makeClaim(ctx, claim); {
			case isTaken(err):
				names = append(names, nameOfHolder("IPClaim", claim))
			case err != nil:
				return nil, err
			}
		}
		return names, nil
	})
}

// isTaken reports whether a block is recorded already, possibly for an earlier try.
func isTaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) }

// areLeaving reports whether all records of the claims' blocks are about to be released.
func (h *holder) areLeaving(ctx context.Context, claims []*v1alpha1.IPClaim) (bool, error) {
	records, holders, err := h.held(ctx, h.pools())
	if err != nil {
		return false, err
	}
	records = slices.DeleteFunc(records, func(record v1alpha1.IPAllocation) bool {
		return !slices.ContainsFunc(claims, func(claim *v1alpha1.IPClaim) bool { return isInTheWay(&record, claim) })
	})
	var found remaining
	found.add(records, holders, func(string) bool { return false })
	return len(found.news) == 0, nil
}

// isInTheWay reports whether a record has addresses of the block that a claim asks for.
func isInTheWay(record *v1alpha1.IPAllocation, claim *v1alpha1.IPClaim) bool {
	overlaps := func(cidr string) bool { return prefixAt(cidr).Overlaps(prefixAt(claim.Spec.CIDR)) }
	return record.Spec.PoolRef.Name == claim.Spec.PoolRef.Name && slices.ContainsFunc(append([]string{record.Spec.CIDR}, record.Spec.AdditionalCIDRs...), overlaps)
}

// pools returns references to the pools of the register.
func (h *holder) pools() map[ipam.Holder]bool {
	pools := map[ipam.Holder]bool{}
	for _, pool := range h.register.pools {
		pools[refOfPool(pool)] = true
	}
	return pools
}

// makeClaim creates a claim that does not exist yet. The answer to an earlier try may have
// been lost.
func (h *holder) makeClaim(ctx context.Context, claim *v1alpha1.IPClaim) error {
	if h.register.exists[claim] {
		return nil
	}
	err := h.client.Create(ctx, claim.DeepCopy())
	if err == nil {
		return nil
	}
	now := &v1alpha1.IPClaim{}
	if h.client.Get(ctx, keyOf(claim), now) != nil || !holds(now, claim) {
		return fmt.Errorf("creating IPClaim %s: %w", keyOf(claim), err)
	}
	return nil
}

// awaitReady waits until all pools hand out blocks.
func (h *holder) awaitReady(ctx context.Context) error {
	return h.await(ctx, "ready: see its condition Ready", func() (names []string, err error) {
		all := &v1alpha1.IPPoolList{}
		if err := h.client.List(ctx, all); err != nil {
			return nil, fmt.Errorf("listing all IPPools: %w", err)
		}
		phases := map[string]v1alpha1.PoolPhase{}
		for i := range all.Items {
			phases[all.Items[i].Name] = all.Items[i].Status.Phase
		}
		for _, pool := range h.register.pools {
			if phase := phases[pool.Name]; phase != v1alpha1.PoolReady && phase != v1alpha1.PoolExhausted {
				names = append(names, nameOfHolder("IPPool", pool))
			}
		}
		return names, nil
	})
}

// awaitBound waits until all claims hold their blocks.
func (h *holder) awaitBound(ctx context.Context) error {
	return h.await(ctx, "bound: see its condition Ready", func() (names []string, err error) {
		all := &v1alpha1.IPClaimList{}
		if err := h.client.List(ctx, all, client.MatchingLabels{labelImport: h.register.name}); err != nil {
			return nil, fmt.Errorf("listing IPClaims: %w", err)
		}
		held := map[client.ObjectKey]string{}
		for i := range all.Items {
			held[keyOf(&all.Items[i])] = all.Items[i].Status.AllocatedCIDR
		}
		for _, claim := range h.register.claims {
			if held[keyOf(claim)] != claim.Spec.CIDR {
				names = append(names, nameOfHolder("IPClaim", claim))
			}
		}
		return names, nil
	})
}

// rollback deletes the claims and pools of the register, unless the pools have other claims.
func (h *holder) rollback(ctx context.Context) error {
	if err := h.refuseNews(ctx); err != nil {
		return err
	}
	err := inParallel(ctx, h.register.claims, func(ctx context.Context, claim *v1alpha1.IPClaim) error {
		return h.deleteImported(ctx, claim.DeepCopy())
	})
	if err != nil {
		return err
	}
	for _, pool := range slices.Backward(h.register.pools) {
		if err := h.awaitRelease(ctx, refOfPool(pool)); err != nil {
			return err
		}
		if err := h.deleteImported(ctx, pool.DeepCopy()); err != nil {
			return err
		}
		if err := h.awaitDeletion(ctx, pool); err != nil {
			return err
		}
	}
	h.say("Deleted %s and %s.", ipam.FormatCount(len(h.register.pools), "pool"), ipam.FormatCount(len(h.register.claims), "held block"))
	return nil
}

// deleteImported deletes an object that an import has made.
func (h *holder) deleteImported(ctx context.Context, obj client.Object) error {
	key := keyOf(obj)
	err := h.client.Get(ctx, key, obj)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if obj.GetLabels()[labelImport] != h.register.name {
		return nil // it was there before
	}
	uid := obj.GetUID()
	if err := client.IgnoreNotFound(h.client.Delete(ctx, obj, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("deleting %s: %w", key, err)
	}
	return nil
}

// refuseNews refuses a rollback if the pools have holders that were not imported. It first
// waits until no release is under way in the pools.
func (h *holder) refuseNews(ctx context.Context) error {
	own := map[string]bool{}
	for _, pool := range h.register.pools {
		own[nameOfHolder(string(v1alpha1.PoolKindIPPool), pool)] = true
	}
	for _, claim := range h.register.claims {
		own[nameOfHolder("IPClaim", claim)] = true
	}
	var found remaining
	err := h.awaitReleased(ctx, func() ([]string, error) {
		records, holders, err := h.held(ctx, h.pools())
		found = remaining{}
		found.add(records, holders, func(holder string) bool { return own[holder] })
		return found.leaving, err
	})
	if err != nil || len(found.news) == 0 {
		return err
	}
	return printPlan(h.o.Out, found.news, &ProblemsError{Count: len(found.news), Subject: "rolling back import " + h.register.name})
}

// column returns the name of a field in the input.
func (g *register) column(name string) string {
	path, _, _ := strings.Cut(name, "[")
	return cmp.Or(g.columns[path], name)
}

// texts describes the errors of fields, in terms of the input.
func (g *register) texts(errs field.ErrorList) string {
	var texts []string
	for _, err := range errs {
		text := err.ErrorBody()
		switch err.Type {
		case field.ErrorTypeInvalid:
			text = fmt.Sprintf("%#v: %s", err.BadValue, err.Detail)
		case field.ErrorTypeTooMany:
			text += ": split the pool"
		}
		texts = append(texts, g.column(err.Field)+": "+text)
	}
	return strings.Join(texts, "; ")
}

// text describes why the operator would refuse a block, and the remedy.
func (g *register) text(err error, block netip.Prefix) string {
	policy, isPolicy := errors.AsType[*ipam.PolicyError](err)
	taken, isTaken := errors.AsType[*ipam.TakenError](err)
	switch {
	case isPolicy:
		return fmt.Sprintf("%s: %v: %s", g.column(policy.Field), policy.Value, policy.Remedy)
	case !isTaken:
		return err.Error()
	case taken.IsWithheld():
		return taken.Error() + ": leave it out, as no claim is given it, or let the pool hand it out"
	case taken.Holder.IsPool() && taken.Overlap.Overlaps(block) && taken.Overlap.Bits() < block.Bits():
		return fmt.Sprintf("%s lies in %s of %s: name that as the %s", block, taken.Overlap, taken.Holder, g.home(taken))
	}
	return fmt.Sprintf("%s overlaps %s of %s: correct one of them", block, taken.Overlap, taken.Holder)
}

// home returns the term for the pool that contains a block.
func (g *register) home(taken *ipam.TakenError) string {
	if taken.Pool.Kind == ipam.PoolKindRoutingDomain {
		return "parent, or choose another routing domain"
	}
	return "pool or parent, or choose another block"
}

// differs returns the reason why an existing pool is not the planned one, if it is not.
func differs(there, planned *v1alpha1.IPPool) string {
	if there.Spec.CIDR != planned.Spec.CIDR || parentOf(there) != parentOf(planned) {
		return fmt.Sprintf("IPPool %s exists, with the CIDR %s in place of %s, or with another parent: rename or delete it", planned.Name, there.Spec.CIDR, planned.Spec.CIDR)
	}
	now, errs := convert.Pool(there)
	want, invalid := convert.Pool(planned)
	if len(errs)+len(invalid) > 0 {
		return fmt.Sprintf("IPPool %s exists, and cannot be read as it is: correct it", planned.Name)
	}
	if now.Home != want.Home {
		return fmt.Sprintf("IPPool %s exists, in %s in place of %s: rename or delete it", planned.Name, now.Home, want.Home)
	}
	if lacking := minus(withheld(want), withheld(now)); !isEmpty(lacking) {
		return fmt.Sprintf("IPPool %s exists, and hands out %s, which is reserved here: reserve it there, or leave it out", planned.Name, ipam.FirstFew(textsOf(lacking)))
	}
	return ""
}

// withheld returns the addresses that a pool never hands out.
func withheld(pool ipam.Pool) *netipx.IPSet {
	var all netipx.IPSetBuilder
	for span := range pool.Withheld.All() {
		all.AddRange(netipx.IPRangeFrom(span.From, span.To))
	}
	return built(&all)
}

func parentOf(pool *v1alpha1.IPPool) string {
	if pool.Spec.ParentRef == nil {
		return ""
	}
	return pool.Spec.ParentRef.Name
}

// holds reports whether an existing claim holds the block that a planned one is for.
func holds(there, planned *v1alpha1.IPClaim) bool {
	return there.Status.AllocatedCIDR == planned.Spec.CIDR && there.Spec.PoolRef != nil && there.Spec.PoolRef.Name == planned.Spec.PoolRef.Name
}
