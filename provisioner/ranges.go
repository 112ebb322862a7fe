package provisioner

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// adopt stores keys for open pools that have none, and deletes pools that were not opened and have none:
// their range is returned already.
func (c *controller) adopt(ctx context.Context, s *scope) error {
	for _, name := range slices.Sorted(maps.Keys(s.pools)) {
		pool := s.pools[name]
		if _, ok := s.entries[name]; ok || !pool.DeletionTimestamp.IsZero() {
			continue
		}
		if isUnopened(pool) {
			if err := c.delete(ctx, pool); err != nil {
				return err
			}
			continue
		}
		cidr, err := netip.ParsePrefix(pool.Spec.CIDR)
		if err != nil || s.class == nil { // its creator had no right to add it to a class of this provisioner
			continue
		}
		adopted := entry{Class: classOf(pool), Family: pool.Spec.IPFamily, PrefixLength: cidr.Bits(), State: ready}
		if err := c.write(ctx, s, name, &adopted); err != nil {
			return err
		}
	}
	return nil
}

func isUnopened(pool *v1alpha1.IPPool) bool {
	return pool.Annotations[v1alpha1.AnnotationPaused] == pausedByUs
}

// write replaces the entry of a pool, in the scope too.
func (c *controller) write(ctx context.Context, s *scope, name string, next *entry) error {
	var expected *entry
	if present, ok := s.entries[name]; ok {
		expected = &present
	}
	if err := c.keys.change(ctx, name, expected, next); err != nil {
		return err
	}
	if next == nil {
		delete(s.entries, name)
	} else {
		s.entries[name] = *next
	}
	return nil
}

// mark writes the next state of a range, and schedules its next step.
func (c *controller) mark(ctx context.Context, s *scope, name string, next state) error {
	e := s.entries[name]
	e.State = next
	s.after(0)
	return c.write(ctx, s, name, &e)
}

// advanceRange takes a range a step further. The error is one of the API server.
func (c *controller) advanceRange(ctx context.Context, s *scope, name string) error {
	pool := s.pools[name]
	switch e := s.entries[name]; {
	case e.State == provisioning && s.class == nil:
		return c.mark(ctx, s, name, releasing)
	case e.State == provisioning && pool == nil:
		return c.provide(ctx, s, name)
	case e.State == provisioning:
		return c.confirm(ctx, s, pool)
	case e.State == releasing:
		return c.giveBack(ctx, s, name)
	case pool == nil: // a user has deleted it
		return c.mark(ctx, s, name, releasing)
	case isUnopened(pool):
		return c.open(ctx, s, pool)
	case s.class == nil:
		return nil
	}
	return c.ensure(ctx, s, pool)
}

// provision calls Provision for the range of a pool, and checks the answer.
func (c *controller) provision(ctx context.Context, s *scope, name string) (netip.Prefix, error) {
	e := s.entries[name]
	request := Request{Key: c.keyOf(name), Cluster: c.cluster, Class: e.Class, Family: e.Family, PrefixLength: e.PrefixLength}
	if s.class != nil {
		request.Parameters = maps.Clone(s.class.Spec.Parameters)
	}
	if pool := s.pools[name]; pool != nil {
		request.Range, _ = netip.ParsePrefix(pool.Spec.CIDR)
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	block, err := c.provisioner.Provision(ctx, request)
	switch {
	case err != nil:
	case !block.IsValid() || block != block.Masked() || block.Bits() != request.PrefixLength || block.Addr().Is4() != (request.Family == v1alpha1.IPv4):
		err = fmt.Errorf("the provisioner returned %s for an %s range of /%d: correct the provisioner", block, request.Family, request.PrefixLength)
	case request.Range.IsValid() && block != request.Range:
		err = fmt.Errorf("the provisioner returned %s for the range %s: correct the provisioner", block, request.Range)
	}
	c.metrics.count(request.Class, "Provision", err)
	s.hasFailedCall = s.hasFailedCall || err != nil
	return block, err
}

func (c *controller) keyOf(pool string) string { return c.cluster + "." + pool }

// attemptOf identifies the attempts to get a range for a class, of which there is one at a time.
func attemptOf(class string) string { return "class/" + class }

// provide gets the range of a new key, and creates its pool. A range that is no longer needed, or whose
// pool is refused, is returned.
func (c *controller) provide(ctx context.Context, s *scope, name string) error {
	e := s.entries[name]
	if s.areInvalid {
		return nil
	}
	if !c.isNeeded(s, name) || e.PrefixLength != s.parameters.poolPrefixLength || e.Family != s.class.Spec.IPFamily {
		c.succeeded(attemptOf(e.Class))
		return c.mark(ctx, s, name, releasing)
	}
	if !c.mayTry(s, attemptOf(e.Class)) {
		return nil
	}
	block, err := c.provision(ctx, s, name)
	if err != nil {
		c.failed(s, attemptOf(e.Class), ReasonProvisionFailed, err)
		return nil
	}
	if err := c.recheckKey(ctx, s, name); err != nil {
		return err
	}
	pool := c.newPool(s, name, block)
	switch err := c.client.Create(ctx, pool); {
	case isRefused(err):
		c.failed(s, attemptOf(e.Class), ReasonPoolRefused, fmt.Errorf("the range %s is returned, as its pool is refused: %w", block, err))
		return c.mark(ctx, s, name, releasing)
	case err != nil:
		c.failed(s, attemptOf(e.Class), ReasonPoolRefused, fmt.Errorf("creating the pool of range %s: %w", block, err))
		return nil
	}
	s.pools[name] = pool
	return c.confirm(ctx, s, pool)
}

// recheckKey returns errStale if another process has changed the key of a range during a call of
// Provision. The range is that process's.
func (c *controller) recheckKey(ctx context.Context, s *scope, name string) error {
	entries, err := c.keys.list(ctx)
	if err != nil || entries[name] == s.entries[name] {
		return err
	}
	return fmt.Errorf("the key of pool %s: %w", name, errStale)
}

// isRefused reports whether the API server refuses a request until something else changes.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err)
}

// newPool returns the pool of a range, paused.
func (c *controller) newPool(s *scope, name string, block netip.Prefix) *v1alpha1.IPPool {
	pool := &v1alpha1.IPPool{}
	pool.Name, pool.Labels = name, map[string]string{LabelProvisioner: c.options.identity()}
	pool.Annotations = map[string]string{v1alpha1.AnnotationPaused: pausedByUs}
	pool.Spec.CIDR, pool.Spec.ClassNames = block.String(), []string{s.entries[name].Class}
	pool.Spec.Visibility, pool.Spec.Project = s.class.Spec.Visibility, s.class.Spec.Project
	return pool
}

// confirm opens a new pool when its block is recorded and Provision returns its range again: the system may
// have been restored since the pool was created. It gives the pool up if another pool has a part of it.
func (c *controller) confirm(ctx context.Context, s *scope, pool *v1alpha1.IPPool) error {
	what := attemptOf(s.entries[pool.Name].Class)
	allocated := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionAllocated)
	switch {
	case allocated == nil: // the watch shows when it is recorded
		return nil
	case allocated.Status == metav1.ConditionTrue:
		if !c.mayTry(s, what) {
			return nil
		}
		if _, err := c.provision(ctx, s, pool.Name); err != nil {
			c.failed(s, what, ReasonProvisionFailed, fmt.Errorf("the range %s is returned, as it is not confirmed: %w", pool.Spec.CIDR, err))
			return c.mark(ctx, s, pool.Name, releasing)
		}
		c.succeeded(what)
		if err := c.mark(ctx, s, pool.Name, ready); err != nil {
			return err
		}
		return c.open(ctx, s, pool)
	case allocated.Reason == v1alpha1.ReasonConflict:
		c.failed(s, what, ReasonPoolRefused, fmt.Errorf("the range %s is returned: %s", pool.Spec.CIDR, allocated.Message))
		return c.mark(ctx, s, pool.Name, releasing)
	}
	s.fail(ReasonPoolRefused, "the range of pool %s is not recorded yet: %s", pool.Name, allocated.Message)
	return nil
}

// open removes the annotation that pauses a pool whose key is Ready.
func (c *controller) open(ctx context.Context, s *scope, pool *v1alpha1.IPPool) error {
	before := pool.DeepCopy()
	delete(pool.Annotations, v1alpha1.AnnotationPaused)
	if err := c.client.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.mu.Lock()
	c.openedAt[pool.Name], c.ensuredAt[pool.Name] = c.clock.Now(), c.clock.Now()
	c.mu.Unlock()
	if s.class != nil {
		c.events.Eventf(s.class, pool, corev1.EventTypeNormal, ReasonProvisioned, "Provision", "pool %s has range %s", pool.Name, pool.Spec.CIDR)
	}
	return nil
}

// ensure has the range of a pool confirmed when that is due, so that a system that was restored from a
// backup knows it again.
func (c *controller) ensure(ctx context.Context, s *scope, pool *v1alpha1.IPPool) error {
	c.mu.Lock()
	left := c.options.Resync - c.clock.Since(c.ensuredAt[pool.Name])
	c.mu.Unlock()
	if left > 0 {
		s.after(left)
		return nil
	}
	if !c.mayTry(s, pool.Name) {
		return nil
	}
	if _, err := c.provision(ctx, s, pool.Name); err != nil {
		c.failed(s, pool.Name, ReasonRangeLost, fmt.Errorf("the range %s of pool %s is not confirmed: %w", pool.Spec.CIDR, pool.Name, err))
		return nil
	}
	c.succeeded(pool.Name)
	c.mu.Lock()
	c.ensuredAt[pool.Name] = c.clock.Now()
	c.mu.Unlock()
	s.after(c.options.Resync)
	return nil
}

// giveBack deletes the pool of a range, and returns the range when neither the pool nor a record of it is
// left. It returns it once more when a call of Provision that was cut off can have no effect any more.
func (c *controller) giveBack(ctx context.Context, s *scope, name string) error {
	if pool := s.pools[name]; pool != nil {
		return c.removePool(ctx, s, pool)
	}
	c.mu.Lock()
	released, isReleased := c.releasedAt[name]
	c.mu.Unlock()
	if left := c.options.Timeout - c.clock.Since(released); isReleased && left > 0 {
		s.after(left)
		return nil
	}
	if !c.mayTry(s, name) {
		return nil
	}
	hasRecords, err := c.hasRecords(ctx, name, "spec.poolRef.name", "spec.claimRef.name")
	if err != nil {
		return err
	}
	if hasRecords {
		c.failed(s, name, ReasonReleaseFailed, fmt.Errorf("the pool %s is gone, and IPAllocations of it are left: release them", name))
		return nil
	}
	if err := c.release(ctx, s, name); err != nil {
		c.failed(s, name, ReasonReleaseFailed, fmt.Errorf("returning the range of pool %s: %w", name, err))
		return nil
	}
	if isReleased {
		c.forget(name)
		return c.write(ctx, s, name, nil)
	}
	c.succeeded(name)
	c.mu.Lock()
	c.releasedAt[name] = c.clock.Now()
	c.mu.Unlock()
	s.after(c.options.Timeout)
	return nil
}

// removePool deletes the pool of a range that is given back, unless a block of it was handed out at the last
// moment: then the pool goes on.
func (c *controller) removePool(ctx context.Context, s *scope, pool *v1alpha1.IPPool) error {
	s.after(time.Minute) // the watch shows when it is gone, unless its label was removed
	if !pool.DeletionTimestamp.IsZero() || !c.mayTry(s, pool.Name) {
		return nil
	}
	isInUse, err := c.hasRecords(ctx, pool.Name, "spec.poolRef.name")
	if err == nil && !isInUse {
		err = c.delete(ctx, pool)
	}
	switch {
	case isInUse || apierrors.IsConflict(err):
		c.forget(pool.Name)
		return c.mark(ctx, s, pool.Name, ready)
	case err != nil:
		c.failed(s, pool.Name, ReasonReleaseFailed, err)
	}
	return nil
}

// release calls Release for the range of a pool.
func (c *controller) release(ctx context.Context, s *scope, name string) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	err := c.provisioner.Release(ctx, c.keyOf(name))
	c.metrics.count(s.entries[name].Class, "Release", err)
	s.hasFailedCall = s.hasFailedCall || err != nil
	return err
}

// forget removes what this process remembers of a pool.
func (c *controller) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.openedAt, pool)
	delete(c.emptySince, pool)
	delete(c.ensuredAt, pool)
	delete(c.releasedAt, pool)
	delete(c.attempts, pool)
}

// delete deletes a pool, but not another one that was created under its name.
func (c *controller) delete(ctx context.Context, pool *v1alpha1.IPPool) error {
	if err := c.client.Delete(ctx, pool, client.Preconditions{UID: &pool.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pool %s: %w", pool.Name, err)
	}
	return nil
}

// hasRecords reports whether the API server has a record that names a pool in one of some fields:
// spec.poolRef.name in those of its blocks, spec.claimRef.name in its own.
func (c *controller) hasRecords(ctx context.Context, pool string, fields ...string) (bool, error) {
	for _, field := range fields {
		records := &v1alpha1.IPAllocationList{}
		if err := c.live.List(ctx, records, client.MatchingFields{field: pool}); err != nil {
			return false, fmt.Errorf("listing the IPAllocations of pool %s: %w", pool, err)
		}
		for _, record := range records.Items {
			inPool, holder := record.Spec.PoolRef, record.Spec.ClaimRef
			if inPool != nil && inPool.Name == pool && inPool.Kind == v1alpha1.PoolKindIPPool || holder.Name == pool && holder.Kind == string(v1alpha1.PoolKindIPPool) {
				return true, nil
			}
		}
	}
	return false, nil
}
