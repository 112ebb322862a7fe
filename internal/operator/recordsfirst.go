package operator

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// recordsFirst has the caches of kinds that are as numerous as records list them when the
// records are there: blocks can be handed out by then, and if all were listed at once the
// API server, whose CPU is the limit, would take several times as long for the records.
type recordsFirst struct {
	records                          kubeutil.StreamingSource
	claims, addressClaims, addresses kubeutil.StreamingSource
	// listed reports whether the records are there.
	listed    func() bool
	rollbacks *rollbacks
}

// listedPoll is how often a cache checks whether the records are there.
const listedPoll = 20 * time.Millisecond

// newRecordsFirst makes the sources.
func newRecordsFirst(cfg *rest.Config, to api, listed func() bool, rollbacks *rollbacks) (*recordsFirst, error) {
	r, slim, errs := &recordsFirst{listed: listed, rollbacks: rollbacks}, slimmer(), [4]error{}
	r.records, errs[0] = kubeutil.NewStreamingSource[v1alpha1.IPAllocation](cfg, to.http, to.scheme, "ipallocations", slim)
	r.claims, errs[1] = kubeutil.NewStreamingSource[v1alpha1.IPClaim](cfg, to.http, to.scheme, "ipclaims", slim)
	r.addressClaims, errs[2] = kubeutil.NewStreamingSource[ipamv1.IPAddressClaim](cfg, to.http, to.scheme, "ipaddressclaims", slim)
	r.addresses, errs[3] = kubeutil.NewStreamingSource[ipamv1.IPAddress](cfg, to.http, to.scheme, "ipaddresses", slim)
	return r, errors.Join(errs[:]...)
}

// newInformer makes the informers of a cache.
func (r *recordsFirst) newInformer(of cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	switch example.(type) {
	case *v1alpha1.IPClaim:
		of = r.after(r.claims)
	case *ipamv1.IPAddressClaim:
		of = r.after(r.addressClaims)
	case *ipamv1.IPAddress:
		of = r.after(r.addresses)
	}
	informer := cache.NewSharedIndexInformer(r.rollbacks.verified(of, example), example, resync, indexers)
	if _, ok := example.(*v1alpha1.IPClaim); ok {
		return kubeutil.PackedInformer(informer, ipclaim.Pack)
	}
	return informer
}

// after lists and watches as of does, when the records are there.
func (r *recordsFirst) after(of kubeutil.StreamingSource) kubeutil.StreamingSource {
	return kubeutil.StreamingSource{ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if err := r.await(ctx); err != nil {
				return nil, err
			}
			return of.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if err := r.await(ctx); err != nil {
				return nil, err
			}
			return of.WatchWithContext(ctx, options)
		},
	}}
}

func (r *recordsFirst) await(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, listedPoll, true, func(context.Context) (bool, error) { return r.listed(), nil })
}
