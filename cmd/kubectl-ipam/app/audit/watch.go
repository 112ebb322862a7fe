package audit

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Options holds the limits for operations that are under way.
type Options struct {
	// Grace is the longest time that a record may be without a holder, or past its time.
	Grace time.Duration
	// Settle is the time for which anything must stay wrong to be reported.
	Settle time.Duration
}

// Watch reads and judges snapshots until nothing is wrong any more, or something has been wrong
// for Options.Settle. It returns the last snapshot, the findings that are in all snapshots, and
// the notes on the last.
func Watch(ctx context.Context, read func(context.Context) (*Snapshot, error), o Options) (last *Snapshot, findings []Finding, underWay int, err error) {
	first := true
	var until time.Time
	var notes []Finding
	look := func(ctx context.Context) (done bool, err error) {
		if last, err = read(ctx); err != nil {
			return false, err
		}
		var found []Finding
		found, underWay = Judge(last, o.Grace)
		wrong := slices.IndexFunc(found, func(f Finding) bool { return f.IsNote() })
		if wrong < 0 {
			wrong = len(found)
		}
		found, notes = found[:wrong], found[wrong:] // the notes come last, and need not stay
		if first {
			first, findings, until = false, found, last.Now.Add(o.Settle)
		} else {
			findings = Both(found, findings)
		}
		return len(findings) == 0 || !last.Now.Before(until), nil
	}
	pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 100, Cap: 4 * time.Second}
	err = pause.DelayFunc().Until(ctx, true, true, look)
	return last, append(findings, notes...), underWay, err
}
