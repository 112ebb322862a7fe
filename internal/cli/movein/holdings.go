package movein

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// run does with a register what the options say.
func (g *register) run(ctx context.Context, c client.Client, o Options) error {
	o = o.withDefaults()
	g.check()
	if err := printTable(o.Out, g.table(o.Verbose)); err != nil {
		return err
	}
	if g.problems > 0 {
		return &ProblemsError{Count: g.problems, Subject: "import " + g.name}
	}
	o.Namespace = "" // that of the claims, which are made by now
	h := &holder{run: run{client: c, o: o, out: o.Out}, register: g}
	var err error
	switch o.Action {
	case Apply:
		err = h.apply(ctx)
	case Rollback:
		err = h.rollback(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return err
}

// holder carries a register out.
type holder struct {
	run
	register *register
}

// apply makes pools, parents first, and claims. What is there already as it should be, it
// leaves as it is, so that it goes on where it was interrupted.
func (h *holder) apply(ctx context.Context) error {
	for _, pool := range h.register.pools {
		if err := h.makePool(ctx, pool); err != nil {
			return err
		}
	}
	if err := h.await(ctx, "ready: see what its condition Ready says", func() ([]string, error) { return h.unready(ctx) }); err != nil {
		return err
	}
	if err := h.makeClaims(ctx); err != nil {
		return err
	}
	if err := h.await(ctx, "bound: see what its condition Ready says", func() ([]string, error) { return h.unbound(ctx) }); err != nil {
		return err
	}
	h.say("Imported %s and %s.", ipam.Counted(len(h.register.pools), "pool"), ipam.Counted(len(h.register.claims), "held block"))
	return nil
}

func (h *holder) makePool(ctx context.Context, pool *v1alpha1.IPPool) error {
	made := pool.DeepCopy()
	err := h.client.Create(ctx, made)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating IPPool %s: %w", pool.Name, err)
	}
	now := &v1alpha1.IPPool{}
	if err := h.client.Get(ctx, keyOf(pool), now); err != nil {
		return fmt.Errorf("reading IPPool %s: %w", pool.Name, err)
	}
	if now.Spec.CIDR != pool.Spec.CIDR || !sameParent(now, pool) {
		return fmt.Errorf("IPPool %s exists, with the CIDR %s in place of %s: rename or delete it", pool.Name, now.Spec.CIDR, pool.Spec.CIDR)
	}
	return nil
}

func sameParent(a, b *v1alpha1.IPPool) bool {
	name := func(p *v1alpha1.IPPool) string {
		if p.Spec.ParentRef == nil {
			return ""
		}
		return p.Spec.ParentRef.Name
	}
	return name(a) == name(b)
}

// makeClaims creates the claims. Where an earlier run was killed while one was being
// created, its block may have been recorded, and the claim not stored: the operator gives
// the block back after its --orphan-grace, and that is waited for.
func (h *holder) makeClaims(ctx context.Context) error {
	var mu sync.Mutex
	var refused []*v1alpha1.IPClaim
	var why error
	err := h.all(ctx, len(h.register.claims), func(ctx context.Context, i int) error {
		err := h.makeClaim(ctx, h.register.claims[i])
		if !apierrors.IsConflict(err) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		refused, why = append(refused, h.register.claims[i]), err
		return nil
	})
	if err != nil || len(refused) == 0 {
		return err
	}
	if isOwn, err := h.areOrphans(ctx, refused); !isOwn || err != nil {
		return cmp.Or(err, why)
	}
	h.say("Waiting for the operator to give back %s that an interrupted import has left.", ipam.Counted(len(refused), "block"))
	return h.await(ctx, "given back by the operator: see that it is running", func() ([]string, error) {
		var names []string
		for _, claim := range refused {
			switch err := h.makeClaim(ctx, claim); {
			case apierrors.IsConflict(err):
				names = append(names, "IPClaim "+keyOf(claim).String())
			case err != nil:
				return nil, err
			}
		}
		return names, nil
	})
}

// areOrphans reports whether each claim has a record already, although it does not exist.
func (h *holder) areOrphans(ctx context.Context, claims []*v1alpha1.IPClaim) (bool, error) {
	pools := map[poolRef]bool{}
	for _, pool := range h.register.pools {
		pools[refOfPool(pool)] = true
	}
	records, err := h.records(ctx, pools)
	if err != nil {
		return false, err
	}
	recorded := map[string]bool{}
	for i := range records {
		recorded[records[i].Namespace+"/"+records[i].Spec.ClaimRef.Name+" "+records[i].Spec.CIDR] = true
	}
	for _, claim := range claims {
		if !recorded[keyOf(claim).String()+" "+claim.Spec.CIDR] {
			return false, nil
		}
	}
	return true, nil
}

func (h *holder) makeClaim(ctx context.Context, claim *v1alpha1.IPClaim) error {
	err := h.client.Create(ctx, claim.DeepCopy())
	if err == nil {
		return nil
	}
	now := &v1alpha1.IPClaim{}
	if h.client.Get(ctx, keyOf(claim), now) != nil {
		return fmt.Errorf("creating IPClaim %s: %w", keyOf(claim), err)
	}
	if now.Spec.CIDR != claim.Spec.CIDR || now.Spec.PoolRef == nil || now.Spec.PoolRef.Name != claim.Spec.PoolRef.Name {
		return fmt.Errorf("IPClaim %s exists, for %s in place of %s: rename or delete it", keyOf(claim), now.Spec.CIDR, claim.Spec.CIDR)
	}
	return nil
}

// unready are the pools that do not hand out blocks yet.
func (h *holder) unready(ctx context.Context) ([]string, error) {
	all := &v1alpha1.IPPoolList{}
	if err := h.client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing all IPPools: %w", err)
	}
	phases := map[string]v1alpha1.PoolPhase{}
	for i := range all.Items {
		phases[all.Items[i].Name] = all.Items[i].Status.Phase
	}
	var names []string
	for _, pool := range h.register.pools {
		if phase := phases[pool.Name]; phase != v1alpha1.PoolReady && phase != v1alpha1.PoolExhausted {
			names = append(names, "IPPool "+pool.Name)
		}
	}
	return names, nil
}

// unbound are the claims that do not hold their blocks yet.
func (h *holder) unbound(ctx context.Context) ([]string, error) {
	all, err := h.claims(ctx)
	if err != nil {
		return nil, err
	}
	held := map[client.ObjectKey]string{}
	for i := range all {
		held[keyOf(&all[i])] = all[i].Status.AllocatedCIDR
	}
	var names []string
	for _, claim := range h.register.claims {
		if held[keyOf(claim)] != claim.Spec.CIDR {
			names = append(names, "IPClaim "+keyOf(claim).String())
		}
	}
	return names, nil
}

// claims are those that an import has made, or that are to be made.
func (h *holder) claims(ctx context.Context) ([]v1alpha1.IPClaim, error) {
	all := &v1alpha1.IPClaimList{}
	if err := h.client.List(ctx, all, client.MatchingLabels{labelImport: h.register.name}); err != nil {
		return nil, fmt.Errorf("listing IPClaims: %w", err)
	}
	return all.Items, nil
}

// rollback deletes the claims and pools of the register, unless something else was claimed
// from them.
func (h *holder) rollback(ctx context.Context) error {
	if err := h.refuseNews(ctx); err != nil {
		return err
	}
	err := h.all(ctx, len(h.register.claims), func(ctx context.Context, i int) error {
		return h.deleteImported(ctx, h.register.claims[i].DeepCopy())
	})
	if err != nil {
		return err
	}
	for _, pool := range slices.Backward(h.register.pools) {
		own := refOfPool(pool)
		released := func() ([]string, error) { return h.stillHeld(ctx, own) }
		if err := h.await(ctx, "released by the operator: see that it is running", released); err != nil {
			return err
		}
		if err := h.deleteImported(ctx, pool.DeepCopy()); err != nil {
			return err
		}
		if err := h.gone(ctx, pool); err != nil {
			return err
		}
	}
	h.say("Deleted %s and %s.", ipam.Counted(len(h.register.pools), "pool"), ipam.Counted(len(h.register.claims), "held block"))
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

// refuseNews refuses a rollback where the pools have holders that were not imported.
func (h *holder) refuseNews(ctx context.Context) error {
	pools, own := map[poolRef]bool{}, map[string]bool{}
	for _, pool := range h.register.pools {
		pools[refOfPool(pool)], own["IPPool "+pool.Name] = true, true
	}
	for _, claim := range h.register.claims {
		own["IPClaim "+keyOf(claim).String()] = true
	}
	records, err := h.records(ctx, pools)
	if err != nil {
		return err
	}
	var rows []row
	for i := range records {
		ref := records[i].Spec.ClaimRef
		name := ref.Kind + " " + ref.Name
		if ref.Kind != string(v1alpha1.PoolKindIPPool) {
			name = ref.Kind + " " + client.ObjectKey{Namespace: cmp.Or(ref.Namespace, records[i].Namespace), Name: ref.Name}.String()
		}
		if !own[name] {
			rows = append(rows, row{name, cannot, records[i].Spec.CIDR + " was claimed after the import: delete it"})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := printTable(h.out, rows); err != nil {
		return err
	}
	return &ProblemsError{Count: len(rows), Subject: "rolling back import " + h.register.name}
}
