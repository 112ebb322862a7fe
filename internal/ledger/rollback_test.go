package ledger

import (
	"errors"
	"testing"
)

// TestRollbackDropsConfirmations records x while y has the block, and confirms
// it when y is gone. The store goes back to a revision with both: the block is y's, and x is not
// confirmed.
func TestRollbackDropsConfirmations(t *testing.T) {
	x, y := allocation("x", "x", "6", "10.0.0.0/28"), allocation("y", "y", "5", "10.0.0.0/28")
	gone := y.DeepCopy()
	gone.ResourceVersion = "7"
	for name, noticed := range map[string]func(*Ledger){
		"as a watch has shown":                       func(l *Ledger) { l.onRollback("7", "6") },
		"as the list shows, of a higher revision":    func(*Ledger) {},
		"as a watch has shown, and events come late": func(l *Ledger) { l.onRollback("7", "6"); must(t, feed{l}.Delete(gone)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			must(t, feed{l}.Replace(recordList(y), "5"))
			must(t, errors.Join(feed{l}.Add(x), feed{l}.Delete(gone)))
			record, _ := l.Record(ask("x").Record)
			must(t, l.CheckConfirmed(record))
			noticed(l)
			must(t, feed{l}.Replace(recordList(x, y), "9"))
			if err := l.CheckConfirmed(record); err == nil {
				t.Error("the record is confirmed that was made second")
			}
			if n := l.Rollbacks(); n != 1 {
				t.Errorf("counted %d times", n)
			}
		})
	}
}

func TestListOfSameStoreKeepsConfirmations(t *testing.T) {
	l := newLedger(1)
	x, y := allocation("x", "x", "6", "10.0.0.0/28"), allocation("y", "y", "7", "10.0.0.0/28")
	must(t, feed{l}.Replace(recordList(), "5"))
	must(t, feed{l}.Add(x))
	must(t, feed{l}.Replace(recordList(x, y), "8"))
	record, _ := l.Record(ask("x").Record)
	if err := l.CheckConfirmed(record); err != nil || l.Rollbacks() != 0 {
		t.Errorf("got %v, and %d rollbacks", err, l.Rollbacks())
	}
}

func TestEventsOfAbandonedHistoryAreIgnored(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "5"))
	ended := false
	l.relist = func() { ended = true }
	l.onRollback("5", "4")
	must(t, feed{l}.Add(allocation("x", "x", "6", "10.0.0.0/28")))
	if _, ok := l.Record(ask("x").Record); ok || !ended {
		t.Errorf("the record is shown: %t; the watch ended: %t", ok, ended)
	}
}
