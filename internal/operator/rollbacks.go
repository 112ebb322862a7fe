package operator

import (
	"maps"
	"math/rand/v2"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// rollbacks counts how often informers have found that the store of the API server has gone
// back, by kind.
type rollbacks struct {
	scheme *runtime.Scheme
	log    logr.Logger

	mu     sync.Mutex
	counts map[string]int
}

func newRollbacks(scheme *runtime.Scheme, log logr.Logger) *rollbacks {
	return &rollbacks{scheme: scheme, log: log, counts: map[string]int{}}
}

// verified returns a source of objects like the example for an informer, which lists again
// when the store has gone back.
func (r *rollbacks) verified(from cache.ListerWatcher, example runtime.Object) *kubeutil.VerifiedSource {
	kind := "unknown"
	if known, err := apiutil.GVKForObject(example, r.scheme); err == nil {
		kind = known.Kind
	}
	r.add(kind, 0)
	return kubeutil.NewVerifiedSource(from, kubeutil.Verification{
		Clock: clock.RealClock{}, Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		WentBack: func(seen, found string) {
			r.log.Info("The store of the API server has gone back; listing again", "kind", kind, "seenRevision", seen, "foundRevision", found)
			r.add(kind, 1)
		},
	})
}

func (r *rollbacks) add(kind string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[kind] += n
}

// byKind returns how often that was.
func (r *rollbacks) byKind() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
