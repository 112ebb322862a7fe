package provisioner

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// settle is the time after a pool was opened for which it counts as empty: the operator publishes the
// demand of a class and the room of its pools at most once a second each, and not at one time.
const settle = 5 * time.Second

// rooms returns the rooms of the pools of a class, also of those that are being made, but not of some. It
// schedules a pass for the time when a new pool no longer counts as empty.
func (c *controller) rooms(s *scope, without ...string) []room {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rooms []room
	for name, e := range s.entries {
		pool := s.pools[name]
		isEmpty := pool == nil || pool.Status.Capacity == nil || isUnopened(pool)
		if left := settle - c.clock.Since(c.openedAt[name]); left > 0 {
			isEmpty = true
			s.after(left)
		}
		switch {
		case slices.Contains(without, name) || e.State == releasing || pool != nil && !serves(pool, s.class):
		case e.State == provisioning || isEmpty:
			rooms = append(rooms, newRoom(e.PrefixLength, bitsOf(e.Family)))
		default:
			available, ok := new(big.Int).SetString(pool.Status.Capacity.Available, 10)
			largest, err := strconv.Atoi(strings.TrimPrefix(pool.Status.LargestFreePrefix, "/"))
			if ok && err == nil { // otherwise nothing is free
				rooms = append(rooms, room{available, largest})
			}
		}
	}
	return rooms
}

// serves reports whether a pool hands out blocks to all claims of a class, or will when it is opened.
func serves(pool *v1alpha1.IPPool, class *v1alpha1.IPClass) bool {
	_, isPaused := pool.Annotations[v1alpha1.AnnotationPaused]
	_, isPausedByClusterAPI := pool.Annotations[v1alpha1.AnnotationClusterAPIPaused]
	return pool.DeletionTimestamp.IsZero() && !isPausedByClusterAPI && (!isPaused || isUnopened(pool)) &&
		slices.Contains(pool.Spec.ClassNames, class.Name) && pool.Spec.IPFamily == class.Spec.IPFamily &&
		pool.Spec.Visibility == class.Spec.Visibility && pool.Spec.Project == class.Spec.Project
}

// needs returns the demand of a class, with the spare blocks.
func (s *scope) needs() []need {
	var needs []need
	for _, d := range s.class.Status.Demand {
		needs = append(needs, need{int(d.PrefixLength), int(d.Claims)})
	}
	spare := need{bitsOf(s.class.Spec.IPFamily), s.parameters.spare}
	if length := s.class.Spec.DefaultPrefixLength; length != nil {
		spare.length = int(*length)
	}
	return append(needs, spare)
}

// unmet returns the needs for which the pools of the class have no room, without some of them: first
// those that a further pool would have, then those that are too large for one.
func (c *controller) unmet(s *scope, without ...string) (fitting, tooLarge []need) {
	if s.class == nil {
		return nil, nil
	}
	for _, n := range unmet(s.needs(), c.rooms(s, without...), bitsOf(s.class.Spec.IPFamily)) {
		if n.length < s.parameters.poolPrefixLength {
			tooLarge = append(tooLarge, n)
		} else {
			fitting = append(fitting, n)
		}
	}
	return fitting, tooLarge
}

// isNeeded reports whether a need would be unmet without a pool.
func (c *controller) isNeeded(s *scope, pool string) bool {
	fitting, _ := c.unmet(s, pool)
	return len(fitting) > 0
}

// resize begins a range if the class needs one, or returns one that has not been needed for long enough.
func (c *controller) resize(ctx context.Context, s *scope) error {
	fitting, tooLarge := c.unmet(s)
	if len(tooLarge) > 0 {
		s.fail(ReasonBlockTooLarge, "blocks of /%d are needed, and each pool is a /%d: set parameters.poolPrefixLength to %[1]d or less, or allowedPrefixLengths.min to %[2]d",
			tooLarge[0].length, s.parameters.poolPrefixLength)
	}
	switch {
	case len(fitting) == 0:
		return c.shrink(ctx, s)
	case c.countRanges(s) >= s.parameters.maxPools:
		s.fail(ReasonMaxPools, "claims wait, and the class has %d pools: raise parameters.maxPools, or release blocks", s.parameters.maxPools)
		return nil
	case !c.mayTry(s, attemptOf(s.class.Name)):
		return nil
	}
	name := fmt.Sprintf("%s-%s", strings.TrimRight(fmt.Sprintf("%.40s", s.class.Name), ".-"), rand.String(10))
	next := entry{Class: s.class.Name, Family: s.class.Spec.IPFamily, PrefixLength: s.parameters.poolPrefixLength, State: provisioning}
	if err := c.write(ctx, s, name, &next); err != nil {
		return err
	}
	return c.provide(ctx, s, name)
}

// countRanges counts the ranges of a class that have not been returned.
func (c *controller) countRanges(s *scope) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := len(s.entries)
	for name := range s.entries {
		if _, isReleased := c.releasedAt[name]; isReleased {
			count--
		}
	}
	return count
}

// shrink returns the first pool that has been empty for long enough, and without which the needs are met.
func (c *controller) shrink(ctx context.Context, s *scope) error {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		pool := s.pools[name]
		if s.entries[name].State != ready || pool == nil || pool.Status.Capacity == nil {
			continue
		}
		since := c.noteEmpty(pool)
		if since.IsZero() || c.isNeeded(s, name) {
			continue
		}
		if left := max(s.parameters.releaseAfter, settle) - c.clock.Since(since); left > 0 { // the status may be behind
			s.after(left)
			continue
		}
		return c.mark(ctx, s, name, releasing)
	}
	return nil
}

// noteEmpty returns the time since which a pool has been seen empty; zero if it is not.
func (c *controller) noteEmpty(pool *v1alpha1.IPPool) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pool.Status.Allocations > 0 {
		delete(c.emptySince, pool.Name)
	} else if c.emptySince[pool.Name].IsZero() {
		c.emptySince[pool.Name] = c.clock.Now()
	}
	return c.emptySince[pool.Name]
}
