package ipaddressclaim

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// upToDate reports whether a pass over the claim would change nothing: its record is
// in the view, its IPAddress in the cache with its metadata, and its status reports
// both. A leader that is new finds nearly all claims like that, and the waiters
// are not to wait for them. It costs O(1), and is never true where a pass would do
// something.
func (c *Controller) upToDate(ctx context.Context, key types.NamespacedName) bool {
	s, err := c.look(ctx, key)
	return err == nil && c.isServed(s) && c.hasMetadata(ctx, s)
}

// isServed reports whether the claim has its address and says so. It sets the record.
func (c *Controller) isServed(s *scope) bool {
	if s.next() != serve || s.address == nil || !s.address.DeletionTimestamp.IsZero() ||
		s.address.Spec.PoolRef != s.claim.Spec.PoolRef || !slices.Contains(s.claim.Finalizers, v1alpha1.FinalizerRelease) {
		return false
	}
	records := c.Ledger.HeldBy(s.holder())
	if len(records) != 1 || !isRecordOf(s, records[0]) || c.Allocator.Confirmed(records[0]) != nil || c.Ledger.Conflict(records[0]) != nil {
		return false
	}
	s.record = records[0]
	return c.statusUpToDate(s)
}

// isRecordOf reports whether the record is the claim's own and its IPAddress's.
func isRecordOf(s *scope, record ipam.Record) bool {
	return record.HolderUID == string(s.claim.UID) && !record.PoolUnknown && record.State == ipam.StateBound && !record.Terminating &&
		record.Block.Addr().String() == s.address.Spec.Address
}

// statusUpToDate reports whether the claim's status is what a pass would write.
func (c *Controller) statusUpToDate(s *scope) bool {
	if c.Queue.Has(s.holder()) {
		return false
	}
	ready := conditions.Get(s.claim, ipamv1.IPAddressClaimReadyCondition)
	reason, message, _ := c.reason(s, nil)
	return s.claim.Status.AddressRef.Name == s.address.Name && ready != nil &&
		ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == s.claim.Generation && ready.Reason == reason && ready.Message == message
}

// hasMetadata reports whether the IPAddress lacks nothing of what ensureMetadata gives.
func (c *Controller) hasMetadata(ctx context.Context, s *scope) bool {
	ensured := s.address.DeepCopy()
	return c.ensureMetadata(ctx, s, ensured) == nil && sameMetadata(s.address, ensured)
}
