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

// recordExisting ensures that the block of an IPAddress that exists is recorded: the block is in
// use, whatever wrote the IPAddress. This is no allocation, and goes on while a Cluster is paused,
// so that no other holder gets an address that is being moved.
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
	if record, ok := c.recordOf(s, addr); ok {
		return c.takeOver(ctx, s, record)
	}
	if err := c.checkUnrecorded(ctx, s); err != nil {
		return err
	}
	return c.recordAddress(ctx, s, addr)
}

// recordOf returns the claim's record of the address, also a record that is kept for a later claim
// of the name: the IPAddress exists, so the block is in use. A record that was made for the claim
// before it had this address has no holder, although the claim exists: it is judged again.
func (c *Controller) recordOf(s *scope, addr netip.Addr) (addressRecord ipam.Record, ok bool) {
	for _, record := range c.Ledger.HeldBy(s.holder()) {
		switch {
		case record.Block.Addr() != addr:
			c.Orphans.Enqueue(record.Name)
		case record.State == ipam.StateReleasing || record.Terminating:
		case !ok || c.Allocator.CheckConfirmed(record) == nil: // two attempts may have recorded it
			addressRecord, ok = record, true
		}
	}
	return addressRecord, ok
}

// takeOver takes over a record that holds the block, once the namespace can use its pool and no
// other record has the block.
func (c *Controller) takeOver(ctx context.Context, s *scope, record ipam.Record) error {
	if err := c.adoptRecord(ctx, s, record); err != nil {
		return err
	}
	if s.record.PoolUnknown {
		if err := c.judgeUse(ctx, s); err != nil {
			return err
		}
	}
	return c.Allocator.CheckConfirmed(s.record)
}

// adoptRecord makes a record of the claim's name the claim's own: a record that was made before the claim,
// or for an earlier claim of the name whose IPAddress still exists. It binds again a record that is
// kept without holder.
func (c *Controller) adoptRecord(ctx context.Context, s *scope, record ipam.Record) (err error) {
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

// judgeUse judges whether the claim's namespace can use the pool of the record, which was made
// before that was known. It is tried again after any change that can have brought the pool.
func (c *Controller) judgeUse(ctx context.Context, s *scope) error {
	c.expectations.claimsWithoutPool.Store(s.name, nil) // before the pool is looked for, so that no change is missed
	record, err := c.Allocator.JudgeUse(ctx, s.tenancy(), s.record)
	s.record = record
	if err == nil {
		c.expectations.claimsWithoutPool.Delete(s.name)
	}
	return err
}

// checkUnrecorded returns errNotSeen if the record that the IPAddress names exists and is only missing
// in the view.
func (c *Controller) checkUnrecorded(ctx context.Context, s *scope) error {
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

// isUnseen reports whether the view does not show this version of a record yet.
func (c *Controller) isUnseen(record ipam.Record) bool {
	current, ok := c.Ledger.Record(record.Name)
	return !ok || current.Version != record.Version
}

// recordAddress records the block that an IPAddress names. If its pool is missing, the IPAddress is
// reconciled again after any change that can have brought the pool.
func (c *Controller) recordAddress(ctx context.Context, s *scope, addr netip.Addr) error {
	c.expectations.claimsWithoutPool.Store(s.name, nil) // before the pools are read, so that no change is missed
	pool, err := c.poolOf(s, addr)
	if err != nil {
		return err
	}
	isKnown, err := c.Catalog.MayHold(s.tenancy(), pool)
	if err != nil {
		return err
	}
	order := s.order()
	if order.PoolUnknown = !isKnown; isKnown {
		c.expectations.claimsWithoutPool.Delete(s.name)
	}
	order.Terms = c.Catalog.TermsOfAddress(addr, c.classOf(s))
	order.Gateway = convert.GatewayGiven(s.address.Spec.Gateway)
	if s.record, err = c.Allocator.RecordExisting(ctx, order, pool); err != nil || !s.record.PoolUnknown {
		return err
	}
	return c.judgeUse(ctx, s)
}

// tenancy returns the request with the claim on whose behalf the IPAddress asks, also if the claim
// does not exist.
func (s *scope) tenancy() ipam.Request {
	request := s.request
	request.Claim = s.name
	return request
}

// classOf returns the class that the IPAddress names, or "".
func (c *Controller) classOf(s *scope) string {
	if ref := s.address.Spec.PoolRef; convert.PoolOfAddress(ref.Kind, s.name.Namespace, ref.Name) == (ipam.PoolKey{}) {
		return ref.Name
	}
	return ""
}

// poolOf returns the pool of an IPAddress: the pool that it names; or, if it names a class, its
// owner or the pool in its labels, or else a pool of the class that contains the address.
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
		if _, ok := c.Catalog.Pool(key); ok {
			return key, nil
		}
	}
	class, _ := c.Catalog.Class(ref.Name)
	pools, _ := c.Catalog.PoolsOf(s.name.Namespace, class.Class)
	at := slices.IndexFunc(pools, func(p ipam.Pool) bool { return p.CIDR.Contains(addr) })
	if at < 0 {
		return ipam.PoolKey{}, &ipam.MissingError{Reason: v1alpha1.ReasonNoPoolForClass,
			Message: fmt.Sprintf("no pool of the IPClass %q has the address %s: create it, or delete the IPAddress", ref.Name, addr)}
	}
	return pools[at].Key, nil
}
