package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

const (
	ourName   = "ipam.example.com/ranges"
	className = "leased"
)

// world holds a controller with an API server, an operator that records pools, and a system that has
// 16 ranges of /24.
type world struct {
	t          *testing.T
	store      client.WithWatch
	clock      *testclock.FakeClock
	controller *controller
	upstream   *upstream
	// fails is called before and after each write of the API server and each call of the upstream, and
	// returns the error of one that is cut off.
	fails func(what string) error
	// refuses returns the error with which the API server refuses a pool.
	refuses func(pool *v1alpha1.IPPool) error
	// isInUse reports whether the API server refuses to delete a pool, and isBehind whether the cache shows
	// no pool.
	isInUse, isBehind bool
	// conflict is the message of the operator about new pools whose block is in conflict.
	conflict string
	// recorded has the pools of which a record is left.
	recorded map[string]bool
}

// upstream is the system that the ranges are from.
type upstream struct {
	world  *world
	ranges map[string]netip.Prefix
	calls  []string
	// provides replaces Provision.
	provides func(Request) (netip.Prefix, error)
}

func (u *upstream) Provision(_ context.Context, r Request) (netip.Prefix, error) {
	u.calls = append(u.calls, "provision "+r.Range.String())
	if err := u.world.fails("before Provision"); err != nil {
		return netip.Prefix{}, err
	}
	if u.provides != nil {
		return u.provides(r)
	}
	if _, ok := u.ranges[r.Key]; !ok {
		block, err := u.free(r.Range)
		if err != nil {
			return netip.Prefix{}, err
		}
		u.ranges[r.Key] = block
	}
	return u.ranges[r.Key], u.world.fails("after Provision")
}

func (u *upstream) free(wanted netip.Prefix) (netip.Prefix, error) {
	inUse := slices.Collect(maps.Values(u.ranges))
	for i := range 16 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i)}), 24)
		if !slices.Contains(inUse, block) && (!wanted.IsValid() || wanted == block) {
			return block, nil
		}
	}
	return netip.Prefix{}, errors.New("no range is left")
}

func (u *upstream) Release(_ context.Context, key string) error {
	u.calls = append(u.calls, "release")
	if err := u.world.fails("before Release"); err != nil {
		return err
	}
	name := strings.TrimPrefix(key, "uid.")
	if pool := (&v1alpha1.IPPool{}); u.world.store.Get(context.Background(), client.ObjectKey{Name: name}, pool) == nil && !isUnopened(pool) {
		u.world.t.Errorf("the range of pool %s is returned while the pool is open", name)
	}
	if u.world.recorded[name] {
		u.world.t.Errorf("the range of pool %s is returned while a record of it is left", name)
	}
	delete(u.ranges, key)
	return u.world.fails("after Release")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, clock: testclock.NewFakeClock(time.Unix(1000, 0)), recorded: map[string]bool{},
		fails: func(string) error { return nil }, refuses: func(*v1alpha1.IPPool) error { return nil },
	}
	w.upstream = &upstream{world: w, ranges: map[string]netip.Prefix{}}
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	must(t, corev1.AddToScheme(scheme))
	wrap := func(what string, do func() error) error {
		if err := w.fails("before " + what); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		return w.fails("after " + what)
	}
	w.store = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.IPClass{}, &v1alpha1.IPPool{}).
		WithIndex(&v1alpha1.IPAllocation{}, "spec.poolRef.name", func(o client.Object) []string {
			if ref := o.(*v1alpha1.IPAllocation).Spec.PoolRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}).
		WithIndex(&v1alpha1.IPAllocation{}, "spec.claimRef.name", func(o client.Object) []string { return []string{o.(*v1alpha1.IPAllocation).Spec.ClaimRef.Name} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				return wrap("Create", func() error {
					if pool, ok := obj.(*v1alpha1.IPPool); ok {
						if err := w.refuses(pool); err != nil {
							return err
						}
						pool.UID = types.UID(pool.Name)
					}
					return to.Create(ctx, obj, opts...)
				})
			},
			Update: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
				return wrap("Update", func() error { return to.Update(ctx, obj, opts...) })
			},
			Patch: func(ctx context.Context, to client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return wrap("Patch", func() error { return to.Patch(ctx, obj, patch, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, to client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				return wrap("Patch of the status", func() error { return to.SubResource(sub).Patch(ctx, obj, patch, opts...) })
			},
			Delete: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				return wrap("Delete", func() error {
					if pool, ok := obj.(*v1alpha1.IPPool); ok && w.isInUse {
						return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("ippools").GroupResource(), pool.Name, errors.New("in use"))
					}
					return to.Delete(ctx, obj, opts...)
				})
			},
		}).Build()
	w.restart()
	w.create(&v1alpha1.IPClass{
		ObjectMeta: metav1.ObjectMeta{Name: className},
		Spec: v1alpha1.IPClassSpec{
			Provisioner: ourName, IPFamily: v1alpha1.IPv4, DefaultPrefixLength: new(int32(28)),
			Parameters: map[string]string{"poolPrefixLength": "24", "maxPools": "4"},
		},
	})
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	must(w.t, w.store.Create(w.t.Context(), obj))
}

// restart replaces the process.
func (w *world) restart() {
	options, err := Options{Name: ourName, Namespace: "ranges"}.withDefaults()
	must(w.t, err)
	cached := interceptor.NewClient(w.store, interceptor.Funcs{
		List: func(ctx context.Context, from client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if w.isBehind {
				return nil
			}
			return from.List(ctx, list, opts...)
		},
	})
	w.controller = newController(w.upstream, options, cached, w.store, w.clock)
	w.controller.cluster, w.controller.events, w.controller.metrics = "uid", events.NewFakeRecorder(100), newInstruments(ourName, prometheus.NewRegistry())
}

// edit changes a stored class.
func (w *world) edit(change func(*v1alpha1.IPClass)) {
	w.t.Helper()
	class := w.class()
	change(class)
	status := class.Status
	must(w.t, w.store.Update(w.t.Context(), class))
	class.Status = status
	must(w.t, w.store.Status().Update(w.t.Context(), class))
}

func (w *world) class() *v1alpha1.IPClass {
	w.t.Helper()
	class := &v1alpha1.IPClass{}
	must(w.t, w.store.Get(w.t.Context(), client.ObjectKey{Name: className}, class))
	return class
}

// demands sets the demand: pairs of a prefix length and a number of claims.
func (w *world) demands(pairs ...int32) {
	w.t.Helper()
	w.edit(func(class *v1alpha1.IPClass) {
		class.Status.Demand = nil
		for i := 0; i < len(pairs); i += 2 {
			class.Status.Demand = append(class.Status.Demand, v1alpha1.ClassDemand{PrefixLength: pairs[i], Claims: pairs[i+1]})
		}
	})
}

// pools returns the stored pools by name.
func (w *world) pools() []v1alpha1.IPPool {
	w.t.Helper()
	list := &v1alpha1.IPPoolList{}
	must(w.t, w.store.List(w.t.Context(), list))
	return list.Items
}

// takes makes a number of addresses of a pool in use.
func (w *world) takes(pool *v1alpha1.IPPool, addresses int64, largest string) {
	w.t.Helper()
	pool.Status.Allocations = min(addresses, 1)
	pool.Status.Capacity = &v1alpha1.Capacity{Total: "256", Allocated: fmt.Sprint(addresses), Available: fmt.Sprint(256 - addresses)}
	pool.Status.LargestFreePrefix = largest
	must(w.t, w.store.Status().Update(w.t.Context(), pool))
}

// operate records the new pools, as the operator does.
func (w *world) operate() {
	w.t.Helper()
	for _, pool := range w.pools() {
		if meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionAllocated) == nil {
			condition := metav1.Condition{Type: v1alpha1.ConditionAllocated, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRecorded}
			if w.conflict != "" {
				condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonConflict, w.conflict
			}
			meta.SetStatusCondition(&pool.Status.Conditions, condition)
			w.takes(&pool, 0, "/24")
		}
	}
}

// pass calls Reconcile once.
func (w *world) pass() (reconcile.Result, error) {
	result, err := w.controller.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: className}})
	w.operate()
	return result, err
}

// settles calls Reconcile until nothing is due at once, and returns the time until something is.
func (w *world) settles() time.Duration {
	w.t.Helper()
	for range 200 {
		before := len(w.upstream.calls)
		result, err := w.pass()
		must(w.t, err)
		keys, err := w.controller.keys.list(w.t.Context())
		must(w.t, err)
		isBusy := slices.ContainsFunc(slices.Collect(maps.Values(keys)), func(e entry) bool { return e.State == provisioning })
		if result.RequeueAfter != time.Millisecond && (!isBusy || len(w.upstream.calls) == before) {
			return result.RequeueAfter
		}
	}
	w.t.Fatal("it does not settle")
	return 0
}

// passes lets time pass.
func (w *world) passes(d time.Duration) { w.clock.Step(d) }

// expects expects the number of open pools, that each range is that of a pool, and the reason of the
// condition.
func (w *world) expects(what string, open int, reason string) {
	w.t.Helper()
	var opened []string
	for _, pool := range w.pools() {
		if pool.Annotations[v1alpha1.AnnotationPaused] == "" && pool.Spec.CIDR == w.upstream.ranges["uid."+pool.Name].String() {
			opened = append(opened, pool.Name)
		}
	}
	condition := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned)
	if len(opened) != open || len(w.pools()) != open || len(w.upstream.ranges) != open || condition == nil || condition.Reason != reason || (condition.Status == metav1.ConditionTrue) != (reason == ReasonProvisioned) {
		w.t.Errorf("%s: %d of %d pools are open, with %d ranges, and the condition is %+v; want %d and %s", what, len(opened), len(w.pools()), len(w.upstream.ranges), condition, open, reason)
	}
}

func TestDemandIsMetByPools(t *testing.T) {
	w := newWorld(t)
	w.settles()
	w.expects("no demand", 0, ReasonProvisioned)
	w.demands(28, 17) // one more than a pool has
	w.settles()
	w.expects("a demand for 17 of 16 blocks", 2, ReasonProvisioned)
	for _, pool := range w.pools() {
		if pool.Labels[LabelProvisioner] != "ipam.example.com.ranges" || !slices.Equal(pool.Spec.ClassNames, []string{className}) {
			t.Errorf("the pool has labels %v and classes %v", pool.Labels, pool.Spec.ClassNames)
		}
	}
	pools := w.pools()
	w.takes(&pools[0], 256, "") // the demand is a second behind
	w.takes(&pools[1], 16, "/25")
	w.settles()
	w.expects("the pools serve it", 2, ReasonProvisioned)
	w.passes(settle)
	w.demands(25, 1)
	w.settles()
	w.expects("a pool has room", 2, ReasonProvisioned)
	w.demands(24, 1)
	w.settles()
	w.expects("no pool has a block that is large enough", 3, ReasonProvisioned)
	w.demands(24, 1, 26, 100)
	w.passes(settle)
	w.settles()
	w.expects("as many pools as there may be", 4, ReasonMaxPools)
	w.demands(23, 1)
	w.settles()
	w.expects("a block that is larger than a pool", 4, ReasonBlockTooLarge)
}

func TestSpareRoomIsKept(t *testing.T) {
	w := newWorld(t)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["spare"] = "8" })
	w.settles()
	w.expects("8 spare blocks", 1, ReasonProvisioned)
	pools := w.pools()
	w.passes(settle)
	w.takes(&pools[0], 144, "/25") // 7 are left
	w.settles()
	w.expects("7 are left", 2, ReasonProvisioned)
}

func TestEmptyPoolIsReturned(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 17)
	w.settles()
	pools := w.pools()
	w.takes(&pools[0], 16, "/25")
	w.demands()
	w.passes(settle)
	if after := w.settles(); after != 10*time.Minute-settle {
		t.Errorf("the next pass is due after %v, want that of the confirmation", after)
	}
	w.passes(9 * time.Minute)
	w.settles()
	w.expects("before it is due", 2, ReasonProvisioned)
	w.passes(time.Minute)
	w.settles()
	w.expects("the empty one", 1, ReasonProvisioned)
	if left := w.pools()[0].Name; left != pools[0].Name {
		t.Errorf("pool %s is left, want the one in use, %s", left, pools[0].Name)
	}
	w.takes(&w.pools()[0], 0, "/24")
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["spare"] = "1" })
	w.settles()
	w.passes(time.Hour)
	w.settles()
	w.expects("the last one is spare", 1, ReasonProvisioned)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Provisioner = "another.example.com/x" })
	w.settles()
	if len(w.pools())+len(w.upstream.ranges) > 0 {
		t.Errorf("the class has another provisioner, and %d pools with %d ranges are left", len(w.pools()), len(w.upstream.ranges))
	}
}

// TestRangeIsReturnedAfterPoolAndRecords expects the order of a release, also if a user removes the pool.
func TestRangeIsReturnedAfterPoolAndRecords(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.settles()
	pool := w.pools()[0]
	record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}, Spec: v1alpha1.IPAllocationSpec{
		PoolRef: &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: pool.Name},
	}}
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
		w, step, name := newWorld(t), 0, ""
		w.fails = func(what string) error {
			if step++; step == cut+1 {
				name = what
			}
			if name != "" {
				return fmt.Errorf("the process ends %s", name)
			}
			return nil
		}
		again := func() {
			name, w.fails = "", func(string) error { return nil }
			w.restart()
		}
		play := func(act func()) {
			act()
			for range 30 {
				if _, err := w.pass(); err != nil || name != "" {
					again()
				}
				w.passes(firstRetry)
			}
		}
		setup := w.fails
		w.fails = func(string) error { return nil }
		w.demands(28, 1)
		w.fails = setup
		play(func() {})
		w.expects(fmt.Sprintf("cut %d %s", cut, name), 1, ReasonProvisioned)
		if t.Failed() {
			t.FailNow()
		}
		setup, w.fails = w.fails, func(string) error { return nil }
		w.demands()
		w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["releaseAfter"] = "10s" })
		w.fails = setup
		play(func() {})
		w.expects(fmt.Sprintf("cut %d %s", cut, name), 0, ReasonProvisioned)
		if t.Failed() {
			t.FailNow()
		}
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
			w.settles()
			w.passes(settle)
			w.settles()
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
		w.settles()
		w.expects(at, 0, ReasonProvisioned)
	}
}

// TestFailedCallIsRepeatedWithBackOff expects the condition to state the cause, few calls, and no harm to
// the pools that are there.
func TestFailedCallIsRepeatedWithBackOff(t *testing.T) {
	conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("ippools").GroupResource(), "p", errors.New("10.0.1.0/24 conflicts with 10.0.0.0/8"))
	for name, tc := range map[string]struct {
		provides func(Request) (netip.Prefix, error)
		refuses  error
		reason   string
		message  string
	}{
		"it fails":          {func(Request) (netip.Prefix, error) { return netip.Prefix{}, errors.New("the system is away") }, nil, ReasonProvisionFailed, "the system is away"},
		"no range":          {func(Request) (netip.Prefix, error) { return netip.Prefix{}, nil }, nil, ReasonProvisionFailed, "correct the provisioner"},
		"another length":    {func(Request) (netip.Prefix, error) { return netip.MustParsePrefix("10.0.1.0/25"), nil }, nil, ReasonProvisionFailed, "10.0.1.0/25 for an IPv4 range of /24"},
		"another family":    {func(Request) (netip.Prefix, error) { return netip.MustParsePrefix("2001:db8::/24"), nil }, nil, ReasonProvisionFailed, "correct the provisioner"},
		"not a range":       {func(Request) (netip.Prefix, error) { return netip.MustParsePrefix("10.0.1.1/24"), nil }, nil, ReasonProvisionFailed, "correct the provisioner"},
		"one that overlaps": {nil, conflict, ReasonPoolRefused, "is returned, as its pool is refused: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.demands(28, 16)
			w.settles()
			w.demands(28, 32)
			before := len(w.upstream.calls)
			w.upstream.provides = tc.provides
			w.refuses = func(*v1alpha1.IPPool) error { return tc.refuses }
			for range 600 { // a minute, with a change of the class or a pool each 100 ms
				w.settles()
				w.passes(100 * time.Millisecond)
			}
			w.expects("while it fails", 1, tc.reason)
			if message := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned).Message; !strings.Contains(message, tc.message) {
				t.Errorf("the condition has the message %q, want %q", message, tc.message)
			}
			provisions := 0
			for _, call := range w.upstream.calls[before:] {
				if strings.HasPrefix(call, "provision") {
					provisions++
				}
			}
			if provisions < 5 || provisions > 7 {
				t.Errorf("it is called %d times in a minute, want 6: after 0, 1, 3, 7, 15 and 31 s", provisions)
			}
			w.upstream.provides, w.refuses = nil, func(*v1alpha1.IPPool) error { return nil }
			w.passes(lastRetry)
			w.settles()
			w.expects("when it succeeds", 2, ReasonProvisioned)
		})
	}
}

// TestRangesAreConfirmed expects Provision to be called with the range of each pool at start, and
// again after a while, and a pool whose range is lost to stay.
func TestRangesAreConfirmed(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 32)
	w.settles()
	w.upstream.calls, w.upstream.ranges = nil, map[string]netip.Prefix{} // it is restored from a backup
	w.settles()
	if len(w.upstream.calls) > 0 {
		t.Errorf("called %v before it is due", w.upstream.calls)
	}
	w.restart()
	w.settles()
	w.expects("after a restart", 2, ReasonProvisioned)
	w.upstream.calls, w.upstream.ranges = nil, map[string]netip.Prefix{"other": netip.MustParsePrefix("10.0.0.0/24")}
	w.passes(10 * time.Minute)
	w.settles()
	if calls := slices.Sorted(slices.Values(w.upstream.calls)); !slices.Equal(calls, []string{"provision 10.0.0.0/24"}) && !slices.Equal(calls, []string{"provision 10.0.0.0/24", "provision 10.0.1.0/24"}) {
		t.Errorf("called %v", calls)
	}
	for range 2 { // the first one again, then the other
		w.passes(firstRetry)
		w.settles()
	}
	if condition := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned); condition.Reason != ReasonRangeLost || len(w.pools()) != 2 || len(w.upstream.ranges) != 2 {
		t.Errorf("with a lost range, there are %d pools and ranges %v, and the condition is %+v", len(w.pools()), w.upstream.ranges, condition)
	}
}

func TestLostKeysAreTakenFromPools(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 16)
	w.settles()
	must(t, w.store.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ranges", Name: "provisioner-ipam.example.com.ranges"}}))
	w.settles()
	w.expects("with the keys of its pools", 1, ReasonProvisioned)
	if entries, err := w.controller.keys.list(t.Context()); err != nil || len(entries) != 1 {
		t.Errorf("the keys are %v, %v", entries, err)
	}
	pool := w.pools()[0]
	pool.Annotations = map[string]string{v1alpha1.AnnotationPaused: "by a user"}
	must(t, w.store.Update(t.Context(), &pool))
	w.passes(settle)
	w.settles()
	for _, pool := range w.pools() {
		if paused := pool.Annotations[v1alpha1.AnnotationPaused]; pool.Name == w.pools()[0].Name && paused != "by a user" && len(w.pools()) != 2 {
			t.Errorf("of %d pools, the one that a user paused has %q", len(w.pools()), paused)
		}
	}
}

func TestInvalidParameterIsNamed(t *testing.T) {
	for want, edit := range map[string]func(map[string]string){
		"parameters.poolPrefixLength is missing: set it to the prefix length of each pool": func(p map[string]string) { delete(p, "poolPrefixLength") },
		`parameters.poolPrefixLength is "33": set it to a number from 1 to 32`:             func(p map[string]string) { p["poolPrefixLength"] = "33" },
		`parameters.poolPrefixLength is "/24": set it to a number from 1 to 32`:            func(p map[string]string) { p["poolPrefixLength"] = "/24" },
		`parameters.spare is "-1": set it to a number from 0 to 1048576`:                   func(p map[string]string) { p["spare"] = "-1" },
		`parameters.maxPools is "0": set it to a number from 1 to 1024`:                    func(p map[string]string) { p["maxPools"] = "0" },
		`parameters.releaseAfter is "10": set it to a duration of 0 or more, such as 10m`:  func(p map[string]string) { p["releaseAfter"] = "10" },
		`parameters.releaseAfter is "-1s": set it to a duration of 0 or more, such as 10m`: func(p map[string]string) { p["releaseAfter"] = "-1s" },
	} {
		w := newWorld(t)
		w.demands(28, 1)
		w.edit(func(class *v1alpha1.IPClass) { edit(class.Spec.Parameters) })
		w.settles()
		w.expects(want, 0, ReasonInvalidParameters)
		if message := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned).Message; message != want {
			t.Errorf("got  %s\nwant %s", message, want)
		}
	}
}

func TestRangeInConflictIsReturned(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.conflict = "10.0.0.0/24 conflicts with 10.0.0.0/8"
	w.settles()
	w.expects("in conflict", 0, ReasonPoolRefused)
	w.conflict = ""
	w.passes(lastRetry)
	w.settles()
	w.expects("later", 1, ReasonProvisioned)
}

// TestPoolThatIsTakenAtLastMomentStays expects a pool to go on if the API server refuses to delete it.
func TestPoolThatIsTakenAtLastMomentStays(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.settles()
	w.demands()
	w.settles()
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

// TestFailingSystemIsAskedForOneRange expects one key while the system fails, however large the demand is,
// and none after the demand has gone.
func TestFailingSystemIsAskedForOneRange(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1000)
	w.upstream.provides = func(Request) (netip.Prefix, error) { return netip.Prefix{}, errors.New("away") }
	for range 5 {
		w.settles()
		w.passes(time.Minute)
	}
	if entries, err := w.controller.keys.list(t.Context()); err != nil || len(entries) != 1 {
		t.Errorf("the keys are %v, %v", entries, err)
	}
	w.demands()
	w.settles()
	w.expects("without demand", 0, ReasonProvisioned)
	if entries, err := w.controller.keys.list(t.Context()); err != nil || len(entries) > 0 {
		t.Errorf("the keys are %v, %v", entries, err)
	}
}

func TestPassEndsItsCallsWithFirstFailure(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 48)
	w.settles()
	w.restart()
	w.upstream.calls = nil
	w.upstream.provides = func(Request) (netip.Prefix, error) { return netip.Prefix{}, errors.New("away") }
	if _, err := w.pass(); err != nil || len(w.upstream.calls) != 1 {
		t.Errorf("%d calls were made, %v; each may take 30 s", len(w.upstream.calls), err)
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

// TestPoolOfAnotherClassIsNotAdopted covers a pool whose creator labels it like those of a provisioner:
// Provision would take its range.
func TestPoolOfAnotherClassIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Provisioner = "another.example.com/x" })
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{LabelProvisioner: "ipam.example.com.ranges"}}}
	pool.Spec.CIDR, pool.Spec.ClassNames = "10.0.9.0/24", []string{className}
	w.create(pool)
	w.passes(time.Hour)
	w.settles()
	if entries, err := w.controller.keys.list(t.Context()); err != nil || len(entries)+len(w.upstream.calls) > 0 || len(w.pools()) != 1 {
		t.Errorf("the keys are %v, %v, the calls are %v, and %d pools are left", entries, err, w.upstream.calls, len(w.pools()))
	}
}

func TestKeyIsChangedOnlyIfAsExpected(t *testing.T) {
	k := newWorld(t).controller.keys
	first, second := entry{Class: className, PrefixLength: 24, State: provisioning}, entry{Class: className, PrefixLength: 24, State: ready}
	for i, step := range []struct {
		expected, next *entry
		stale          bool
	}{
		{&first, &second, true}, {nil, &first, false}, {nil, &first, true}, {&second, &first, true}, {&first, &second, false}, {&first, nil, true}, {&second, nil, false}, {&second, nil, true},
	} {
		if err := k.change(t.Context(), "p", step.expected, step.next); errors.Is(err, errStale) != step.stale || err != nil && !step.stale {
			t.Errorf("step %d: got %v, stale should be %t", i, err, step.stale)
		}
	}
}
