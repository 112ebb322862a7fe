package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

func TestReplicaEndsWithinTerminationGracePeriod(t *testing.T) {
	text, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal(text, &deployment); err != nil {
		t.Fatal(err)
	}
	grace := deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
	if grace == nil || shutdownTimeout > time.Duration(*grace)*time.Second-2*time.Second {
		t.Errorf("it ends within %s, want at least 2 s less than terminationGracePeriodSeconds of its Pod", shutdownTimeout)
	}
}

func TestCacheResyncsAtPeriod(t *testing.T) {
	conn, err := connect(&rest.Config{Host: "https://127.0.0.1:1"})
	suite.Must(t, err)
	for flag, want := range map[string]*time.Duration{"--sync-period=0": nil, "--sync-period=15m": new(15 * time.Minute)} {
		o := parseOptions(t, flag, "--leader-elect=false")
		guard, err := newGuard(conn.client, o, nil, newRollbacks(conn.scheme, logr.Discard()))
		suite.Must(t, err)
		options, err := managerOptions(&rest.Config{}, o, conn, &recordsFirst{}, guard)
		suite.Must(t, err)
		if got := options.Cache.SyncPeriod; ptr.Deref(got, -1) != ptr.Deref(want, -1) {
			t.Errorf("with %s the period is %v, want %v", flag, got, want)
		}
	}
}

// TestClaimsAreListedAfterRecords runs the informer of each numerous kind, first while records are listed.
func TestClaimsAreListedAfterRecords(t *testing.T) {
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	bound := &v1alpha1.IPClaim{ // as the cache keeps one
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "3b241101-e2bb-4255-8caf-4136c566a962"},
		Spec:       v1alpha1.IPClaimSpec{CIDR: "10.0.0.0/32", AllocationName: "a-1"}, Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound},
	}
	for name, c := range map[string]struct {
		obj      client.Object
		source   func(*recordsFirst) *kubeutil.StreamingSource
		isPacked bool
	}{
		"IPClaims":        {obj: bound, source: func(r *recordsFirst) *kubeutil.StreamingSource { return &r.claims }, isPacked: true},
		"IPAddressClaims": {obj: build.AddressClaim("team", "a").Obj(), source: func(r *recordsFirst) *kubeutil.StreamingSource { return &r.addressClaims }},
		"IPAddresses":     {obj: &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}, source: func(r *recordsFirst) *kubeutil.StreamingSource { return &r.addresses }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				areRecordsListed, stored, empty := atomic.Bool{}, fcache.NewFakeControllerSource(), fcache.NewFakeControllerSource()
				defer stored.Shutdown()
				defer empty.Shutdown()
				stored.Add(c.obj)
				r := &recordsFirst{areRecordsListed: areRecordsListed.Load, rollbacks: newRollbacks(scheme, logr.Discard())}
				*c.source(r) = kubeutil.StreamingSource{ListWatch: &toolscache.ListWatch{
					ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
						return stored.List(options)
					},
					WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
						return stored.Watch(options)
					},
				}}
				informer := r.newInformer(empty, c.obj, 0, toolscache.Indexers{})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { informer.RunWithContext(ctx); close(ended) }()
				defer func() { stop(); <-ended }()
				synctest.Wait()
				if informer.HasSynced() {
					t.Fatal("they are listed before the records")
				}
				areRecordsListed.Store(true)
				toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
				list := informer.GetStore().List()
				if len(list) != 1 {
					t.Fatalf("%d objects are listed, want 1", len(list))
				}
				if isUnpacked := list[0] != informer.GetStore().List()[0]; isUnpacked != c.isPacked {
					t.Errorf("each read makes a new object: %t, want %t", isUnpacked, c.isPacked)
				}
			})
		})
	}
}

func TestListAfterRecordsEndsWithItsContext(t *testing.T) {
	r := &recordsFirst{areRecordsListed: func() bool { return false }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if list, err := r.afterRecords(kubeutil.StreamingSource{}).ListWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the list is %v, %v", list, err)
	}
}

// TestCacheKeepsOnlyReadFields covers the labels and annotations of the tenants' objects: they
// can be as long as the API server stores.
func TestCacheKeepsOnlyReadFields(t *testing.T) {
	cluster := map[string]string{clusterv1.ClusterNameLabel: "fleet"}
	watched := map[string]string{clusterv1.ClusterNameLabel: "fleet", clusterv1.WatchLabel: "here"}
	pool := map[string]string{v1alpha1.LabelPool: "p", v1alpha1.LabelPoolKind: "IPPool"}
	read := map[string]string{v1alpha1.AnnotationPaused: "", v1alpha1.AnnotationSticky: "node-1", v1alpha1.AnnotationRequestedBy: "admin"}
	for name, c := range map[string]struct {
		obj          client.Object
		read, others map[string]string
	}{
		"an IPClaim":        {obj: &v1alpha1.IPClaim{}, others: cluster},
		"an IPAddressClaim": {obj: &ipamv1.IPAddressClaim{}, read: watched},
		"an IPAddress":      {obj: &ipamv1.IPAddress{}, read: pool},
		"a LocalIPPool":     {obj: &v1alpha1.LocalIPPool{}, read: map[string]string{"zone": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			labels, annotations := maps.Clone(c.others), maps.Clone(read)
			if labels == nil {
				labels = map[string]string{}
			}
			maps.Copy(labels, c.read)
			if _, ok := c.obj.(*v1alpha1.LocalIPPool); !ok {
				labels["long"] = strings.Repeat("x", 1<<10)
			}
			annotations["long"] = strings.Repeat("x", 1<<18)
			c.obj.SetLabels(labels)
			c.obj.SetAnnotations(annotations)
			c.obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
			if _, err := slimmer()(c.obj); err != nil {
				t.Fatal(err)
			}
			if got := c.obj.GetLabels(); !maps.Equal(got, c.read) {
				t.Errorf("labels are %v, want %v", got, c.read)
			}
			if got := c.obj.GetAnnotations(); !maps.Equal(got, read) {
				t.Errorf("annotations are %v, want %v", got, read)
			}
			if c.obj.GetManagedFields() != nil {
				t.Error("the managed fields are kept")
			}
		})
	}
}

// TestCacheTruncatesLongValues expects that a long value is cut: other values
// of the same length have as little meaning as the whole.
func TestCacheTruncatesLongValues(t *testing.T) {
	long := strings.Repeat("x", 1<<18)
	owners, finalizers := []metav1.OwnerReference{{UID: "1"}}, []string{"example.com/f"}
	for _, obj := range []client.Object{&v1alpha1.IPClaim{}, &v1alpha1.IPPool{}, &v1alpha1.LocalIPPool{}, &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}} {
		annotations, labels := map[string]string{}, map[string]string{}
		for key := range annotationBytes {
			annotations[key] = long
		}
		for n := range 1000 {
			labels[fmt.Sprint("label-", n)] = ""
		}
		obj.SetAnnotations(annotations)
		obj.SetLabels(labels)
		obj.SetOwnerReferences(owners)
		obj.SetFinalizers(finalizers)
		if _, err := slimmer()(obj); err != nil {
			t.Fatal(err)
		}
		for key, most := range annotationBytes {
			if value, ok := obj.GetAnnotations()[key]; !ok || len(value) != most {
				t.Errorf("%T: of %s %d bytes are kept, want %d", obj, key, len(value), most)
			}
		}
		_, isClaim := obj.(*v1alpha1.IPClaim) // one of a Cluster's network, by its annotation
		_, isAddress := obj.(*ipamv1.IPAddress)
		if len(obj.GetLabels()) > labelsOfPool || len(obj.GetOwnerReferences()) > 0 != (isAddress || isClaim) || len(obj.GetFinalizers()) == 0 {
			t.Errorf("%T: %d labels, %d owners and %d finalizers are kept", obj, len(obj.GetLabels()), len(obj.GetOwnerReferences()), len(obj.GetFinalizers()))
		}
	}
}

func TestCacheReducesTooLargeSelector(t *testing.T) {
	claim := &v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{"zone": v1alpha1.LabelValue(strings.Repeat("x", 1<<18))}}}}
	if _, err := slimmer()(claim); err != nil {
		t.Fatal(err)
	}
	if _, errs := convert.Claim(claim); len(claim.Spec.PoolSelector.MatchLabels) > 0 || len(errs) == 0 {
		t.Errorf("the cache keeps %d labels of the selector, and accepts it: %v", len(claim.Spec.PoolSelector.MatchLabels), errs)
	}
}

// TestCacheKeepsOwnersOfClusterClaimsAlone covers a patch of such a claim, which replaces its finalizers.
func TestCacheKeepsOwnersOfClusterClaimsAlone(t *testing.T) {
	for identity, want := range map[string]int{"": 0, "prod/pods/0": 1} {
		claim := &v1alpha1.IPClaim{}
		claim.Status.Phase = v1alpha1.ClaimBound
		claim.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
		claim.Finalizers, claim.OwnerReferences = []string{"a"}, []metav1.OwnerReference{{Name: "a"}}
		claim.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: identity}
		if _, err := slimmer()(claim); err != nil {
			t.Fatal(err)
		}
		if len(claim.Finalizers) != want || len(claim.OwnerReferences) != want || len(claim.Annotations) != want {
			t.Errorf("%q: %d finalizers, %d owners and the annotations %v are kept", identity, len(claim.Finalizers), len(claim.OwnerReferences), claim.Annotations)
		}
	}
}

// TestFortyLargestClaimsWaitInFiveMebibytes measures them in the cache, the queue and the
// catalog.
func TestFortyLargestClaimsWaitInFiveMebibytes(t *testing.T) {
	parts := replica.New(replica.Options{Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}}), WaitingLimit: 1000})
	heap := func() uint64 {
		var stats goruntime.MemStats
		goruntime.GC()
		goruntime.GC() // the second collection frees the objects of other tests in a sync.Pool
		goruntime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	cached, full := []any{}, 0
	for n := range 40 {
		claim := largestClaim(t, n)
		slim, err := slimmer()(claim)
		if err != nil {
			t.Fatal(err)
		}
		cached = append(cached, slim)
		request, errs := convert.Claim(claim)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if parts.Queue.MayWait("team", request) != nil {
			full++
		}
		parts.Queue.Wait(queue.Waiter{Since: time.Unix(int64(n), 0), Holder: convert.HolderOfClaim(request.Claim), Request: request})
	}
	if used := heap() - before; used > 5<<20 {
		t.Errorf("they take %.1f MiB, want 5 at most", float64(used)/(1<<20))
	} else {
		t.Logf("they take %.1f MiB", float64(used)/(1<<20))
	}
	if full == 0 {
		t.Error("none of them is beyond the bound of a namespace")
	}
	goruntime.KeepAlive(cached)
	goruntime.KeepAlive(parts)
}

// largestClaim returns a claim of the largest allowed size, as a watch decodes it.
func largestClaim(t *testing.T, n int) *v1alpha1.IPClaim {
	t.Helper()
	claim := &v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &v1alpha1.PoolSelector{}}}
	claim.Namespace, claim.Name = "team", fmt.Sprint("large-", n)
	claim.Annotations = map[string]string{"long": strings.Repeat("x", 1<<18), v1alpha1.AnnotationSticky: strings.Repeat("x", 1<<12)}
	claim.Labels = map[string]string{}
	for i := range 256 {
		claim.Labels[fmt.Sprint("label-", i)] = strings.Repeat("x", 63)
	}
	for i := range 64 {
		claim.Finalizers = append(claim.Finalizers, fmt.Sprintf("example.com/%d", i))
		claim.OwnerReferences = append(claim.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("x", 253), UID: "1"})
	}
	for term := range v1alpha1.MaxSelectorTerms {
		e := v1alpha1.PoolSelectorExpression{Key: fmt.Sprintf("%s/%02d%s", strings.Repeat("x", 60), term, strings.Repeat("x", 61)), Operator: metav1.LabelSelectorOpNotIn}
		for value := range v1alpha1.MaxSelectorValues {
			e.Values = append(e.Values, v1alpha1.LabelValue(fmt.Sprintf("%02d-%02d%s", n, value, strings.Repeat("x", 58))))
		}
		claim.Spec.PoolSelector.MatchExpressions = append(claim.Spec.PoolSelector.MatchExpressions, e)
	}
	text, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	decoded := &v1alpha1.IPClaim{}
	if err := json.Unmarshal(text, decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}
