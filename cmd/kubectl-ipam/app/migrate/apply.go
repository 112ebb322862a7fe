package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// apply carries the plan out, from the point at which an earlier run has stopped.
func (r *run) apply(ctx context.Context) error {
	if err := inOrder(ctx, r.resume, r.read, r.print); err != nil {
		return err
	}
	if len(r.plan.pools) == 0 {
		r.say("There is nothing to import.")
		return nil
	}
	if err := inOrder(ctx, r.makePools, r.drain, r.verify, r.open); err != nil {
		return err
	}
	r.say("Imported %s. Change objects that name the old pools, such as machine templates, to name the new ones; the old pools stay closed.", ipam.FormatCount(len(r.plan.pools), "pool"))
	return nil
}

// resume finishes the work of an interrupted run.
func (r *run) resume(ctx context.Context) error {
	journals, err := r.journals(ctx)
	if err != nil {
		return err
	}
	for _, j := range journals {
		r.say("Going on with %s of ConfigMap %s.", ipam.FormatCount(len(j.entries), "claim"), keyOf(j.object))
		if err := r.carryOut(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// makePools creates the pools that do not exist yet. They are paused.
func (r *run) makePools(ctx context.Context) error {
	for _, pp := range r.plan.pools {
		if pp.exists {
			continue
		}
		if err := r.client.Create(ctx, pp.pool); err != nil {
			return fmt.Errorf("creating %s: %w", refOfPool(pp.pool), err)
		}
		r.say("Created %s, paused.", refOfPool(pp.pool))
	}
	return nil
}

// drain closes Metal3's pools, and moves the objects that name them until none is left.
func (r *run) drain(ctx context.Context) error {
	for {
		if err := r.read(ctx); err != nil {
			return err
		}
		if r.plan.problems() > 0 {
			return r.print(ctx)
		}
		closed, err := r.closeAll(ctx)
		if err != nil {
			return err
		}
		if !closed { // after that, the next round moves all that has been handed out until then
			if moved, err := r.movePlan(ctx); moved == 0 || err != nil {
				return err
			}
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
}

// movePlan moves the claims and IPAddresses of the plan, and returns their number.
func (r *run) movePlan(ctx context.Context) (moved int, err error) {
	for _, pp := range r.plan.pools {
		if err := r.moveAll(ctx, pp.entries); err != nil {
			return moved, err
		}
		if n := len(pp.entries); n > 0 {
			r.say("Moved %s of %s.", ipam.FormatCount(n, "claim"), pp.ref)
		}
		moved += len(pp.entries)
	}
	return moved, nil
}

// closeAll changes Metal3's pools so that its provider hands out nothing of them any more. It
// reports whether any of them has changed.
func (r *run) closeAll(ctx context.Context) (changed bool, err error) {
	for _, pp := range r.plan.pools {
		before := pp.obj.DeepCopy()
		if err := closeMetal3(pp.obj, pp.holdings); err != nil {
			return changed, fmt.Errorf("closing %s: %w", pp.ref, err)
		}
		if equality.Semantic.DeepEqual(before, pp.obj) {
			continue
		}
		err := r.client.Patch(ctx, pp.obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsConflict(err): // the next round reads it again
		case apierrors.IsInternalError(err):
			return changed, fmt.Errorf("closing %s: where the webhook of its provider does not answer, start the provider, or delete its webhook configurations, and run the import again: %w", pp.ref, err)
		case err != nil:
			return changed, fmt.Errorf("closing %s: %w", pp.ref, err)
		}
		changed = true
	}
	return changed, nil
}

// open lets our pools hand out addresses, and reserves in them the addresses that still stay
// with Metal3.
func (r *run) open(ctx context.Context) error {
	for _, pp := range r.plan.pools {
		if err := onConflict(func() error { return r.openPool(ctx, pp) }); err != nil {
			return fmt.Errorf("opening %s: %w", refOfPool(pp.pool), err)
		}
	}
	return nil
}

func (r *run) openPool(ctx context.Context, pp *poolPlan) error {
	pool := &v1alpha1.LocalIPPool{}
	if err := r.client.Get(ctx, keyOf(pp.pool), pool); err != nil {
		return err
	}
	before := pool.DeepCopy()
	isOpened := endPause(pool)
	pp.pool = pool
	if err := pp.reserveKept(); err != nil {
		return err
	}
	err := r.client.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return err
	}
	if isOpened {
		r.say("Opened %s: %s.", refOfPool(pool), pool.Spec.CIDR)
	}
	if _, paused := pool.GetAnnotations()[v1alpha1.AnnotationPaused]; paused {
		r.say("%s stays paused.", refOfPool(pool))
	}
	return nil
}

const (
	// labelJournal marks a ConfigMap as a journal of an import.
	labelJournal = "ipam.cadastre.dev/import-journal"
	// journalKey names the key of the entries in a ConfigMap.
	journalKey = "entries"
	// entriesMost and bytesMost bound the size of a journal; a ConfigMap has up to 1 MiB.
	entriesMost = 100
	bytesMost   = 700 << 10
)

// journal holds the claims and IPAddresses that are about to be deleted and created again,
// until that is done. A later run that finds a journal goes on with it.
type journal struct {
	object  *corev1.ConfigMap
	entries []entry
}

// pack splits entries into groups of one namespace each, of a size that a journal can hold.
func pack(entries []entry) ([][]entry, error) {
	var packs [][]entry
	size := 0
	for _, e := range entries {
		text, err := json.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("saving %s: %w", e, err)
		}
		last := len(packs) - 1
		if last < 0 || len(packs[last]) == entriesMost || size+len(text) > bytesMost || packs[last][0].From.object().GetNamespace() != e.From.object().GetNamespace() {
			packs, size, last = append(packs, nil), 0, last+1
		}
		packs[last] = append(packs[last], e)
		size += len(text) + 1
	}
	return packs, nil
}

// save writes the entries of a journal into its ConfigMap, which it creates if there is none.
func (r *run) save(ctx context.Context, j *journal) error {
	text, err := json.Marshal(j.entries)
	if err != nil {
		return fmt.Errorf("writing a journal: %w", err)
	}
	data := map[string]string{journalKey: string(text)}
	if j.object != nil {
		before := j.object.DeepCopy()
		j.object.Data = data
		if err := r.client.Patch(ctx, j.object, client.MergeFrom(before)); err != nil { //nolint:forbidigo // only this run writes the journal
			return fmt.Errorf("writing ConfigMap %s: %w", keyOf(j.object), err)
		}
		return nil
	}
	j.object = &corev1.ConfigMap{Data: data, ObjectMeta: metav1.ObjectMeta{
		Namespace: j.entries[0].From.object().GetNamespace(), GenerateName: "cadastre-import-",
		Labels: map[string]string{labelJournal: importMetal3},
	}}
	if err := r.client.Create(ctx, j.object); err != nil {
		return fmt.Errorf("saving %s in a ConfigMap: %w", ipam.FormatCount(len(j.entries), "claim"), err)
	}
	return nil
}

// journals returns the journals that an interrupted import or rollback has left.
func (r *run) journals(ctx context.Context) ([]*journal, error) {
	found := &corev1.ConfigMapList{}
	if err := r.client.List(ctx, found, client.InNamespace(r.o.Namespace), client.MatchingLabels{labelJournal: importMetal3}); err != nil {
		return nil, fmt.Errorf("looking for an import that was interrupted: %w", err)
	}
	var journals []*journal
	for i := range found.Items {
		j := &journal{object: &found.Items[i]}
		if err := json.Unmarshal([]byte(j.object.Data[journalKey]), &j.entries); err != nil {
			return nil, fmt.Errorf("ConfigMap %s cannot be read: it has the claims that an import was moving when it was interrupted; restore it: %w", keyOf(j.object), err)
		}
		journals = append(journals, j)
	}
	slices.SortFunc(journals, func(a, b *journal) int { return a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time) })
	return journals, nil
}
