package kubeutil

import (
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestBudgetIsSpentPerNameAndRefills(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBudget(now, 2, 0.5)
	spend := func(name string) string {
		refused, ok := b.Spend(name)
		return fmt.Sprint(refused, ok)
	}
	for i, want := range []string{"0 true", "0 true", "0 false", "0 false", "0 false"} {
		if got := spend("a"); got != want {
			t.Errorf("try %d: %s, want %s", i, got, want)
		}
	}
	if got := spend("b"); got != "0 true" {
		t.Errorf("another name: %s, want its own budget", got)
	}
	now.SetTime(now.Now().Add(2 * time.Second))
	if got := spend("a"); got != "3 true" {
		t.Errorf("after a while: %s, want one more, and the 3 that were refused", got)
	}
	if got := spend("a"); got != "0 false" {
		t.Errorf("after that: %s, want nothing more", got)
	}
}

func TestBudgetNamesAreBounded(t *testing.T) {
	b := NewBudget(testclock.NewFakePassiveClock(time.Unix(0, 0)), 1, 1)
	for i := range 3 * budgetNames {
		b.Spend(fmt.Sprint(i))
	}
	if len(b.names) > budgetNames {
		t.Errorf("%d names are kept, want %d at most", len(b.names), budgetNames)
	}
}
