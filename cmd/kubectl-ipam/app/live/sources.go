package live

import (
	"net/http"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Sources reads with the rights of the caller.
type Sources struct {
	config  *rest.Config
	over    *http.Client
	scheme  *runtime.Scheme
	records *register.Source
}

// NewSources returns Sources for a configuration. The scheme knows the kinds of
// ipam.cadastre.dev and ipam.cluster.x-k8s.io.
func NewSources(config *rest.Config, reader client.Reader, scheme *runtime.Scheme) (*Sources, error) {
	over, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	records, err := register.NewSource(config, reader, scheme)
	if err != nil {
		return nil, err
	}
	return &Sources{config: config, over: over, scheme: scheme, records: records}, nil
}

// feeds returns the feeds of a Live, the pools first.
func (s *Sources) feeds(l *Live) []*feed {
	notBound := fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.ClaimBound))
	return []*feed{
		{resource: "ippools", first: true, store: l.poolStore(ipam.PoolKindIPPool), source: source[v1alpha1.IPPool](s, "ippools", nil, dropped)},
		{resource: "localippools", first: true, namespaced: true, store: l.poolStore(ipam.PoolKindLocalIPPool), source: source[v1alpha1.LocalIPPool](s, "localippools", nil, dropped)},
		{resource: "ipallocations", namespaced: true, store: l.recordStore(), source: func(namespace string) (kubeutil.StreamingSource, error) {
			return s.records.Records(namespace, readRecord), nil
		}},
		{resource: "ipclaims", namespaced: true, store: l.claimStore(), source: source[v1alpha1.IPClaim](s, "ipclaims", notBound, dropped)},
		{resource: "ipclasses", quiet: true, store: l.classStore(), source: source[v1alpha1.IPClass](s, "ipclasses", nil, dropped)},
		{resource: "ipaddressclaims", namespaced: true, optional: true, store: l.addressClaimStore(), source: source[ipamv1.IPAddressClaim](s, "ipaddressclaims", nil, short)},
	}
}

// source returns a function that makes a source in one namespace or in all.
func source[T any, P interface {
	*T
	client.Object
}](s *Sources, resource string, which fields.Selector, transform cache.TransformFunc) func(namespace string) (kubeutil.StreamingSource, error) {
	return func(namespace string) (kubeutil.StreamingSource, error) {
		return kubeutil.NewSelectingSource[T, P](s.config, s.over, s.scheme, kubeutil.Selection{Resource: resource, Namespace: namespace, Fields: which}, transform)
	}
}
