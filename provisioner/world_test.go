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
	// conflict and unrecorded are messages of the operator about new pools: their block is in conflict, or not
	// recorded for another reason.
	conflict, unrecorded string
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
						pool.UID, pool.Spec.IPFamily = types.UID(pool.Name), v1alpha1.IPv4
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

// newWorldWithEmptyPool returns a world with a pool that is not needed any more.
func newWorldWithEmptyPool(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.demands(28, 1)
	w.settles()
	w.demands()
	w.settles()
	return w
}

// recordIn returns the record of a claim in a pool.
func recordIn(pool v1alpha1.IPPool) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}, Spec: v1alpha1.IPAllocationSpec{
		PoolRef: &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: pool.Name},
	}}
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
			if w.unrecorded != "" {
				condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonParentNotReady, w.unrecorded
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

// settles calls Reconcile until nothing is due at once, and returns the time until something is. An event
// replaces a pass that is scheduled, so the next pass must schedule it again.
func (w *world) settles() time.Duration {
	w.t.Helper()
	after := w.settlesOnce()
	if again := w.settlesOnce(); again != after {
		w.t.Errorf("the next pass is due after %v, and after an event only after %v", after, again)
	}
	return after
}

func (w *world) settlesOnce() time.Duration {
	w.t.Helper()
	for range 200 {
		before, pools := len(w.upstream.calls), len(w.pools())
		result, err := w.pass()
		must(w.t, err)
		keys, err := w.controller.keys.list(w.t.Context())
		must(w.t, err)
		isBusy := slices.ContainsFunc(slices.Collect(maps.Values(keys)), func(e entry) bool { return e.State == provisioning })
		hasEvent := len(w.pools()) < pools
		if result.RequeueAfter != time.Millisecond && !hasEvent && (!isBusy || len(w.upstream.calls) == before) {
			return result.RequeueAfter
		}
	}
	w.t.Fatal("it does not settle")
	return 0
}

// hasNoKeys expects the ConfigMap to be empty.
func (w *world) hasNoKeys() {
	w.t.Helper()
	if entries, err := w.controller.keys.list(w.t.Context()); err != nil || len(entries) > 0 {
		w.t.Errorf("the keys are %v, %v, want none", entries, err)
	}
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
