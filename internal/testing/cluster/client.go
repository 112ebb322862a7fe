package cluster

import (
	"errors"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1" //nolint:staticcheck // deprecated, but served until it is removed
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Scheme returns a scheme with the kinds of Kubernetes, of Cadastre and of Cluster API.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(
		clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		clusterv1.AddToScheme(scheme), ipamv1.AddToScheme(scheme), ipamv1beta1.AddToScheme(scheme),
	)
}

// NewClient returns a client for the kinds of Scheme, without a rate limit.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}
