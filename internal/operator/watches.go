package operator

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=cadastre-allocations;cadastre-cluster-networks;cadastre-filled-in,verbs=list;watch

// policyWatch watches the admission policies that reserve the operator's fields and objects for
// the operator, and their bindings. It watches each by its name alone.
type policyWatch struct{ policies []guardingPolicy }

// guardingPolicy holds one shipped policy and the informers of its live policy and binding.
type guardingPolicy struct {
	shippedPolicy      admissionv1.ValidatingAdmissionPolicy
	policies, bindings cache.SharedIndexInformer
}

// newPolicyWatch makes the watches. They begin with run.
func newPolicyWatch(cfg *rest.Config, httpClient *http.Client, operator manifests.Account, rollbacks *rollbacks) (*policyWatch, error) {
	clients, err := kubernetes.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	p := &policyWatch{}
	for _, policy := range manifests.Policies(operator) {
		newInformer := func(resource string, example runtime.Object) cache.SharedIndexInformer {
			selector := fields.OneTermEqualSelector("metadata.name", policy.Name)
			source := cache.NewListWatchFromClient(clients.AdmissionregistrationV1().RESTClient(), resource, "", selector)
			return rollbacks.newInformer(source, example, 0, cache.Indexers{})
		}
		p.policies = append(p.policies, guardingPolicy{
			shippedPolicy: policy,
			policies:      newInformer("validatingadmissionpolicies", &admissionv1.ValidatingAdmissionPolicy{}),
			bindings:      newInformer("validatingadmissionpolicybindings", &admissionv1.ValidatingAdmissionPolicyBinding{}),
		})
	}
	return p, nil
}

// run watches until ctx is done.
func (p *policyWatch) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, g := range p.policies {
		wg.Go(func() { g.policies.RunWithContext(ctx) })
		wg.Go(func() { g.bindings.RunWithContext(ctx) })
	}
	wg.Wait()
}

// state reports by name whether each policy is in force. It leaves out a policy about which the
// API server has not answered yet.
func (p *policyWatch) state() map[string]bool {
	state := map[string]bool{}
	for _, g := range p.policies {
		if g.policies.HasSynced() && g.bindings.HasSynced() {
			state[g.shippedPolicy.Name] = inForce(g.policies.GetStore().List(), g.bindings.GetStore().List(), &g.shippedPolicy)
		}
	}
	return state
}

// inForce reports whether a policy and a binding of its name exist, and enforce the shipped
// policy.
func inForce(policies, bindings []any, shippedPolicy *admissionv1.ValidatingAdmissionPolicy) bool {
	return slices.ContainsFunc(policies, func(obj any) bool {
		live, ok := obj.(*admissionv1.ValidatingAdmissionPolicy)
		return ok && len(manifests.PolicyDifferences(live, shippedPolicy)) == 0
	}) && slices.ContainsFunc(bindings, func(obj any) bool {
		live, ok := obj.(*admissionv1.ValidatingAdmissionPolicyBinding)
		return ok && len(manifests.BindingDifferences(live, shippedPolicy.Name)) == 0
	})
}

// rollbacks counts how often informers have found that the store of the API server has gone
// back, by kind. When one of them has, all list again, and so does the view of records: a source
// that has seen no event since its last list cannot always notice it.
type rollbacks struct {
	scheme *runtime.Scheme
	log    logr.Logger

	mu      sync.Mutex
	counts  map[string]int
	sources []verifiedSource
	// isSpreading reports whether spread runs: those that it makes list again report that, too.
	isSpreading bool
}

// verifiedSource is what a kubeutil.VerifiedSource and a ledger.Ledger have in common.
type verifiedSource interface {
	Revision() string
	GoneBack(seenRevision, foundRevision string)
}

func newRollbacks(scheme *runtime.Scheme, log logr.Logger) *rollbacks {
	return &rollbacks{scheme: scheme, log: log, counts: map[string]int{}}
}

// newInformer makes an informer of a verified source, as the option of a cache does.
func (r *rollbacks) newInformer(listerWatcher cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(r.newVerifiedSource(listerWatcher, example), example, resync, indexers)
}

// newVerifiedSource returns a source of objects like the example for an informer. The source lists again
// when the store has gone back.
func (r *rollbacks) newVerifiedSource(listerWatcher cache.ListerWatcher, example runtime.Object) *kubeutil.VerifiedSource {
	kind := "unknown"
	if gvk, err := apiutil.GVKForObject(example, r.scheme); err == nil {
		kind = gvk.Kind
	}
	r.add(kind, 0)
	source := kubeutil.NewVerifiedSource(listerWatcher, kubeutil.Verification{
		Clock: clock.RealClock{}, Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		WentBack: func(seenRevision, foundRevision string) {
			r.log.Info("The store of the API server has gone back; listing again", "kind", kind, "seenRevision", seenRevision, "foundRevision", foundRevision)
			r.add(kind, 1)
			r.spread(foundRevision)
		},
	})
	r.include(source)
	return source
}

// include makes a source list again when another one finds that the store has gone back.
func (r *rollbacks) include(source verifiedSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, source)
}

// spread makes each source list again, once.
func (r *rollbacks) spread(foundRevision string) {
	r.mu.Lock()
	sources, isSpreading := slices.Clone(r.sources), r.isSpreading
	r.isSpreading = true
	r.mu.Unlock()
	if isSpreading {
		return
	}
	for _, source := range sources {
		source.GoneBack(source.Revision(), foundRevision)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isSpreading = false
}

func (r *rollbacks) add(kind string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[kind] += n
}

// byKind returns the number of rollbacks of each kind.
func (r *rollbacks) byKind() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
