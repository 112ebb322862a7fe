package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// stage holds the handlers as Setup makes them, over a store in memory.
type stage struct {
	services         *services
	mutate, validate map[string]admission.Handler
	store            client.WithWatch
	replica.Replica
	// fails holds the calls to the API server that fail, such as "get Namespace", each with its
	// error, or a function that returns it.
	fails sync.Map
	// changed receives a value after the view has changed.
	changed chan struct{}
	// deletions receives the preconditions of each deletion of a claim by the webhook on Clusters.
	deletions chan metav1.Preconditions
}

// kinds lists those whose objects are sent.
var kinds = []string{"IPClaim", "IPPool", "IPClass", "LocalIPPool", "IPAddressClaim", "IPAddress", "IPAllocation", "Cluster", "InClusterIPPool", "GlobalInClusterIPPool"}

// The form of a request, beside its kind in the four lowest bits. The operation is an update, or
// else, of a validator that deletes, a deletion, or else a creation.
const (
	updating = 1 << (iota + 4)
	dry      // or, of a validator, deleting
	unentitled
	validating
)

// FuzzAdmission sends the handlers any object, as any operation: no handler may panic or answer
// with a server's error, and an allowed object can be patched.
func FuzzAdmission(f *testing.F) {
	for _, object := range []string{
		`{"metadata":{"name":"c","namespace":"team"},"spec":{}}`,
		`{"metadata":{"generateName":"c-","namespace":"team"},"spec":{"poolRef":{"kind":"IPPool","name":"p"},"prefixLength":28}}`,
		`{"metadata":{"name":"c","namespace":"team"},"spec":{"className":"gold","cidr":"10.0.0.16/28","ownerRef":{"kind":"VM"}}}`,
		`{"metadata":{"name":"c","namespace":"team"},"spec":{"poolSelector":{"matchLabels":{"zone":"a"}}}}`,
		`{"metadata":{"name":"q"},"spec":{"cidr":"10.9.0.0/16","ranges":["10.9.0.1-10.9.0.9"],"network":{"prefixLength":16,"gateway":"10.9.0.1"}}}`,
		`{"metadata":{"name":"q"},"spec":{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":26}}`,
		`{"metadata":{"name":"a","namespace":"team"},"spec":{"poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPPool","name":"p"},"address":"10.0.0.7","prefix":24}}`,
		`{"metadata":{"name":"a","finalizers":["x"],"annotations":{"ipam.cadastre.dev/address":"10.0.0.9"}},"spec":{"clusterName":"c","poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPClass","name":"gold"}}}`,
		`{"metadata":{"name":"a","labels":{"ipam.cadastre.dev/pool":"p","ipam.cadastre.dev/pool-kind":"IPPool"}},"spec":{"poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPClass","name":"gold"},"address":"::1"}}`,
		`{"metadata":{"name":"own","namespace":"team"},"spec":{"parentRef":{"kind":"LocalIPPool","name":"own"},"prefixLength":30}}`,
		`{"metadata":{"name":"g","annotations":{"ipam.cadastre.dev/is-default-class":"true"}},"spec":{"ipFamily":"IPv6","allowedPrefixLengths":{"min":1,"max":2}}}`,
		`{"metadata":{"name":"q","namespace":"team"},"spec":{"addresses":["10.0.0.1-10.0.0.9","10.0.0.16/28"],"prefix":24,"gateway":"10.0.0.1"}}`,
		`{"metadata":[],"spec":"x"}`, `[]`, `null`, `{`, `{"spec":{"prefixLength":1e99}}`, `{"metadata":{"name":7}}`,
	} {
		for how := range 16 * len(kinds) {
			f.Add(object, `{"metadata":{"name":"c"},"spec":{"cidr":"10.0.0.0/28"}}`, uint8(how%len(kinds)|how/len(kinds)<<4))
		}
	}
	s := newStage(f)
	f.Fuzz(func(t *testing.T, object, old string, how uint8) {
		kind := kinds[how%16%uint8(len(kinds))]
		handler := s.mutate[kind]
		if other := s.validate[kind]; handler == nil || other != nil && how&validating != 0 {
			handler = other
		}
		s.review(t, kind, handler, review(kind, object, old, how))
	})
}

// review returns a request for admission, as the API server makes it: it has read the object as
// JSON, and filled in the namespace.
func review(kind, object, old string, how uint8) admission.Request {
	req := admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: kind},
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
	}
	if kind != "IPPool" && kind != "IPClass" {
		req.Namespace = "team"
	}
	switch {
	case how&updating != 0:
		req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(old)}
	case how&validating != 0 && how&dry != 0:
		req.Operation, req.Object, req.OldObject = admissionv1.Delete, runtime.RawExtension{}, req.Object
	}
	req.DryRun = new(how&dry != 0 && req.Operation != admissionv1.Delete)
	req.UserInfo.Username = entitled
	if how&unentitled != 0 {
		req.UserInfo.Username = "mallory"
	}
	return admission.Request{AdmissionRequest: req}
}

// entitled is the user who can use every pool, operator the operator's account.
const (
	entitled = "fuzz"
	operator = "operator"
)

func (s *stage) review(t *testing.T, kind string, handler admission.Handler, req admission.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	response := handler.Handle(ctx, req)
	if ctx.Err() != nil {
		t.Fatal("it took longer than the API server waits")
	}
	edited := applyAnswer(t, req, &response)
	if !response.Allowed {
		if response.Result == nil || response.Result.Code < 400 || response.Result.Code >= 500 && response.Result.Code != 507 {
			t.Fatalf("refused with %+v", response.Result)
		}
		return
	}
	if len(response.Patch) > 0 {
		s.check(t, kind, req, edited)
	}
}

// applyAnswer completes an answer, and returns the object as the answer changes it.
func applyAnswer(t *testing.T, req admission.Request, response *admission.Response) []byte {
	t.Helper()
	edited, err := patchObject(req, response)
	must(t, err)
	return edited
}

func patchObject(req admission.Request, response *admission.Response) ([]byte, error) {
	if err := response.Complete(req); err != nil {
		return nil, fmt.Errorf("the patch cannot be sent: %w", err)
	}
	if len(response.Patch) == 0 {
		return req.Object.Raw, nil
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", response.Patch, err)
	}
	edited, err := patch.Apply(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("%s does not apply: %w", response.Patch, err)
	}
	return edited, nil
}

// check fails if a claim was given a block that was not recorded.
func (s *stage) check(t *testing.T, kind string, req admission.Request, edited []byte) {
	t.Helper()
	named, block := recordAndBlockOf(kind, edited)
	if req.Operation != admissionv1.Create || *req.DryRun || named == "" {
		return
	}
	record := &v1alpha1.IPAllocation{}
	if err := s.store.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: named}, record); err != nil || record.Spec.CIDR != block {
		t.Fatalf("it was given %s, and the record %s has %q (%v)", block, named, record.Spec.CIDR, err)
	}
	record.Finalizers = nil // so that there is always room
	if err := errors.Join(s.store.Update(t.Context(), record), s.store.Delete(t.Context(), record)); err != nil {
		t.Fatal(err)
	}
}

// recordAndBlockOf returns the record that a holder names, and the block in its status.
func recordAndBlockOf(kind string, edited []byte) (record, block string) {
	var obj struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct{ AllocationName, CIDR, Address string }
	}
	if json.Unmarshal(edited, &obj) != nil {
		return "", ""
	}
	switch kind {
	case "IPClaim":
		return obj.Spec.AllocationName, obj.Spec.CIDR
	case "IPAddress":
		addr, err := netip.ParseAddr(obj.Spec.Address)
		if err != nil {
			return "", ""
		}
		return obj.Metadata.Annotations[v1alpha1.AnnotationAllocation], netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	return "", ""
}

// readSchemas reads them once for all stages.
var readSchemas = sync.OnceValue(manifests.NewSchemas)

// newStage returns a stage with a class and a ready pool that backs it.
func newStage(f testing.TB) *stage {
	f.Helper()
	scheme := runtime.NewScheme()
	must(f, clientgoscheme.AddToScheme(scheme))
	must(f, v1alpha1.AddToScheme(scheme))
	s := &stage{deletions: make(chan metav1.Preconditions, 16)}
	store := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(build.Tracker(scheme)).WithInterceptorFuncs(s.funcs()).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}).Build()
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 2))})
	alloc := replica.New(replica.Options{Ledger: view, Client: store, Namespace: "system", UnclaimedLimit: 1000})
	ctx, cancel := context.WithCancel(context.Background())
	f.Cleanup(cancel)
	pool := ipam.Pool{
		Key: ipam.PoolNamed("p"), Home: ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Name: "default", Family: ipam.IPv4},
		CIDR: netip.MustParsePrefix("10.0.0.0/16"), Family: ipam.IPv4, Length: 16, Classes: []string{"gold"}, Visibility: ipam.VisibilityShared,
		Strategy: ipam.StrategyFirstFit, Lengths: ipam.Lengths{Min: 16, Max: 32}, OnExhaustion: ipam.OnExhaustionReject,
	}
	view.Describe(pool)
	alloc.Catalog.SetPool(pool)
	alloc.Catalog.SetProject("team", "team")
	alloc.Catalog.SetProject("strangers", "strangers")
	alloc.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "gold", Family: ipam.IPv4, Length: 28, Lengths: ipam.Lengths{Min: 16, Max: 32}}, Default: true})
	must(f, store.Create(ctx, convert.Allocation(poolRecord(pool))))
	changed := make(chan struct{}, 1)
	view.Listen(func(ledger.Change) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	// The store in memory does not report objects to a watch that were made before it: the test
	// makes its objects when the watch has begun.
	watching := make(chan struct{}, 1)
	go view.Run(ctx, newSource(store, watching), &v1alpha1.IPAllocation{})
	<-changed
	<-watching
	shared := &services{
		Options: Options{
			Ledger: alloc.Ledger, Catalog: alloc.Catalog, Queue: alloc.Queue, Allocator: alloc.Allocator,
			Live: store, Client: s.operatorClient(store), Rights: authorize.NewRights(store), Operator: operator, InCluster: true,
			Metrics: metrics.New(clock.RealClock{}),
		},
		cached: store, decoder: admission.NewDecoder(scheme), schemas: readSchemas(),
	}
	s.services, s.store, s.Replica, s.changed = shared, store, alloc, changed
	s.mutate, s.validate = shared.mutators(), shared.validators(scheme)
	return s
}

// poolRecord returns the own record of a pool.
func poolRecord(pool ipam.Pool) ipam.Record {
	return ipam.Record{
		Name: convert.RecordOfPool("system", pool.Key), Block: pool.CIDR, Pool: pool.Home, Purpose: ipam.PurposePool,
		Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, Holder: convert.HolderOfPool(pool.Key),
	}
}

// claimRecord returns the record of a claim that has a block of the pool p.
func claimRecord(namespace, claim, block string) ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: namespace, Name: claim + "-12345678"}, Block: netip.MustParsePrefix(block), Pool: ipam.PoolNamed("p"), Class: "gold",
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Holder: convert.HolderOfClaim(ipam.Name{Namespace: namespace, Name: claim}), HolderUID: "1",
	}
}

// newSource returns a source of the records of the store in memory, which supports only a list and a
// watch after it. The channel receives a value when a watch has begun.
func newSource(store client.WithWatch, watching chan<- struct{}) kubeutil.StreamingSource {
	return kubeutil.StreamingSource{ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.IPAllocationList{}
			return list, store.List(ctx, list, &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := store.Watch(ctx, &v1alpha1.IPAllocationList{}, &client.ListOptions{Raw: &options})
			select {
			case watching <- struct{}{}:
			default:
			}
			return events, err
		},
	}}
}

// funcs returns the parts that the store in memory lacks: UIDs, an authorizer, and calls that fail.
func (s *stage) funcs() interceptor.Funcs {
	var made atomic.Int64
	return interceptor.Funcs{
		Get: func(ctx context.Context, store client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := s.failure("get", obj); err != nil {
				return err
			}
			return store.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, store client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := s.failure("list", list); err != nil {
				return err
			}
			return store.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, store client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := s.failure("create", obj); err != nil {
				return err
			}
			if review, ok := obj.(*authorizationv1.SubjectAccessReview); ok {
				review.Status.Allowed = review.Spec.User == entitled
				return nil
			}
			obj.SetUID(types.UID(fmt.Sprint("uid-", made.Add(1))))
			return store.Create(ctx, obj, opts...)
		},
	}
}

// failure returns the error of a call that is to fail.
func (s *stage) failure(verb string, obj runtime.Object) error {
	err, _ := s.fails.Load(verb + " " + kindOf(obj))
	switch err := err.(type) {
	case error:
		return err
	case func() error:
		return err()
	}
	return nil
}

// kindOf returns the kind of an object, from its content or by its type.
func kindOf(obj runtime.Object) string {
	return cmp.Or(obj.GetObjectKind().GroupVersionKind().Kind, reflect.TypeOf(obj).Elem().Name())
}

func must(f testing.TB, err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}
