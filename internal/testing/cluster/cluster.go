// Package cluster runs a Kubernetes control plane and Cadastre's managers as
// processes on loopback, for the suites, `make up` and `make demo`.
//
// The parts are real: etcd, kube-apiserver and kube-controller-manager, built by `make
// controlplane`, and bin/manager, or bin/test-manager if an --orphan-grace is set. The managers run
// as they would in a cluster: under their own service account, with the RBAC, flow control and
// webhook configuration of config/default. Only two things differ. Pods are not run, so the
// managers are processes started from here in place of the Deployment; and the Service of the
// webhooks is of type ExternalName and leads to a balancer on loopback, in front of all managers.
//
//	c, err := cluster.Start(ctx, cluster.Options{Managers: 2})
//	...
//	defer c.Stop()
//	k8s, err := cluster.NewClient(c.Config())
//	...
//	err = c.Managers[0].Pause()      // wakes up on Resume, and does not notice
//	err = c.Managers[1].Kill()       // as kill -9
//	err = c.Managers[1].Restart(ctx) // returns when it is ready
//	err = c.APIServer.Restart(ctx)
//
// With Options{ClusterAPI: true} Cluster API's core manager (bin/capi/manager, which `make
// capi` builds) runs beside it, and its CRDs are served in all their versions, converted and
// validated by its webhooks; v1beta2 is stored. With Options{ClusterAPICRDs: true} only the
// CRDs are installed, in v1beta2. Both can come later, while the operator runs:
// c.InstallClusterAPICRDs, c.StartClusterAPI.
//
// No process outlives the one that called Start, however that ends: see leash.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cadastre-dev/cadastre/internal/testing/balancer"
)

// Cluster represents a running control plane, with Cadastre if Options include it.
type Cluster struct {
	// Etcd and APIServer can be stopped, killed and started again.
	Etcd, APIServer *Part
	// ControllerManager is nil if Options did not ask for it.
	ControllerManager *Process
	// ClusterAPI is Cluster API's core manager; nil if it was not asked for.
	ClusterAPI *Process
	// Managers are the replicas of the operator.
	Managers []*Manager
	// Balancer is in front of the webhooks of all replicas. It is nil if there are none.
	Balancer *balancer.Balancer

	options    Options
	moduleRoot string
	// The namespace and the service account of the operator.
	namespace, account string
	assets             assets
	files              *runDir
	free               ports
	leash              *leash
	plane              *envtest.ControlPlane
	admin              *rest.Config
}

// Start runs a cluster and returns when all of it is ready. ctx bounds the
// start alone: the cluster runs until Stop. After an error nothing runs.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c := &Cluster{options: options, namespace: Namespace, account: ServiceAccount}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Stop ends everything, the managers first, and returns when it is gone.
func (c *Cluster) Stop() error {
	var errs []error
	var ending errgroup.Group
	for _, manager := range c.Managers {
		ending.Go(manager.Stop)
	}
	errs = append(errs, ending.Wait())
	for _, manager := range c.Managers {
		if manager.API != nil {
			errs = append(errs, manager.API.Stop())
		}
	}
	if c.Balancer != nil {
		errs = append(errs, c.Balancer.Stop())
	}
	if c.ClusterAPI != nil {
		errs = append(errs, c.ClusterAPI.Stop())
	}
	if c.ControllerManager != nil {
		errs = append(errs, c.ControllerManager.Stop())
	}
	if c.plane != nil {
		errs = append(errs, c.APIServer.Stop(), c.Etcd.Stop())
	}
	if c.leash != nil {
		c.leash.release()
	}
	if c.files != nil {
		errs = append(errs, c.files.remove())
	}
	errs = append(errs, c.free.release())
	return errors.Join(errs...)
}

// Config returns the administrator's configuration, without a rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// EtcdURL returns the URL at which etcd answers its clients, for tests that need the stored
// state without asking the API server.
func (c *Cluster) EtcdURL() string { return c.plane.Etcd.URL.String() }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.files.pathTo("kubeconfig") }

// User makes a user, known by a client certificate, and returns a configuration without a rate
// limit.
func (c *Cluster) User(name string, groups ...string) (*rest.Config, error) {
	user, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("making user %s: %w", name, err)
	}
	return user.Config(), nil
}

// OperatorConfig returns a configuration under the operator's own service account, for a
// manager that a test runs in its own process.
func (c *Cluster) OperatorConfig(ctx context.Context) (*rest.Config, error) {
	return serviceAccountConfig(ctx, c.admin, c.namespace, c.account)
}

// Options holds the settings of a cluster. The zero value is etcd, an API server and the CRDs
// of config/crd: enough for tests that call Reconcile themselves.
type Options struct {
	// Dir keeps the credentials, data and logs, and stays when the cluster stops.
	// Empty: a temporary directory that goes with the cluster.
	Dir string
	// Bare leaves the CRDs of config/crd out, for a cluster on which another program installs
	// the operator: see StartInstalled.
	Bare bool
	// ControllerManager runs kube-controller-manager, for the effects of a deletion: garbage
	// collection and the end of namespaces.
	ControllerManager bool
	// Audit makes the API server log the requests of the operator, for Cluster.Audit.
	Audit bool
	// APIServerFlags are flags of kube-apiserver, by name, in place of their other values.
	APIServerFlags map[string]string

	// TracesTo is the address of a collector to which etcd and the API server send their
	// traces, all of them. Empty: they trace nothing.
	TracesTo string

	// Managers is the number of replicas of the operator. With more than none, all of
	// config/default is installed, and the cluster is ready when each of them is.
	Managers int
	// Manifests is the kustomization of the operator that is installed. Empty:
	// config/default of this module.
	Manifests string
	// ManagerBinary is the program of the managers. Empty: bin/manager, or bin/test-manager if
	// they have an --orphan-grace.
	ManagerBinary string
	// OrphanGrace is the --orphan-grace of all managers, for tests that wait for its end. It
	// can be shorter than bin/manager accepts. 0: the default of the manager.
	OrphanGrace time.Duration
	// ManagerArgs are flags for all managers, besides those for the addresses to listen on.
	ManagerArgs []string
	// OwnLease leaves the leader's lease as short as the operator has it. Otherwise the lease
	// is calmLease.
	OwnLease bool
	// ManagerEnv is the environment of all managers, besides that of this process.
	ManagerEnv []string
	// Proxied makes each manager reach the API server through its own proxy, Manager.API.
	Proxied bool
	// Seats is the number of requests that the API server serves at once, of those that only
	// read and of those that write each. 0: the default of the API server.
	Seats int
	// Revive starts a manager again that ends by itself, as a kubelet would. A manager that is
	// stopped or killed through Manager stays down.
	Revive bool
	// Webhooks are addresses of webhook servers that the caller runs itself,
	// behind the balancer with the managers. With any, config/default is
	// installed even if there are no managers.
	Webhooks []string

	// ClusterAPI runs Cluster API's core manager, with all its CRDs and webhooks,
	// before the managers start: see StartClusterAPI.
	ClusterAPI bool
	// ClusterAPICRDs installs the CRDs of IPAddress, IPAddressClaim, Cluster and Machine
	// alone, before the managers start: see InstallClusterAPICRDs.
	ClusterAPICRDs bool
	// ClusterAPIBinary is the core manager. Empty: bin/capi/manager.
	ClusterAPIBinary string

	// Progress receives a message about each wait, and the time that it took.
	Progress io.Writer
}

// trace makes etcd and the API server send their traces to a collector.
func (c *Cluster) trace(endpoint string) error {
	c.plane.Etcd.Configure().
		Set("enable-distributed-tracing", "true").
		Set("distributed-tracing-address", endpoint).
		Set("distributed-tracing-sampling-rate", "1000000")
	path := c.files.pathTo("tracing.yaml")
	c.plane.APIServer.Configure().Set("tracing-config-file", path)
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: %s
samplingRatePerMillion: 1000000
`, endpoint), 0o600)
}
