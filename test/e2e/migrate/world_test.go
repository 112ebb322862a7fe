package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/migrate"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// size returns how many addresses are in use.
func size(t *testing.T) int {
	usual := 5000
	if testing.Short() {
		usual = 150
	}
	return suite.Setting(t, "MOVEIN_ADDRESSES", usual, strconv.Atoi)
}

// world holds a cluster with Cluster API and Cadastre.
type world struct {
	*suite.World
	dice *rand.Rand
}

func start(t *testing.T) *world {
	seed := suite.Seed(t, "SEED", 1)
	t.Logf("SEED=%d", seed)
	w := &world{
		World: suite.Start(t, cluster.Options{ClusterAPI: true, ControllerManager: true, Managers: 2, ManagerArgs: []string{"--orphan-grace=5s"}}),
		dice:  rand.New(rand.NewPCG(seed, 0)),
	}
	w.Patience = 5 * time.Minute
	return w
}

// handOut makes claims with addresses, as Metal3 would have.
func (w *world) handOut(pool *unstructured.Unstructured, addrs map[string]netip.Addr) {
	w.Helper()
	group, ctx := errgroup.WithContext(w.Context())
	group.SetLimit(16)
	for name, addr := range addrs {
		group.Go(func() error {
			claim := build.AddressClaim(pool.GetNamespace(), name).From(metal3Group, "IPPool", pool.GetName()).Finalizer(metal3Claim).Label("app", name).Obj()
			if err := w.Create(ctx, claim); err != nil {
				return err
			}
			address := addressFor(claim, pool, addr.String())
			if err := w.Create(ctx, address); err != nil {
				return err
			}
			before := claim.DeepCopy()
			claim.Status.AddressRef.Name = address.Name
			return w.Status().Patch(ctx, claim, client.MergeFrom(before))
		})
	}
	suite.Must(w, group.Wait())
}

// addressFor returns the IPAddress that Metal3 makes for a claim.
func addressFor(claim *ipamv1.IPAddressClaim, pool *unstructured.Unstructured, addr string) *ipamv1.IPAddress {
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: pool.GetName() + "-" + strings.ReplaceAll(addr, ".", "-"), Finalizers: []string{metal3Address},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: metal3Version, Kind: "IPPool", Name: pool.GetName(), UID: pool.GetUID()},
				{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim", Name: claim.Name, UID: claim.UID},
			},
		},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, Address: addr, Prefix: new(int32(16)), Gateway: "10.0.0.1",
			PoolRef: ipamv1.IPPoolReference{APIGroup: metal3Group, Kind: "IPPool", Name: pool.GetName()}, // the claim may name another group
		},
	}
}

// claims returns all claims of Cluster API, and the method below all addresses.
func (w *world) claims() []ipamv1.IPAddressClaim {
	w.Helper()
	all := &ipamv1.IPAddressClaimList{}
	suite.Must(w, w.List(w.Context(), all))
	return all.Items
}

func (w *world) addresses() []ipamv1.IPAddress {
	w.Helper()
	all := &ipamv1.IPAddressList{}
	suite.Must(w, w.List(w.Context(), all))
	return all.Items
}

// hasAddress waits until a claim has its address. It reads that claim alone: to list all over and
// over would take time from the provider.
func (w *world) hasAddress(key client.ObjectKey) {
	w.Helper()
	w.AwaitUnlessFailed(key.String()+" has its address", func(ctx context.Context) (bool, error) {
		claim := &ipamv1.IPAddressClaim{}
		if err := w.Get(ctx, key, claim); err != nil || claim.Status.AddressRef.Name == "" {
			return false, err
		}
		return true, w.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: claim.Status.AddressRef.Name}, &ipamv1.IPAddress{})
	})
}

// held returns the address of each claim: that of the IPAddress that its status names.
func (w *world) held() map[client.ObjectKey]string {
	w.Helper()
	byName := map[client.ObjectKey]string{}
	for _, address := range w.addresses() {
		byName[client.ObjectKeyFromObject(&address)] = address.Spec.Address
	}
	held := map[client.ObjectKey]string{}
	for _, claim := range w.claims() {
		if name := claim.Status.AddressRef.Name; name != "" {
			held[client.ObjectKeyFromObject(&claim)] = byName[client.ObjectKey{Namespace: claim.Namespace, Name: name}]
		}
	}
	return held
}

// keptAddresses fails the test if a claim has lost its address, has another one, or two have the
// same.
func (w *world) keptAddresses(before map[client.ObjectKey]string) {
	w.Helper()
	now := w.held()
	lost := 0
	for claim, address := range before {
		if now[claim] != address {
			if lost++; lost < 10 {
				w.Errorf("%s had %s and has %q", claim, address, now[claim])
			}
		}
	}
	if lost > 0 {
		w.Fatalf("%d of %d claims do not have their address", lost, len(before))
	}
	holders := map[string]string{}
	for _, address := range w.addresses() {
		key := client.ObjectKeyFromObject(&address).String()
		if other := holders[address.Spec.Address]; other != "" {
			w.Fatalf("%s belongs to %s and to %s", address.Spec.Address, other, key)
		}
		holders[address.Spec.Address] = key
	}
}

// allFrom fails the test unless all claims, and IPAddresses, of a namespace name pools of the
// group.
func (w *world) allFrom(group string, finalizer string) {
	w.Helper()
	for _, claim := range w.claims() {
		if claim.Spec.PoolRef.APIGroup != group {
			w.Fatalf("%s names %v", client.ObjectKeyFromObject(&claim), claim.Spec.PoolRef)
		}
		if slices.Contains(claim.Finalizers, finalizer) {
			w.Fatalf("%s has the finalizer %s", client.ObjectKeyFromObject(&claim), finalizer)
		}
	}
	for _, address := range w.addresses() {
		if address.Spec.PoolRef.APIGroup != group {
			w.Fatalf("IPAddress %s names %v", client.ObjectKeyFromObject(&address), address.Spec.PoolRef)
		}
	}
}

// recorded waits until an IPAllocation exists for each IPAddress, and for no other block of a pool.
func (w *world) recorded() {
	w.Helper()
	var recorded, held []string
	w.Cleanup(func() {
		if w.Failed() {
			w.Log("recorded blocks (-), IPAddresses (+)", cmp.Diff(recorded, held))
		}
	})
	w.Await("every IPAddress is recorded, and nothing else", func(ctx context.Context) bool {
		all := &v1alpha1.IPAllocationList{}
		suite.Must(w, w.List(ctx, all))
		recorded, held = nil, nil
		for _, record := range all.Items {
			if record.Spec.Purpose == v1alpha1.PurposeClaim {
				recorded = append(recorded, record.Spec.CIDR)
			}
		}
		for _, address := range w.addresses() {
			held = append(held, address.Spec.Address+"/32")
		}
		slices.Sort(recorded)
		slices.Sort(held)
		return slices.Equal(recorded, held)
	})
}

// ready waits until all claims are ready.
func (w *world) ready() {
	w.Helper()
	w.Await("all claims are ready", func(context.Context) bool {
		return !slices.ContainsFunc(w.claims(), func(claim ipamv1.IPAddressClaim) bool {
			return !conditions.IsTrue(&claim, ipamv1.IPAddressClaimReadyCondition) && claim.DeletionTimestamp.IsZero()
		})
	})
}

// pauseCluster pauses a Cluster, or ends that.
func (w *world) pauseCluster(namespace, name string, paused bool) {
	w.Helper()
	c := &clusterv1.Cluster{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, c))
	before := c.DeepCopy()
	c.Spec.Paused = new(paused)
	suite.Must(w, w.Patch(w.Context(), c, client.MergeFrom(before)))
}

// witness watches IPAddresses until the test ends, and fails it when two claims have the same
// address.
func (w *world) witness() {
	w.Helper()
	list := &ipamv1.IPAddressList{}
	suite.Must(w, w.List(w.Context(), list))
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	events, err := w.Watch(ctx, &ipamv1.IPAddressList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	suite.Must(w, err)
	var done sync.WaitGroup
	live := map[string]map[string]bool{}
	see := func(address *ipamv1.IPAddress, gone bool) {
		claims := live[address.Spec.Address]
		if claims == nil {
			claims = map[string]bool{}
			live[address.Spec.Address] = claims
		}
		claim := address.Namespace + "/" + address.Spec.ClaimRef.Name
		if claims[claim] = true; gone {
			delete(claims, claim)
		}
		if len(claims) > 1 {
			w.Errorf("%s was that of several claims at one moment: %v", address.Spec.Address, claims)
		}
	}
	for i := range list.Items {
		see(&list.Items[i], false)
	}
	done.Go(func() {
		for event := range events.ResultChan() {
			if address, ok := event.Object.(*ipamv1.IPAddress); ok {
				see(address, event.Type == watch.Deleted)
			} else if ctx.Err() == nil {
				w.Errorf("the witness sees no more: %v", event.Object)
			}
		}
	})
	w.Cleanup(func() {
		cancel()
		events.Stop()
		done.Wait()
	})
}

// errCrash ends a run as if its process had been killed.
var errCrash = errors.New("crash")

// crashing returns a client whose process ends with a write: before it, or before its answer.
func (w *world) crashing(limit int64, before bool, end func()) client.Client {
	var writes atomic.Int64
	write := func(do func() error) error {
		n := writes.Add(1)
		if n < limit {
			return do()
		}
		if n == limit && !before {
			_ = do()
		}
		end()
		return errCrash
	}
	return interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(name).Patch(ctx, obj, patch, opts...) })
		},
	})
}

// command represents one of the imports.
type command func(context.Context, client.Client, migrate.Options) error

// run runs an import to its end, and returns its output.
func (w *world) run(do command, o migrate.Options) (string, error) {
	var out bytes.Buffer
	o.Out, o.Settle = &out, 2*time.Second
	begin := time.Now()
	err := do(w.Context(), w.WithWatch, o)
	w.Logf("after %s: %v\n%s", time.Since(begin).Round(time.Second), err, out.String())
	return out.String(), err
}

// done runs an import that succeeds.
func (w *world) done(do command, o migrate.Options) string {
	w.Helper()
	out, err := w.run(do, o)
	suite.Must(w, err)
	return out
}

// refused runs an import that has one problem, and lists it with a text.
func (w *world) refused(do command, o migrate.Options, listed string) {
	w.Helper()
	out, err := w.run(do, o)
	if problems, ok := errors.AsType[*migrate.ProblemsError](err); !ok || problems.Count != 1 || !strings.Contains(out, listed) {
		w.Fatalf("want one problem, with %q; got %v", listed, err)
	}
}

// interrupted runs an import and kills it at writes by chance, a few times, each later than
// the one before.
func (w *world) interrupted(do command, o migrate.Options, times, writes int) {
	w.Helper()
	for i := range times {
		limit := int64(1 + w.dice.IntN(writes*(i+1)/times))
		before := i%2 == 0
		ctx, cancel := context.WithCancel(w.Context())
		var out bytes.Buffer
		o.Out, o.Settle = &out, time.Second
		err := do(ctx, w.crashing(limit, before, cancel), o)
		cancel()
		w.Logf("killed at write %d, before %t: %v", limit, before, err)
		if err == nil {
			return // it was done
		}
	}
}

// metal3Object makes an object of one of Metal3's kinds.
func (w *world) metal3Object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	w.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(metal3Version)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	w.Created(obj)
	return obj
}

// metal3Pool makes a pool of Metal3.
func (w *world) metal3Pool(namespace, name, start, end string, preAllocations map[string]any) *unstructured.Unstructured {
	w.Helper()
	return w.metal3Object("IPPool", namespace, name, map[string]any{
		"namePrefix": name, "prefix": int64(16), "gateway": "10.0.0.1",
		"pools":          []any{map[string]any{"start": start, "end": end}},
		"preAllocations": preAllocations,
	})
}

// addrs returns n addresses from one on, by names with a prefix.
func addrs(prefix, first string, n int) map[string]netip.Addr {
	all := map[string]netip.Addr{}
	addr := netip.MustParseAddr(first)
	for i := range n {
		all[fmt.Sprintf("%s-%d", prefix, i)] = addr
		addr = addr.Next()
	}
	return all
}

// noJournals fails the test if an import has left one.
func (w *world) noJournals() {
	w.Helper()
	all := &corev1.ConfigMapList{}
	suite.Must(w, w.List(w.Context(), all, client.HasLabels{"ipam.cadastre.dev/import-journal"}))
	if len(all.Items) > 0 {
		w.Fatalf("%d journals are left", len(all.Items))
	}
}
