package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
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
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/testing/proxy"
)

// Scheme returns a scheme with the kinds of Kubernetes, of Cadastre and of Cluster API.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(
		clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		clusterv1.AddToScheme(scheme), ipamv1.AddToScheme(scheme), ipamv1beta1.AddToScheme(scheme), incluster.AddToScheme(scheme),
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

// WriteKubeconfig writes a configuration as a file that only its owner can read. Its context has a
// name and, unless that is empty, a namespace.
func WriteKubeconfig(path string, config *rest.Config, name, namespace string) error {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	kubeconfig.CurrentContext = name
	return clientcmd.WriteToFile(*kubeconfig, path)
}

// Namespace and ServiceAccount are the operator's own, unless it was installed elsewhere.
const (
	Namespace      = "cadastre-system"
	ServiceAccount = "cadastre-controller-manager"
)

// Manager represents one replica of the operator, a process under the operator's service
// account. It is ready when its /readyz reports that.
type Manager struct {
	*Process
	// WebhookAddress is the address at which it serves its webhooks, behind the balancer.
	WebhookAddress string
	// MetricsAddress and ProbeAddress are the addresses at which it serves /metrics, and
	// /healthz and /readyz.
	MetricsAddress, ProbeAddress string
	// API is the proxy through which it reaches the API server; nil if it reaches it directly.
	API *proxy.Proxy
}

// NewHubProvisioner prepares a process of manager hub-provisioner, with the rights of the administrator. It is
// started again when it ends by itself. The caller stops it before the cluster.
func (c *Cluster) NewHubProvisioner(name string, args ...string) (*Process, error) {
	port, err := c.free.next()
	if err != nil {
		return nil, err
	}
	address := loopback(port)
	return &Process{
		Name: name, path: filepath.Join(c.moduleRoot, "bin", "manager"),
		Args:  append([]string{"hub-provisioner", "--health-probe-bind-address=" + address}, args...),
		Env:   []string{"KUBECONFIG=" + c.Kubeconfig()},
		ready: answersOK("http://" + address + "/healthz"), files: c.files, reviveAfter: reviveAfter,
	}, nil
}

// reviveAfter is the time that a manager must have lived to be started again.
const reviveAfter = 3 * time.Second

// newManager adds a replica that is still to be started, and serves its webhooks at an address.
func (c *Cluster) newManager(webhook string) (*Manager, error) {
	freePorts, err := c.free.several(2)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(webhook)
	if err != nil {
		return nil, err
	}
	m := &Manager{WebhookAddress: webhook, MetricsAddress: loopback(freePorts[0]), ProbeAddress: loopback(freePorts[1])}
	name := "manager-" + strconv.Itoa(len(c.Managers))
	m.Process = &Process{
		Name: name,
		path: c.managerBinary(),
		// The addresses to listen on come last, so that they hold whatever the other arguments contain.
		Args: append(c.managerArgs(),
			"--kubeconfig="+c.managerKubeconfig(name),
			"--webhook-bind-host="+host,
			"--webhook-port="+port,
			// By the names that earlier builds know too.
			"--metrics-bind-address="+m.MetricsAddress,
			"--health-probe-bind-address="+m.ProbeAddress,
		),
		Env: append([]string{
			"POD_NAMESPACE=" + c.namespace, "POD_SERVICE_ACCOUNT=" + c.account, "POD_NAME=" + name,
		}, c.options.ManagerEnv...),
		ready: answersOK(fmt.Sprintf("http://%s/readyz", m.ProbeAddress)),
		files: c.files,
	}
	if c.options.Revive {
		m.reviveAfter = reviveAfter
	}
	c.Managers = append(c.Managers, m)
	return m, nil
}
