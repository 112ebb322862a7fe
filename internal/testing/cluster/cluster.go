package cluster

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cadastre-dev/cadastre/internal/testing/balancer"
)

// Cluster represents a running control plane, with Cadastre if Options include it.
type Cluster struct {
	// Etcd and APIServer can be stopped, killed, paused and started again.
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
	// endBalancer stops the balancer and waits until it is done.
	endBalancer func() error
	endProxies  []func() error
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
	if c.endBalancer != nil {
		errs = append(errs, c.endBalancer())
	}
	if c.ClusterAPI != nil {
		errs = append(errs, c.ClusterAPI.Stop())
	}
	for _, end := range c.endProxies {
		errs = append(errs, end())
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
func (c *Cluster) Kubeconfig() string { return c.files.in("kubeconfig") }

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
