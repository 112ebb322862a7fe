package witness

import (
	"fmt"
	"net/netip"
)

// Answer holds the answer to a client about an object that it asked for, or asked to be deleted.
type Answer struct {
	Attempt  string
	UID      string
	Block    netip.Prefix // zero if none was named
	Revision int64        // at which it is stored, by the answer
}

// attempts holds the answers to clients, by attempt.
type attempts struct {
	answered map[string]Answer // not judged yet
	stored   map[string]stored
	never    map[string]string // why it must not be stored
	// rehearsed has the namespaces and names of claims that were dry runs.
	rehearsed map[string]bool
}

type stored struct {
	uid   string
	block netip.Prefix
}

func newAttempts() attempts {
	return attempts{answered: map[string]Answer{}, stored: map[string]stored{}, never: map[string]string{}, rehearsed: map[string]bool{}}
}

// Answered records that an attempt was answered with an object: it must be stored with the block in the
// answer.
func (w *Witness) Answered(a Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts.answered[a.Attempt] = a
	w.judgeAnswers(Event{Revision: w.revision})
}

// Never records that an attempt was refused, or was only a rehearsal: it must not be stored.
func (w *Witness) Never(attempt, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts.never[attempt] = why
	if s, ok := w.attempts.stored[attempt]; ok {
		w.violated(Event{Revision: w.revision}, fmt.Sprintf("attempt %s is stored as %s, and was %s", attempt, s.uid, why))
	}
}

// Rehearsed records that a claim of that name is but a dry run: nothing must be recorded for it.
func (w *Witness) Rehearsed(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts.rehearsed[namespace+"/"+name] = true
}

// judgeAnswers compares the answers with the stored objects, as far as these are known.
func (w *Witness) judgeAnswers(e Event) {
	if e.After != nil && e.Before == nil && e.Kind != Records && e.After.Attempt() != "" {
		attempt := e.After.Attempt()
		w.attempts.stored[attempt] = stored{e.After.Metadata.UID, e.After.Block}
		if why, ok := w.attempts.never[attempt]; ok {
			w.violated(e, fmt.Sprintf("attempt %s is stored, and was %s", attempt, why), e.After)
		}
	}
	for attempt, a := range w.attempts.answered {
		s, ok := w.attempts.stored[attempt]
		switch {
		case ok:
			if s.uid != a.UID || s.block != a.Block {
				w.violated(e, fmt.Sprintf("attempt %s was answered %s with %s, and is stored as %s with %s", attempt, a.UID, a.Block, s.uid, s.block))
			}
			delete(w.attempts.answered, attempt)
		case w.revision >= a.Revision:
			w.violated(e, fmt.Sprintf("attempt %s was answered %s with %s at revision %d, and was never stored", attempt, a.UID, a.Block, a.Revision))
			delete(w.attempts.answered, attempt)
		}
	}
}

// Unanswered returns the number of answers that could not be compared with anything yet.
func (w *Witness) Unanswered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.attempts.answered)
}
