package torture

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/proxy"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// sites is the number of CIDRs on which pools go and others are made, each under one of two names.
// The last one is a child pool's.
const sites = 3

func siteCIDR(site int) string {
	if site == sites-1 {
		return "10.80.32.0/26"
	}
	return fmt.Sprintf("10.90.%d.0/26", site)
}

// siteName returns one of the names of the pools of a site.
func siteName(site, name int) string { return fmt.Sprintf("site-%d-%c", site, 'a'+rune(name)) }

func sitePool(site, name int) *v1alpha1.IPPool {
	b := build.Pool(siteName(site, name)).CIDR(siteCIDR(site))
	if site == sites-1 {
		b.Child(poolParent, 26)
	}
	pool := b.Obj()
	pool.Annotations = map[string]string{witness.AskedAnnotation: "yes"}
	return pool
}

// anySite returns the name of a pool that goes now and then, and may be missing.
func anySite(intN func(int) int) string { return siteName(intN(sites), intN(2)) }

// replacePool deletes a pool, after its claims, and makes another on its CIDR, while a block of it
// is being recorded.
func (n *nemesis) replacePool(ctx context.Context) error { return n.remake(ctx, false) }

// forcePool does so without asking the operator, with blocks in the pool, and makes it again under
// its own name or another.
func (n *nemesis) forcePool(ctx context.Context) error { return n.remake(ctx, true) }

// Bounds of the times in which a pool goes with its claims, and another is made. If that is not
// enough, the next fault at this site continues.
const (
	poolGoneWithin = 15 * time.Second
	poolMadeWithin = 15 * time.Second
)

// heldBack bounds for how long a record is held back: an attempt is given up after 3.5 s.
const heldBack = 3200 * time.Millisecond

func (n *nemesis) remake(ctx context.Context, force bool) error {
	ctx, cancel := n.healing(ctx) // every begun step must be ended
	defer cancel()
	site := n.random.IntN(sites)
	if site == sites-1 {
		n.clearClaims(ctx, poolParent)
	}
	name := n.siteNow(ctx, site)
	next := 1 - name
	if force && n.random.IntN(3) == 0 {
		next = name
	}
	var asking errgroup.Group
	release := n.holdBack(ctx, &asking, siteName(site, name))
	timer := time.AfterFunc(between(n.random, heldBack/8, heldBack), release)
	defer release()
	defer timer.Stop()

	old := sitePool(site, name)
	if force {
		n.forceAway(ctx, old)
	} else if !until(ctx, poolGoneWithin, func() bool { return n.clearPool(ctx, old) }) {
		n.forceAway(ctx, old)
	}
	if site == sites-1 && n.random.IntN(3) == 0 { // from the parent directly
		for i := range 3 {
			n.ask(ctx, &asking, build.Claim(siteNamespace, "").Pool(poolParent).CIDR(fmt.Sprintf("10.80.32.%d/%d", i*8, 29+i)))
		}
		return asking.Wait()
	}
	made := until(ctx, poolMadeWithin, func() bool {
		if next != name && n.random.IntN(8) == 0 { // refused until they are released, if there are any
			n.clearClaims(ctx, old.Name)
		}
		return n.makePool(ctx, site, next)
	})
	if made {
		for i := range 3 {
			n.ask(ctx, &asking, build.Claim(siteNamespace, "").Pool(siteName(site, next)).Length(int32(29+i)))
		}
	}
	return asking.Wait()
}

// siteNow returns which of its names a site has, as far as the nemesis can see.
func (n *nemesis) siteNow(ctx context.Context, site int) int {
	if n.admin.Get(ctx, keyOf(siteName(site, 1)), &v1alpha1.IPPool{}) == nil {
		return 1
	}
	return 0
}

// holdBack begins to create a claim in a pool, and returns when its record is on its way and held
// back until it is released.
func (n *nemesis) holdBack(ctx context.Context, asking *errgroup.Group, pool string) (release func()) {
	var held []*proxy.HeldCreate
	arrived := make(chan struct{}, 2*len(n.Managers))
	for _, m := range n.Managers {
		h := m.API.HoldCreate("namespaces/" + siteNamespace + "/ipallocations")
		held = append(held, h)
		go func() {
			select {
			case <-h.Arrived():
				arrived <- struct{}{}
			case <-ctx.Done():
			}
		}()
	}
	n.ask(ctx, asking, build.Claim(siteNamespace, "").Pool(pool).Length(29))
	select {
	case <-arrived:
	case <-time.After(time.Second): // the pool is not there, or full
	}
	return func() {
		for _, h := range held {
			h.Release()
		}
	}
}

// siteNamespace holds the claims that the nemesis makes, and no others.
const siteNamespace = "sites"

// ask creates a claim, under a new name, in the background.
func (n *nemesis) ask(ctx context.Context, asking *errgroup.Group, b *build.ClaimBuilder) {
	n.serial++
	claim := b.Obj()
	claim.Name = fmt.Sprintf("site-%d", n.serial)
	asking.Go(func() error { // the witness judges the answer
		_ = n.create(ctx, said("create", claim), claim)
		return nil
	})
}

// clearPool deletes a pool and its claims, and reports whether it is gone.
func (p *party) clearPool(ctx context.Context, pool *v1alpha1.IPPool) bool {
	err := p.remove(ctx, pool)
	if apierrors.IsConflict(err) {
		p.clearClaims(ctx, pool.Name)
	}
	return apierrors.IsNotFound(err)
}

// clearClaims deletes the claims of a pool of both kinds, and removes the finalizers of others.
func (p *party) clearClaims(ctx context.Context, pool string) {
	claims := &v1alpha1.IPClaimList{}
	_ = p.admin.List(ctx, claims, client.MatchingFields{"spec.poolRef.name": pool})
	for i := range claims.Items {
		claim := &claims.Items[i]
		_ = p.remove(ctx, claim)
		if len(claim.Finalizers) > 0 {
			_ = p.admin.Patch(ctx, claim, build.Merge(noFinalizers))
		}
	}
	addresses := &ipamv1.IPAddressClaimList{}
	_ = p.admin.List(ctx, addresses)
	for i := range addresses.Items {
		if claim := &addresses.Items[i]; claim.Spec.PoolRef.Name == pool {
			_ = p.remove(ctx, claim)
			_ = p.letGoOfAddress(ctx, claim, false)
		}
	}
}

// forceAway deletes a pool and removes its finalizers, with blocks in it.
func (n *nemesis) forceAway(ctx context.Context, pool *v1alpha1.IPPool) {
	until(ctx, poolGoneWithin, func() bool {
		err := n.call(ctx, "FORCE pool "+pool.Name, func(ctx context.Context) error {
			if err := n.unasked.Delete(ctx, pool); err != nil {
				return err
			}
			return n.admin.Patch(ctx, pool.DeepCopy(), build.Merge(noFinalizers))
		}, nil)
		return apierrors.IsNotFound(err)
	})
}

// makePool makes a pool of a site, and reports whether it exists.
func (n *nemesis) makePool(ctx context.Context, site, name int) bool {
	pool := sitePool(site, name)
	err := n.create(ctx, "create IPPool "+pool.Name+" "+pool.Spec.CIDR, pool)
	return err == nil || apierrors.IsAlreadyExists(err)
}

// unaskedUser is a user whose deletions of pools the API server does not submit to the operator.
const unaskedUser = "torture-unasked"

// leaveUnasked configures the API server not to ask the operator whether that user can delete a
// pool.
func (w *world) leaveUnasked(ctx context.Context) error {
	hooks := &admissionv1.ValidatingWebhookConfiguration{}
	if err := w.admin.Get(ctx, keyOf("cadastre-validating-webhook-configuration"), hooks); err != nil {
		return err
	}
	before := hooks.DeepCopy()
	found := false
	for i := range hooks.Webhooks {
		if hook := &hooks.Webhooks[i]; hook.Name == "delete.ippool.ipam.cadastre.dev" {
			found = true
			hook.MatchConditions = append(hook.MatchConditions, admissionv1.MatchCondition{
				Name: "not-by-force", Expression: fmt.Sprintf("request.userInfo.username != %q", unaskedUser),
			})
		}
	}
	if !found {
		return fmt.Errorf("no webhook is asked about the deletion of IPPools")
	}
	return w.admin.Patch(ctx, hooks, client.MergeFrom(before))
}
