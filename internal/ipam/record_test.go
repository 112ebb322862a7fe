package ipam

import (
	"testing"
	"time"
)

func TestNextState(t *testing.T) {
	now := time.Unix(1000, 0)
	hour := now.Add(time.Hour)
	for name, c := range map[string]struct {
		record Record
		keep   Keeping
		want   Transition
	}{
		"a deleted claim's block is free": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim}, Keeping{}, Transition{Release: true},
		},
		"it cools down if the class states so": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim}, Keeping{ReuseDelay: time.Hour}, Transition{State: StateCooling, ReleaseAfter: hour},
		},
		"it goes on cooling until it is due": {
			Record{State: StateCooling, Purpose: PurposeClaim, ReleaseAfter: hour}, Keeping{ReuseDelay: time.Hour}, Transition{Again: hour},
		},
		"it is free when it is due": {
			Record{State: StateCooling, Purpose: PurposeClaim, ReleaseAfter: now}, Keeping{ReuseDelay: time.Hour}, Transition{Release: true},
		},
		"a retained block is kept for 30 days": {
			Record{State: StateBound, Reclaim: ReclaimRetain, Purpose: PurposeClaim}, Keeping{}, Transition{State: StateRetained, ReleaseAfter: now.Add(720 * time.Hour)},
		},
		"until a person deletes it": {
			Record{State: StateRetained, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Terminating: true}, Keeping{}, Transition{Release: true},
		},
		"until a person deletes it, before its period is over": {
			Record{State: StateRetained, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Terminating: true, ReleaseAfter: hour}, Keeping{Retention: time.Hour}, Transition{Release: true},
		},
		"a retained block that a person ends cools down if the class states so": {
			Record{State: StateRetained, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Terminating: true}, Keeping{ReuseDelay: time.Hour}, Transition{State: StateCooling, ReleaseAfter: hour},
		},
		"also before its period is over": {
			Record{State: StateRetained, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Terminating: true, ReleaseAfter: now.Add(time.Minute)}, Keeping{ReuseDelay: time.Hour}, Transition{State: StateCooling, ReleaseAfter: hour},
		},
		"it cools down until it is due, although it is deleted": {
			Record{State: StateCooling, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Terminating: true, ReleaseAfter: hour}, Keeping{ReuseDelay: time.Hour}, Transition{Again: hour},
		},
		"and is free then": {
			Record{State: StateCooling, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Terminating: true, ReleaseAfter: now}, Keeping{ReuseDelay: time.Hour}, Transition{Release: true},
		},
		"or for its period": {
			Record{State: StateBound, Reclaim: ReclaimRetain, Purpose: PurposeClaim}, Keeping{Retention: time.Hour}, Transition{State: StateRetained, ReleaseAfter: hour},
		},
		"after which it cools down": {
			Record{State: StateRetained, Reclaim: ReclaimRetain, Purpose: PurposeClaim, ReleaseAfter: now}, Keeping{ReuseDelay: time.Hour}, Transition{State: StateCooling, ReleaseAfter: hour},
		},
		"nothing is retained for ever": {
			Record{State: StateRetained, Reclaim: ReclaimRetain, Purpose: PurposeClaim}, Keeping{ReuseDelay: time.Hour}, Transition{State: StateRetained, ReleaseAfter: now.Add(720 * time.Hour)},
		},
		"one that was taken over for a claim that was never stored is retained again, unchanged": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim, Adopted: true, ReleaseAfter: hour}, Keeping{}, Transition{State: StateRetained, ReleaseAfter: hour},
		},
		"also when it would have been due before": {
			Record{State: StateBound, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Adopted: true, ReleaseAfter: now}, Keeping{}, Transition{State: StateRetained, ReleaseAfter: now},
		},
		"one that a claim has had is not": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim, HolderUID: "1", ReleaseAfter: hour}, Keeping{}, Transition{Release: true},
		},
		"in a namespace that is being deleted it is released": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim, ReleaseAfter: hour, Terminating: true}, Keeping{}, Transition{Release: true},
		},
		"a pool's own record that is being released is released": {
			Record{State: StateReleasing, Purpose: PurposePool}, Keeping{}, Transition{Release: true},
		},
		"in a namespace that goes away nothing is retained": {
			Record{State: StateBound, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Terminating: true}, Keeping{}, Transition{Release: true},
		},
		"a sticky block is retained for an hour": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim, Sticky: "node-1"}, Keeping{}, Transition{State: StateRetained, ReleaseAfter: hour},
		},
		"or for the period of its pool": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim, Sticky: "node-1"}, Keeping{Retention: 2 * time.Hour}, Transition{State: StateRetained, ReleaseAfter: now.Add(2 * time.Hour)},
		},
		"and for 30 days where its class retains": {
			Record{State: StateBound, Reclaim: ReclaimRetain, Purpose: PurposeClaim, Sticky: "node-1"}, Keeping{}, Transition{State: StateRetained, ReleaseAfter: now.Add(720 * time.Hour)},
		},
		"a sticky block of a namespace that goes away is free": {
			Record{State: StateBound, Reclaim: ReclaimDelete, Purpose: PurposeClaim, Sticky: "node-1", Terminating: true}, Keeping{}, Transition{Release: true},
		},
		"a pool's own CIDR is neither retained nor cooled": {
			Record{State: StateBound, Reclaim: ReclaimRetain, Purpose: PurposePool}, Keeping{ReuseDelay: time.Hour}, Transition{Release: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NextState(c.record, c.keep, now); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestKeepingPrefersClass(t *testing.T) {
	pool := &Pool{ReuseDelay: time.Hour, Retention: 2 * time.Hour}
	for name, c := range map[string]struct {
		class *Class
		pool  *Pool
		want  Keeping
	}{
		"neither":                        {nil, nil, Keeping{}},
		"the pool alone":                 {nil, pool, Keeping{ReuseDelay: time.Hour, Retention: 2 * time.Hour}},
		"the class alone":                {&Class{ReuseDelay: time.Minute, Retention: 3 * time.Hour}, nil, Keeping{ReuseDelay: time.Minute, Retention: 3 * time.Hour}},
		"the class before the pool":      {&Class{ReuseDelay: time.Minute, Retention: 3 * time.Hour}, pool, Keeping{ReuseDelay: time.Minute, Retention: 3 * time.Hour}},
		"a class that wants no delay":    {&Class{ReuseDelay: 0}, pool, Keeping{Retention: 2 * time.Hour}},
		"a class that does not state it": {&Class{ReuseDelay: -1}, pool, Keeping{ReuseDelay: time.Hour, Retention: 2 * time.Hour}},
	} {
		if got := KeepingOf(c.class, c.pool); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestJoinTexts(t *testing.T) {
	for want, texts := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}} {
		if got := JoinTexts(texts); got != want {
			t.Errorf("%q are joined to %q, want %q", texts, got, want)
		}
	}
}
