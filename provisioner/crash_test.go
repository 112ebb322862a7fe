package provisioner

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestRangeIsReturnedAfterPoolAndRecords expects the order of a release, also if a user removes the pool.
func TestRangeIsReturnedAfterPoolAndRecords(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.settles()
	pool := w.pools()[0]
	record := recordIn(pool)
	w.create(record)
	w.recorded[pool.Name] = true
	must(t, w.store.Delete(t.Context(), &pool))
	w.demands()
	w.settles()
	if condition := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned); condition.Reason != ReasonReleaseFailed || !strings.Contains(condition.Message, "release them") {
		t.Errorf("with a record, the condition is %+v", condition)
	}
	must(t, w.store.Delete(t.Context(), record))
	w.recorded[pool.Name] = false
	w.passes(firstRetry)
	w.settles()
	w.expects("without", 0, ReasonProvisioned)
}

// TestEachCutIsRecovered cuts each step of the life of a pool off, before and after it has had its
// effect, and starts the process again.
func TestEachCutIsRecovered(t *testing.T) {
	for cut := 0; ; cut++ {
		w, step, name, last := newWorld(t), 0, "", ""
		w.fails = func(what string) error {
			if step++; step == cut+1 {
				name = what
			}
			if name != "" {
				return fmt.Errorf("the process ends %s", name)
			}
			return nil
		}
		none := func(string) error { return nil }
		play := func(prepare func(), open int) {
			cuts := w.fails
			w.fails = none
			prepare()
			w.fails = cuts
			for range 60 {
				if _, err := w.pass(); err != nil && name != "" {
					last, name, w.fails = name, "", none
					w.restart()
				}
				w.passes(firstRetry)
			}
			w.expects(fmt.Sprintf("cut %d %s", cut, last), open, ReasonProvisioned)
			if t.Failed() {
				t.FailNow()
			}
		}
		play(func() { w.demands(28, 1) }, 1)
		play(func() {
			w.demands()
			w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["releaseAfter"] = "10s" })
		}, 0)
		if step <= cut {
			if cut < 20 {
				t.Errorf("only %d steps were cut off", cut)
			}
			return
		}
	}
}

// TestProcessWithoutLeaseOpensNoPool expects that a process that does not know yet that it has lost the
// lease opens no pool whose range the next one has returned.
func TestProcessWithoutLeaseOpensNoPool(t *testing.T) {
	for _, at := range []string{"before Create", "after Create", "before Update", "before Patch"} {
		w := newWorld(t)
		w.demands(28, 1)
		if at == "before Update" || at == "before Patch" { // to write Ready, and to open the pool
			for range 2 {
				if _, err := w.pass(); err != nil {
					t.Fatal(err)
				}
				if len(w.pools()) > 0 {
					break
				}
			}
		}
		former, isInterrupted := w.controller, false
		w.fails = func(what string) error {
			if what != at || isInterrupted || what == "before Create" && len(w.upstream.ranges) == 0 {
				return nil
			}
			isInterrupted = true
			w.restart()
			w.demands()
			w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["releaseAfter"] = "0s" })
			for range 3 {
				w.settles()
				w.passes(settle)
			}
			if len(w.upstream.ranges) > 0 {
				t.Errorf("%s: the next process has not returned the range", at)
			}
			return nil
		}
		_, err := former.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: className}})
		if !isInterrupted {
			t.Fatalf("%s: it was not interrupted", at)
		}
		for _, pool := range w.pools() {
			if !isUnopened(&pool) && w.upstream.ranges["uid."+pool.Name].String() != pool.Spec.CIDR {
				t.Errorf("%s: pool %s is open without a range (%v)", at, pool.Name, err)
			}
		}
		w.passes(w.controller.options.Timeout) // the former process has got a range after it was returned
		w.settles()
		w.expects(at, 0, ReasonProvisioned)
		w.hasNoKeys()
	}
}

// TestPoolThatCannotBeDeletedIsTriedWithBackOff covers a provisioner without the right to delete pools, also
// after the class was deleted.
func TestPoolThatCannotBeDeletedIsTriedWithBackOff(t *testing.T) {
	for _, isDeleted := range []bool{false, true} {
		w := newWorldWithEmptyPool(t)
		w.passes(10 * time.Minute)
		if isDeleted {
			must(t, w.store.Delete(t.Context(), w.class()))
		}
		deletes := 0
		w.fails = func(what string) error {
			if what != "before Delete" {
				return nil
			}
			deletes++
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("ippools").GroupResource(), "p", errors.New("no right"))
		}
		for range 60 {
			w.settles()
			w.passes(time.Second)
		}
		if !isDeleted {
			w.expects("without the right", 1, ReasonReleaseFailed)
		}
		if deletes < 5 || deletes > 7 {
			t.Errorf("%d requests were made in a minute, want 6: after 0, 1, 3, 7, 15 and 31 s", deletes)
		}
	}
}

// TestPoolWithBlockIsNotDeleted covers a status that is behind, while the webhook of the operator, which
// refuses to delete such a pool, cannot be called.
func TestPoolWithBlockIsNotDeleted(t *testing.T) {
	w := newWorldWithEmptyPool(t)
	pool := w.pools()[0]
	w.create(recordIn(pool))
	w.passes(10 * time.Minute)
	w.settles()
	w.expects("with a block that the status does not count", 1, ReasonProvisioned)
	must(t, w.store.Delete(t.Context(), w.class()))
	w.settles()
	if len(w.pools()) != 1 {
		t.Error("the pool of a class that was deleted is gone, with a block in it")
	}
}

// TestTerminatingPoolIsLookedAtAgain covers a pool whose label was removed: no event shows that it is gone.
func TestTerminatingPoolIsLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.settles()
	pool := w.pools()[0]
	pool.Labels, pool.Finalizers = nil, []string{"ipam.cadastre.dev/pool"}
	must(t, w.store.Update(t.Context(), &pool))
	w.demands()
	w.settles()
	w.passes(10 * time.Minute)
	if after := w.settles(); after > time.Minute || after == 0 {
		t.Errorf("the next pass is due after %v, want a minute at most", after)
	}
}

// TestPoolThatIsTakenAtLastMomentStays expects a pool to go on if the API server refuses to delete it.
func TestPoolThatIsTakenAtLastMomentStays(t *testing.T) {
	w := newWorldWithEmptyPool(t)
	w.isInUse = true
	w.passes(10 * time.Minute)
	if _, err := w.pass(); err != nil { // decides to return it
		t.Fatal(err)
	}
	pool := w.pools()[0]
	w.takes(&pool, 1, "/25")
	w.settles()
	w.expects("in use", 1, ReasonProvisioned)
	if entries, err := w.controller.keys.list(t.Context()); err != nil || entries[pool.Name].State != ready {
		t.Errorf("the keys are %v, %v", entries, err)
	}
}

func TestPoolThatCacheDoesNotShowIsNotLost(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.settles()
	w.isBehind = true
	w.settles()
	w.isBehind = false
	w.expects("with a cache that is behind", 1, ReasonProvisioned)
}

// TestRangeThatIsLostBeforePoolIsOpenIsNotUsed covers a system that is restored, and gives the range of a new
// pool to another holder.
func TestRangeThatIsLostBeforePoolIsOpenIsNotUsed(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	if _, err := w.pass(); err != nil || len(w.pools()) != 1 {
		t.Fatalf("there are %d pools, %v", len(w.pools()), err)
	}
	w.upstream.ranges = map[string]netip.Prefix{"other": netip.MustParsePrefix(w.pools()[0].Spec.CIDR)}
	w.restart()
	w.settles()
	w.passes(lastRetry)
	w.settles()
	pools := w.pools()
	if len(pools) != 1 || isUnopened(&pools[0]) || pools[0].Spec.CIDR != "10.0.1.0/24" {
		t.Errorf("the pools are %+v, want an open one with another range", pools)
	}
}

// TestLateAnswerReleasesNoLiveRange covers a process that has lost the lease during a call of Provision,
// while the next process has opened the pool of the key.
func TestLateAnswerReleasesNoLiveRange(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	former, isInterrupted := w.controller, false
	w.fails = func(what string) error {
		if what == "after Provision" && !isInterrupted {
			isInterrupted = true
			w.restart()
			w.settles()
		}
		return nil
	}
	if _, err := former.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: className}}); err == nil || !isInterrupted {
		t.Error("the former process does not notice the next one")
	}
	w.expects("after the late answer", 1, ReasonProvisioned)
}
