package kubeutil

import (
	"context"
	"errors"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/source"
)

// syncing notes the times of its start and of the wait for it.
type syncing struct {
	name  string
	notes *[]string
	err   error
}

func (s syncing) Start(context.Context, Queue) error {
	*s.notes = append(*s.notes, s.name+" starts")
	return nil
}

func (s syncing) WaitForSync(context.Context) error {
	*s.notes = append(*s.notes, s.name+" has synced")
	return s.err
}

func TestSourceStartsAfterPreviousHasSynced(t *testing.T) {
	var notes []string
	plain := source.Func(func(context.Context, Queue) error {
		notes = append(notes, "plain starts")
		return nil
	})
	if err := OrderedSources(plain, syncing{"first", &notes, nil}, syncing{"second", &notes, nil}).Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"plain starts", "first starts", "first has synced", "second starts", "second has synced"}
	if !slices.Equal(notes, want) {
		t.Errorf("got %q, want %q", notes, want)
	}
}

func TestFailedSourceEndsStart(t *testing.T) {
	var notes []string
	failed := errors.New("no cache")
	err := OrderedSources(syncing{"first", &notes, failed}, syncing{"second", &notes, nil}).Start(t.Context(), nil)
	if !errors.Is(err, failed) || len(notes) != 2 {
		t.Errorf("got %v after %q, want %v before the second starts", err, notes, failed)
	}
}
