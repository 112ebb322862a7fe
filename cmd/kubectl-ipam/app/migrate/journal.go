package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
		if last < 0 || len(packs[last]) == entriesMost || size+len(text) > bytesMost || packs[last][0].object().GetNamespace() != e.object().GetNamespace() {
			packs, size, last = append(packs, nil), 0, last+1
		}
		packs[last] = append(packs[last], e)
		size += len(text) + 1
	}
	return packs, nil
}

// writeJournal saves entries of one namespace.
func (r *run) writeJournal(ctx context.Context, entries []entry) (*journal, error) {
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, fmt.Errorf("writing a journal: %w", err)
	}
	j := &journal{entries: entries, object: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: entries[0].object().GetNamespace(), GenerateName: "cadastre-import-",
			Labels: map[string]string{labelJournal: r.provider.name},
		},
		Data: map[string]string{journalKey: string(text)},
	}}
	if err := r.client.Create(ctx, j.object); err != nil {
		return nil, fmt.Errorf("saving %s in a ConfigMap: %w", ipam.Counted(len(entries), "claim"), err)
	}
	return j, nil
}

// journals returns the journals that an interrupted import or rollback has left.
func (r *run) journals(ctx context.Context) ([]*journal, error) {
	found := &corev1.ConfigMapList{}
	if err := r.client.List(ctx, found, client.InNamespace(r.o.Namespace), client.MatchingLabels{labelJournal: r.provider.name}); err != nil {
		return nil, fmt.Errorf("looking for an import that was interrupted: %w", err)
	}
	var journals []*journal
	for i := range found.Items {
		j := &journal{object: &found.Items[i]}
		if err := json.Unmarshal([]byte(j.object.Data[journalKey]), &j.entries); err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s cannot be read: it has the claims that an import was moving when it was interrupted; restore it: %w", j.object.Namespace, j.object.Name, err)
		}
		journals = append(journals, j)
	}
	slices.SortFunc(journals, func(a, b *journal) int { return a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time) })
	return journals, nil
}

// rewrite saves the entries of a journal after some of them have changed.
func (r *run) rewrite(ctx context.Context, j *journal) error {
	text, err := json.Marshal(j.entries)
	if err != nil {
		return fmt.Errorf("writing a journal: %w", err)
	}
	before := j.object.DeepCopy()
	j.object.Data = map[string]string{journalKey: string(text)}
	if err := r.client.Patch(ctx, j.object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", j.object.Namespace, j.object.Name, err)
	}
	return nil
}

// discard deletes a journal whose entries are all done.
func (r *run) discard(ctx context.Context, j *journal) error {
	if err := client.IgnoreNotFound(r.client.Delete(ctx, j.object)); err != nil {
		return fmt.Errorf("deleting ConfigMap %s/%s, of which everything is done: %w", j.object.Namespace, j.object.Name, err)
	}
	return nil
}
