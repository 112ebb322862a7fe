package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ippool,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=update,versions=v1alpha1,name=update.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-localippool,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=update,versions=v1alpha1,name=update.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=delete,versions=v1alpha1,name=delete.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-localippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=delete,versions=v1alpha1,name=delete.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// poolValidator returns the validator of one kind of pool. The mutating webhook judges a pool that is
// created, before its CIDR is recorded.
func poolValidator[T v1alpha1.Pool](s *services) validator[T] {
	return validator[T]{
		update: func(ctx context.Context, req admission.Request, before, after T) (admission.Warnings, error) {
			added := sets.New(after.PoolSpec().ClassNames...).Difference(sets.New(before.PoolSpec().ClassNames...))
			if err := s.checkProvision(ctx, req.UserInfo, after, sets.List(added)); err != nil {
				return nil, err
			}
			return s.updatePool(before, after)
		},
		remove: func(ctx context.Context, req admission.Request, pool T) error {
			return s.deletePool(ctx, isDryRun(req), pool)
		},
	}
}

// updatePool judges the changes of a pool, which it reads as the reconciler will.
func (s *services) updatePool(before, after v1alpha1.Pool) (admission.Warnings, error) {
	if sameSpec(before, after) {
		return nil, nil
	}
	pool, errs := convert.Pool(after)
	var warnings []string
	if !sameGateway(before.PoolSpec().Network, after.PoolSpec().Network) {
		gatewayWarnings, gatewayErrs := edgeGateway(after, pool.CIDR)
		warnings, errs = append(warnings, gatewayWarnings...), append(errs, gatewayErrs...)
	}
	if len(errs) > 0 {
		return nil, poolSubject(after).invalid(errs...)
	}
	if err := s.checkEdit(before, after, pool); err != nil {
		return nil, err
	}
	if !slices.Equal(before.PoolSpec().ClassNames, pool.Classes) {
		warnings = append(warnings, s.classWarnings(pool)...)
	}
	return append(warnings, s.networkWarnings(before.PoolSpec().Network, after.PoolSpec().Network, pool)...), nil
}

// checkEdit refuses an edit of the ranges that a pool occupies if another holder has a part of what it
// adds. It is the controller of the pool that records them.
func (s *services) checkEdit(before, after v1alpha1.Pool, pool ipam.Pool) error {
	if pool.Occupied == nil || slices.Equal(before.PoolSpec().Ranges, after.PoolSpec().Ranges) {
		return nil
	}
	order, err := s.Allocator.PoolOrder(pool)
	if err == nil {
		err = s.Allocator.CheckEdits(pool)
	}
	if err == nil {
		order.SetHolder(before)
		_, err = s.Allocator.Preview(order)
	}
	var taken *ipam.TakenError
	var policy *ipam.PolicyError
	var limit *ipam.LimitError
	isOwn := errors.As(err, &taken) && taken.Holder == order.Holder // the view is behind, or an edit is under way
	if isOwn || taken == nil && !errors.As(err, &policy) && !errors.As(err, &limit) {
		return nil
	}
	return poolSubject(after).refusal(s.Catalog.Redact(after.GetNamespace(), err))
}

// sameGateway reports whether an update leaves unchanged the gateway, and whether the addresses at
// the edges of the subnet are for hosts.
func sameGateway(a, b *v1alpha1.PoolNetwork) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Gateway == b.Gateway && a.AllocateEdgeAddresses == b.AllocateEdgeAddresses
}

func sameSpec(a, b v1alpha1.Pool) bool {
	visibility, project := a.SharedWith()
	otherVisibility, otherProject := b.SharedWith()
	return visibility == otherVisibility && project == otherProject && equality.Semantic.DeepEqual(a.PoolSpec(), b.PoolSpec())
}

// deletePool refuses to delete a pool that is in use by holders that are not being deleted
// themselves. If no webhook runs, the pool's finalizer keeps the pool until its last block is
// released; so it does if the namespace of a pool is deleted, for which no request reaches this
// webhook.
func (s *services) deletePool(ctx context.Context, dryRun bool, pool v1alpha1.Pool) error {
	check := liveGoingCheck(s.Live)
	if dryRun {
		check = viewGoingCheck(s.Catalog)
	}
	u, err := useOf(ctx, check, s.Ledger, convert.KeyOf(pool))
	if err != nil {
		return poolSubject(pool).refusal(err)
	}
	if u.count() > 0 {
		return poolSubject(pool).inUse(u)
	}
	return nil
}

// use holds the reasons why a pool is in use.
type use struct {
	// liveHolders has the holders that exist, and are not being deleted.
	liveHolders []ipam.Holder
	// keptReasons describes the records without holder, and how each is released.
	keptReasons []string
	// moreCount is the number of other occupants.
	moreCount int
}

func (u use) count() int { return len(u.liveHolders) + len(u.keptReasons) + u.moreCount }

// goingCheck reports whether a holder is being deleted, or was.
type goingCheck func(ctx context.Context, holder ipam.Holder) (bool, error)

// useOf returns the reasons why a pool is in use. A holder that is being deleted is not one of
// them: the pool's finalizer keeps the pool until the holder is gone. So a tree of pools, and the
// claims in it, can be deleted in one command. useOf checks as many holders together as are still
// to be named, and no more than are needed to name them.
func useOf(ctx context.Context, check goingCheck, view *ledger.Ledger, pool ipam.PoolKey) (use, error) {
	occupants, total := view.Occupants(pool, maxOccupants)
	u := use{moreCount: total}
	for remaining := occupants; len(remaining) > 0; {
		missingCount := maxListedHolders - len(u.liveHolders) - len(u.keptReasons)
		if missingCount == 0 {
			break
		}
		next := remaining[:min(missingCount, len(remaining))]
		remaining = remaining[len(next):]
		goingFlags, err := areGoing(ctx, check, next)
		if err != nil {
			return use{}, err
		}
		u.moreCount -= len(next)
		for i, o := range next {
			switch {
			case goingFlags[i]:
			case isHeld(o.Record) && o.Claimed:
				u.liveHolders = append(u.liveHolders, o.Record.Holder)
			default:
				u.keptReasons = append(u.keptReasons, keptReason(o.Record))
			}
		}
	}
	return u, nil
}

// areGoing reports for each occupant whether it leaves with its holder, and whether that holder is
// being deleted.
func areGoing(ctx context.Context, check goingCheck, occupants []ledger.Occupant) ([]bool, error) {
	goingFlags := make([]bool, len(occupants))
	group, ctx := errgroup.WithContext(ctx)
	for i, o := range occupants {
		if !leavesWithHolder(o) {
			continue
		}
		group.Go(func() (err error) {
			if goingFlags[i], err = check(ctx, o.Record.Holder); err != nil {
				return fmt.Errorf("reading %s: %w", o.Record.Holder, err)
			}
			return nil
		})
	}
	return goingFlags, group.Wait()
}

// leavesWithHolder reports whether the block is released when its holder is deleted: the block is
// not to be kept, and an object of ours is known to have it.
func leavesWithHolder(o ledger.Occupant) bool {
	r := o.Record
	return isHeld(r) && r.Reclaim != ipam.ReclaimRetain && r.Sticky == "" && o.Claimed && r.Holder.Group == v1alpha1.GroupVersion.Group
}

// liveGoingCheck returns a goingCheck that asks a quorum of the API servers' storage: the state that
// this process has seen may be older.
func liveGoingCheck(live client.Reader) goingCheck {
	return func(ctx context.Context, h ipam.Holder) (bool, error) {
		holder := &metav1.PartialObjectMetadata{}
		holder.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(h.Kind))
		err := live.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: h.Name}, holder)
		if kubeutil.IsNotFound(err) {
			return true, nil
		}
		return err == nil && !holder.DeletionTimestamp.IsZero(), err
	}
}

// viewGoingCheck returns a goingCheck that answers from the state that this process has seen, for a dry
// run. The view leaves out claims that are being deleted.
func viewGoingCheck(catalog *inventory.Catalog) goingCheck {
	return func(_ context.Context, h ipam.Holder) (bool, error) {
		pool, ok := catalog.Pool(convert.PoolOf(h))
		return ok && pool.Terminating, nil
	}
}

// isHeld reports whether the record belongs to a holder that exists, or existed when the record was
// written: the own record of a pool that is being deleted is released first.
func isHeld(r ipam.Record) bool { return r.State == ipam.StateBound || r.State == ipam.StateReleasing }

// keptReason returns a text with the state of a record without holder, and with the way to release it.
func keptReason(r ipam.Record) string {
	name := "IPAllocation " + r.Name.String()
	switch {
	case r.State == ipam.StateRetained && r.ReleaseAfter.IsZero():
		return name + " is retained: delete it to release the block"
	case r.State == ipam.StateRetained:
		return fmt.Sprintf("%s is retained until %s: delete it to release the block", name, r.ReleaseAfter.UTC().Format(time.RFC3339))
	case r.State == ipam.StateCooling:
		return fmt.Sprintf("%s is cooling down: wait until %s, when the block is released", name, r.ReleaseAfter.UTC().Format(time.RFC3339))
	default:
		return fmt.Sprintf("%s is not claimed: wait until the block is released after the grace period for orphans, unless %s claims it", name, r.Holder)
	}
}

// inUse returns the refusal to delete a pool that is in use.
func (s subject) inUse(u use) error {
	var holders, more []string
	for _, holder := range u.liveHolders {
		holders = append(holders, holder.String())
	}
	if u.moreCount > 0 {
		more = append(more, fmt.Sprintf("and %d more", u.moreCount))
	}
	text, separator := fmt.Sprintf("pool %s is in use by %s", s.name, ipam.FormatCount(u.count(), "allocation")), ": "
	if len(holders) > 0 {
		text += fmt.Sprintf(" (%s): delete %s first", strings.Join(slices.Concat(holders, more), ", "), pronoun(len(holders)+u.moreCount))
		separator, more = "; ", nil
	}
	if kept := slices.Concat(u.keptReasons, more); len(kept) > 0 {
		text += separator + strings.Join(kept, "; ")
	}
	return apierrors.NewConflict(s.resource(), s.name, errors.New(text))
}

// gatewayHeld returns a warning if the gateway of a pool is an address that a claim holds, in the
// pool or elsewhere in its routing domain.
func (s *services) gatewayHeld(pool ipam.Pool) []string {
	if pool.Network == nil || !pool.Network.Gateway.IsValid() {
		return nil
	}
	gateway := pool.Network.Gateway
	record, isHeld := s.Ledger.HolderAt(pool, gateway)
	if !isHeld {
		return nil
	}
	taken := &ipam.TakenError{Block: netip.PrefixFrom(gateway, gateway.BitLen()), Pool: record.Pool, Holder: record.Holder, Overlap: record.Block}
	return []string{fmt.Sprintf("%s: %v: choose another address for the gateway, or have that one released", gatewayField, s.Catalog.Redact(pool.Key.Namespace, taken))}
}

// networkWarnings returns warnings about the effect of a network update on held addresses: their
// holders keep the values that were handed out with them.
func (s *services) networkWarnings(before, after *v1alpha1.PoolNetwork, pool ipam.Pool) []string {
	changedFields := changedSettings(before, after)
	if len(changedFields) == 0 {
		return nil
	}
	formerGateway := netip.Addr{}
	if before != nil {
		formerGateway = convert.GatewayGiven(before.Gateway)
	}
	total, matching := s.Ledger.CountHandedOut(pool.Key, formerGateway)
	heldText := func(n int) string { return ipam.FormatNumber(n, "address", "addresses") + " still held" }
	var warnings []string
	if changedFields[0] == gatewayField {
		changedFields, warnings = changedFields[1:], s.gatewayHeld(pool)
		if formerGateway.IsValid() && matching > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: %s was handed out with %s, and stays withheld until the last is released: make such claims again, or configure the hosts; kubectl ipam check lists them",
				gatewayField, formerGateway, heldText(matching)))
		}
	}
	if len(changedFields) > 0 && total > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: the former values were handed out with %s, and stay in their claims: make such claims again, or configure the hosts; kubectl ipam check lists them",
			strings.Join(changedFields, ", "), heldText(total)))
	}
	return warnings
}

// gatewayField is the name of the gateway's field.
const gatewayField = "spec.network.gateway"

// changedSettings returns the fields of a network that are handed out with an address and that an
// update changes; the gateway is the first. The existence of a network, and its prefix length, do
// not change.
func changedSettings(before, after *v1alpha1.PoolNetwork) []string {
	a, b := cmp.Or(before, &v1alpha1.PoolNetwork{}), cmp.Or(after, &v1alpha1.PoolNetwork{})
	var changedFields []string
	for _, field := range []struct {
		name   string
		isSame bool
	}{
		{gatewayField, a.Gateway == b.Gateway},
		{"spec.network.dnsServers", slices.Equal(a.DNSServers, b.DNSServers)},
		{"spec.network.searchDomains", slices.Equal(a.SearchDomains, b.SearchDomains)},
		{"spec.network.mtu", a.MTU == b.MTU},
		{"spec.network.vlan", a.VLAN == b.VLAN},
	} {
		if !field.isSame {
			changedFields = append(changedFields, field.name)
		}
	}
	return changedFields
}
