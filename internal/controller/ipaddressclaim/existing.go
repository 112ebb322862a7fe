package ipaddressclaim

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// recordExisting sees to it that the block of an IPAddress that exists is recorded: it is
// in use, whatever wrote it. This is no allocation, and goes on while a Cluster is
// paused, so that nobody else is given what is being moved.
func (c *Controller) recordExisting(ctx context.Context, s *scope) error {
	if s.address == nil {
		return nil
	}
	if s.claim != nil && s.address.Spec.PoolRef != s.claim.Spec.PoolRef {
		ref := s.address.Spec.PoolRef
		return &ipam.PolicyError{Field: "spec.poolRef", Value: s.claim.Spec.PoolRef.Name,
			Remedy: fmt.Sprintf("the IPAddress of this name is from the %s %s: delete one of them", ref.Kind, ref.Name)}
	}
	addr, invalid := convert.AddressInUse(field.NewPath("spec", "address"), s.address.Spec.Address)
	if invalid != nil {
		return &ipam.PolicyError{Field: "IPAddress spec.address", Value: invalid.BadValue, Remedy: invalid.Detail}
	}
	if record, found := c.recordOf(s, addr); found {
		return c.takeOver(ctx, s, record)
	}
	if err := c.isUnrecorded(ctx, s); err != nil {
		return err
	}
	return c.recordAgain(ctx, s, addr)
}

// recordOf is the claim's record of the address, also one that is kept for a later claim of
// the name: the IPAddress is there, so the block is in use. What was recorded for the claim
// before it had this address is nobody's, although the claim lives: it is judged again.
func (c *Controller) recordOf(s *scope, addr netip.Addr) (own ipam.Record, found bool) {
	for _, record := range c.Ledger.HeldBy(s.holder()) {
		switch {
		case record.Block.Addr() != addr:
			c.Orphans.Look(record.Name)
		case record.State != ipam.StateReleasing && !record.Terminating:
			own, found = record, true
		}
	}
	return own, found
}

// takeOver takes a record over that holds the block, once the namespace may use its pool
// and nothing else has the block.
func (c *Controller) takeOver(ctx context.Context, s *scope, record ipam.Record) error {
	if err := c.own(ctx, s, record); err != nil {
		return err
	}
	if s.record.PoolUnknown {
		if err := c.judgeUse(ctx, s); err != nil {
			return err
		}
	}
	return c.Allocator.Confirmed(s.record)
}

// own takes a record of the claim's name for the claim's own: one that was made
// before the claim, or for an earlier one of the name, whose IPAddress lives on. One that is
// kept without holder is bound again.
func (c *Controller) own(ctx context.Context, s *scope, record ipam.Record) (err error) {
	isKept := record.State != ipam.StateBound
	if isKept {
		if record, err = c.Allocator.Adopt(ctx, record); err != nil {
			return err
		}
	}
	s.record = record
	if s.claim == nil || !isKept && record.HolderUID == string(s.claim.UID) {
		return nil
	}
	stamped, err := c.Allocator.Stamp(ctx, record, s.claim)
	if err != nil {
		return err
	}
	s.record = stamped
	return nil
}

// judgeUse judges whether the claim's namespace may use the pool of the record, which was
// made before that was known. It is tried again when something changes that may be that.
func (c *Controller) judgeUse(ctx context.Context, s *scope) error {
	c.expected.poolMissing(s.name, true) // before the pool is looked for, so that no change is missed
	record, err := c.Allocator.JudgeUse(ctx, s.tenancy(), s.record)
	s.record = record
	if err == nil {
		c.expected.poolMissing(s.name, false)
	}
	return err
}

// isUnrecorded makes sure that the record which the IPAddress names is not merely
// missing in the view.
func (c *Controller) isUnrecorded(ctx context.Context, s *scope) error {
	name := s.address.Annotations[v1alpha1.AnnotationAllocation]
	if name == "" {
		return nil
	}
	allocation := &v1alpha1.IPAllocation{}
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: s.name.Namespace, Name: name}, allocation)
	switch {
	case kubeutil.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for IPAllocation %s/%s: %w", s.name.Namespace, name, err)
	}
	record, unreadable := convert.Record(allocation)
	if unreadable == nil && record.Holder == s.holder() && record.State == ipam.StateBound && !record.Terminating && c.isUnseen(record) {
		return errNotSeen
	}
	return nil
}

// isUnseen reports whether the view has yet to show this version of a record.
func (c *Controller) isUnseen(record ipam.Record) bool {
	seen, ok := c.Ledger.Record(record.Name)
	return !ok || seen.Version != record.Version
}

// recordAgain records the block that an IPAddress names. Where its pool is missing, it
// is reconciled again when something changes that may be that.
func (c *Controller) recordAgain(ctx context.Context, s *scope, addr netip.Addr) error {
	c.expected.poolMissing(s.name, true) // before the pools are read, so that no change is missed
	pool, err := c.poolOf(s, addr)
	if err != nil {
		return err
	}
	known, err := c.Catalogue.MayHold(s.tenancy(), pool)
	if err != nil {
		return err
	}
	order := s.order()
	if order.PoolUnknown = !known; known {
		c.expected.poolMissing(s.name, false)
	}
	order.Terms = c.Catalogue.TermsOfAddress(addr, c.classOf(s))
	order.Gateway = convert.GatewayGiven(s.address.Spec.Gateway)
	if s.record, err = c.Allocator.RecordExisting(ctx, order, pool); err != nil || !s.record.PoolUnknown {
		return err
	}
	return c.judgeUse(ctx, s)
}

// tenancy is on whose behalf the IPAddress asks, also where there is no claim.
func (s *scope) tenancy() ipam.Request {
	request := s.request
	request.Claim = s.name
	return request
}

// classOf is the class that the IPAddress names, or empty.
func (c *Controller) classOf(s *scope) string {
	if ref := s.address.Spec.PoolRef; convert.PoolOfAddress(ref.Kind, s.name.Namespace, ref.Name) == (ipam.PoolKey{}) {
		return ref.Name
	}
	return ""
}

// poolOf is the pool that an IPAddress is from: the one that it names; where it
// names a class, its owner or what its labels say, or else a pool of the class
// that has the address.
func (c *Controller) poolOf(s *scope, addr netip.Addr) (ipam.PoolKey, error) {
	ref := s.address.Spec.PoolRef
	if key := convert.PoolOfAddress(ref.Kind, s.name.Namespace, ref.Name); key != (ipam.PoolKey{}) {
		return key, nil
	}
	for _, owner := range s.address.OwnerReferences {
		if groupOf(owner.APIVersion) == v1alpha1.GroupVersion.Group {
			return convert.PoolOfAddress(owner.Kind, s.name.Namespace, owner.Name), nil
		}
	}
	if name := s.address.Labels[v1alpha1.LabelPool]; name != "" {
		key := convert.PoolOfAddress(s.address.Labels[v1alpha1.LabelPoolKind], s.name.Namespace, name)
		if _, ok := c.Catalogue.Pool(key); ok {
			return key, nil
		}
	}
	class, _ := c.Catalogue.Class(ref.Name)
	pools, _ := c.Catalogue.PoolsOf(s.name.Namespace, class.Class)
	at := slices.IndexFunc(pools, func(p ipam.Pool) bool { return p.CIDR.Contains(addr) })
	if at < 0 {
		return ipam.PoolKey{}, &ipam.MissingError{Reason: v1alpha1.ReasonNoPoolForClass,
			Message: fmt.Sprintf("no pool of the IPClass %q has the address %s: create it, or delete the IPAddress", ref.Name, addr)}
	}
	return pools[at].Key, nil
}
