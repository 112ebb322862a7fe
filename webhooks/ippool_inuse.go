package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// use is what keeps a pool in use.
type use struct {
	// live are holders that are there, and not being deleted.
	live []ipam.Holder
	// kept says of records without holder what releases them.
	kept []string
	// more is how many others there are.
	more int
}

func (u use) isNone() bool { return len(u.live)+len(u.kept)+u.more == 0 }

// isGoing reports whether a holder is being deleted, or was.
type isGoing func(ctx context.Context, holder ipam.Holder) (bool, error)

// useOf returns what keeps a pool in use. A holder that is being deleted does not: the
// pool's finalizer keeps the pool until it is gone. So a tree of pools, and the claims
// in it, can be deleted in one go. As many holders are looked at together as are still to
// be named, and no more than it takes to name them.
func useOf(ctx context.Context, going isGoing, view *ledger.Ledger, pool ipam.PoolKey) (use, error) {
	occupants, all := view.Occupants(pool, occupantsRead)
	u := use{more: all}
	for left := occupants; len(left) > 0; {
		missing := holdersNamed - len(u.live) - len(u.kept)
		if missing == 0 {
			break
		}
		next := left[:min(missing, len(left))]
		left = left[len(next):]
		gone, err := areGoing(ctx, going, next)
		if err != nil {
			return use{}, err
		}
		u.more -= len(next)
		for i, o := range next {
			switch {
			case gone[i]:
			case isHeld(o.Record) && o.Claimed:
				u.live = append(u.live, o.Record.Holder)
			default:
				u.kept = append(u.kept, keptBy(o.Record))
			}
		}
	}
	return u, nil
}

// areGoing reports of each occupant whether it leaves when its holder does, and that is
// going.
func areGoing(ctx context.Context, going isGoing, occupants []ledger.Occupant) ([]bool, error) {
	gone := make([]bool, len(occupants))
	group, ctx := errgroup.WithContext(ctx)
	for i, o := range occupants {
		if !leavesWithHolder(o) {
			continue
		}
		group.Go(func() (err error) {
			if gone[i], err = going(ctx, o.Record.Holder); err != nil {
				return fmt.Errorf("reading %s: %w", o.Record.Holder, err)
			}
			return nil
		})
	}
	return gone, group.Wait()
}

// leavesWithHolder reports whether the block is released when its holder is deleted: it is
// not to be kept, and an object of ours is known to have it.
func leavesWithHolder(o ledger.Occupant) bool {
	r := o.Record
	return isHeld(r) && r.Reclaim != ipam.ReclaimRetain && r.Sticky == "" && o.Claimed && r.Holder.Group == v1alpha1.GroupVersion.Group
}

// isGoingLive asks a quorum of the API servers' storage: what this process has seen may be
// older.
func isGoingLive(live client.Reader) isGoing {
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

// isGoingSeen answers by what this process has seen, for a dry run. The view leaves out
// claims that are going.
func isGoingSeen(pools *inventory.Catalogue) isGoing {
	return func(_ context.Context, h ipam.Holder) (bool, error) {
		pool, known := pools.Pool(convert.PoolOf(h))
		return known && pool.Terminating, nil
	}
}

// isHeld reports whether the record is of a holder that is there, or was when it was
// written: a pool that is being deleted has its own record released first.
func isHeld(r ipam.Record) bool { return r.State == ipam.StateBound || r.State == ipam.StateReleasing }

// keptBy says in which state a record without holder is, and what releases it.
func keptBy(r ipam.Record) string {
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

// inUse refuses to delete a pool.
func (s subject) inUse(u use) error {
	var why []string
	count := len(u.live) + len(u.kept) + u.more
	if len(u.live) > 0 {
		why = append(why, fmt.Sprintf("(%s): delete %s first", list(u.live, count-len(u.kept)), pronoun(count-len(u.kept))))
	} else if u.more > 0 {
		u.kept = append(u.kept, fmt.Sprintf("and %d more", u.more))
	}
	text := fmt.Sprintf("pool %s is in use by %s", s.name, ipam.Counted(count, "allocation"))
	switch kept := strings.Join(u.kept, "; "); {
	case len(why) == 0:
		text += ": " + kept
	case kept == "":
		text += " " + why[0]
	default:
		text += " " + why[0] + "; " + kept
	}
	return apierrors.NewConflict(s.resource(), s.name, errors.New(text))
}
