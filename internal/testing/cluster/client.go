package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// AwaitKinds waits until the API server serves all kinds that are defined. (kubectl wait
// fails on a definition that has no conditions yet.)
func (c *Cluster) AwaitKinds(ctx context.Context) error {
	reader, err := NewClient(c.admin)
	if err != nil {
		return err
	}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		err := reader.List(ctx, definitions)
		return err == nil && !slices.ContainsFunc(definitions.Items, isNotServed), err
	})
	if err != nil {
		return fmt.Errorf("waiting until all kinds are served: %w", err)
	}
	return nil
}

func isNotServed(definition apiextensionsv1.CustomResourceDefinition) bool {
	return !apihelpers.IsCRDConditionTrue(&definition, apiextensionsv1.Established)
}

// NoRetry returns a configuration whose clients see every refusal: those of client-go try again
// by themselves if an answer states when.
func NoRetry(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetry{next} })
	return cfg
}

type noRetry struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noRetry) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(req)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// tokenLifetime is the lifetime of a manager's token. It is never renewed, as a kubelet would
// do; no control plane runs here for so long.
const tokenLifetime = 365 * 24 * time.Hour

// serviceAccountConfig returns a configuration under a service account, with its own token as a
// Pod would have.
func serviceAccountConfig(ctx context.Context, admin *rest.Config, namespace, name string) (*rest.Config, error) {
	clients, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token for service account %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token.Status.Token
	return config, nil
}

// writeKubeconfig writes a configuration as a file that only its owner can read.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "cadastre"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	return clientcmd.WriteToFile(*kubeconfig, path)
}
