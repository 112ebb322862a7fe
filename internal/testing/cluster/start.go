package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/cadastre-dev/cadastre/internal/testing/balancer"
	"github.com/cadastre-dev/cadastre/internal/testing/proxy"
)

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.step("starting etcd and kube-apiserver", func() error { return c.startPlane(ctx) }); err != nil {
		return err
	}
	if c.options.ControllerManager {
		if err := c.step("starting kube-controller-manager", func() error { return c.startControllers(ctx) }); err != nil {
			return err
		}
	}
	if c.options.ClusterAPI {
		if err := c.step("starting Cluster API's core manager, until ready", func() error { return c.StartClusterAPI(ctx) }); err != nil {
			return err
		}
	} else if c.options.ClusterAPICRDs {
		if err := c.step("installing Cluster API's CRDs", func() error { return c.InstallClusterAPICRDs(ctx) }); err != nil {
			return err
		}
	}
	if c.options.Bare {
		return nil
	}
	if c.options.Managers == 0 && len(c.options.Webhooks) == 0 {
		return c.step("installing the CRDs", func() error { return c.Install(ctx, "config/crd") })
	}
	webhooks, err := c.startBalancer()
	if err != nil {
		return err
	}
	err = c.step("installing the operator: CRDs, RBAC, webhooks", func() error { return c.installOperator(ctx) })
	if err != nil || c.options.Managers == 0 {
		return err
	}
	return c.step(fmt.Sprintf("starting %d manager(s), until ready", c.options.Managers),
		func() error { return c.startManagers(ctx, webhooks) })
}

func (c *Cluster) prepare() (err error) {
	if c.moduleRoot, err = ModuleRoot(); err != nil {
		return err
	}
	if c.assets, err = findAssets(c.moduleRoot); err != nil {
		return err
	}
	if _, err := os.Stat(c.managerBinary()); err != nil && c.options.Managers > 0 {
		return fmt.Errorf("%w: run `make build bin/test-manager`", err)
	}
	if _, err := os.Stat(c.coreBinary()); err != nil && c.options.ClusterAPI {
		return fmt.Errorf("%w: run `make capi`", err)
	}
	if c.files, err = newRunDir(c.options.Dir); err != nil {
		return err
	}
	c.leash, err = newLeash(c.files)
	return err
}

func (c *Cluster) startPlane(ctx context.Context) (err error) {
	c.plane, err = newControlPlane(c.assets, c.files, &c.free, c.options)
	if err != nil {
		return err
	}
	if c.options.Audit {
		if err := c.audit(); err != nil {
			return err
		}
	}
	if c.options.TracesTo != "" {
		if err := c.trace(c.options.TracesTo); err != nil {
			return err
		}
	}
	c.Etcd = &Part{Name: "etcd", files: c.files, start: c.plane.Etcd.Start, stop: c.plane.Etcd.Stop}
	c.APIServer = &Part{Name: "kube-apiserver", files: c.files, start: c.plane.APIServer.Start, stop: c.plane.APIServer.Stop}
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	c.plane.APIServer.EtcdURL = c.plane.Etcd.URL
	if err := c.APIServer.Start(ctx); err != nil {
		return err
	}
	if c.admin, err = c.User("admin", "system:masters"); err != nil {
		return err
	}
	if err := WriteKubeconfig(c.Kubeconfig(), c.admin, "cadastre", ""); err != nil {
		return err
	}
	return awaitDefaultNamespace(ctx, c.admin)
}

func (c *Cluster) startControllers(ctx context.Context) error {
	config, err := c.User("system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := c.files.pathTo("auth", "kube-controller-manager.kubeconfig")
	if err := WriteKubeconfig(kubeconfig, config, "cadastre", ""); err != nil {
		return err
	}
	port, err := c.free.next()
	if err != nil {
		return err
	}
	c.ControllerManager, err = newControllerManager(c.assets, c.files, port, kubeconfig, config.CAData)
	if err != nil {
		return err
	}
	return c.ControllerManager.Start(ctx)
}

// startBalancer puts the balancer in front of the webhooks, those of the managers included, and
// returns the addresses for the latter.
func (c *Cluster) startBalancer() ([]string, error) {
	freePorts, err := c.free.several(c.options.Managers + 1)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, port := range freePorts[1:] {
		addresses = append(addresses, loopback(port))
	}
	c.Balancer, err = balancer.Start(loopback(freePorts[0]), append(addresses, c.options.Webhooks...)...)
	return addresses, err
}

// startManagers starts all replicas at once, under the operator's account.
func (c *Cluster) startManagers(ctx context.Context, webhooks []string) error {
	config, err := c.OperatorConfig(ctx)
	if err != nil {
		return err
	}
	for _, webhook := range webhooks {
		if _, err := c.prepareManager(config, webhook); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, manager := range c.Managers {
		group.Go(func() error { return manager.Start(ctx) })
	}
	return group.Wait()
}

// managerKubeconfig returns the file with the credentials of a replica.
func (c *Cluster) managerKubeconfig(name string) string {
	return c.files.pathTo("auth", name+".kubeconfig")
}

// prepareManager adds a replica that is still to be started, with a proxy to the API server if
// Options ask for it.
func (c *Cluster) prepareManager(config *rest.Config, webhook string) (*Manager, error) {
	m, err := c.newManager(webhook)
	if err != nil {
		return nil, err
	}
	if c.options.Proxied {
		if m.API, err = proxy.Start(loopback(0), config); err != nil {
			return nil, err
		}
	}
	return m, c.writeCredentials(m, config)
}

// writeCredentials writes the kubeconfig of a replica, which leads to its proxy if it has one.
func (c *Cluster) writeCredentials(m *Manager, config *rest.Config) error {
	if m.API != nil {
		config = &rest.Config{Host: m.API.URL()}
	}
	return WriteKubeconfig(c.managerKubeconfig(m.Name), config, "cadastre", "")
}

// step does a part of the work and reports how long it took.
func (c *Cluster) step(what string, do func() error) error {
	out := c.options.Progress
	if out == nil {
		out = io.Discard
	}
	begin := time.Now()
	_, _ = fmt.Fprintf(out, "%s ... ", what)
	err := do()
	if err != nil {
		_, _ = fmt.Fprintln(out, "failed")
		return err
	}
	_, _ = fmt.Fprintf(out, "%.1f s\n", time.Since(begin).Seconds())
	return nil
}

// calmLease outlasts the stalls of a machine on which everything runs at once.
const calmLease = 4 * time.Second

func (c *Cluster) managerArgs() []string {
	var args []string
	if c.options.ManagerBinary == "" { // another version may not know the flag
		args = append(args, "--feature-gates=PoolRanges=true")
	}
	if !c.options.OwnLease {
		args = append(args, "--leader-elect-lease-duration="+calmLease.String())
	}
	if c.options.OrphanGrace > 0 {
		args = append(args, "--orphan-grace="+c.options.OrphanGrace.String())
	}
	return append(args, c.options.ManagerArgs...)
}

// managerBinary returns the path of the program of the managers: bin/test-manager, which accepts a
// short grace for orphans, if their arguments set one.
func (c *Cluster) managerBinary() string {
	setsGrace := func(arg string) bool { return strings.HasPrefix(arg, "--orphan-grace=") }
	switch {
	case c.options.ManagerBinary != "":
		return c.options.ManagerBinary
	case slices.ContainsFunc(c.managerArgs(), setsGrace):
		return filepath.Join(c.moduleRoot, "bin", "test-manager")
	default:
		return filepath.Join(c.moduleRoot, "bin", "manager")
	}
}

const (
	readyTimeout  = time.Minute
	readyInterval = 100 * time.Millisecond
)

// answersOK waits until a URL of another process answers 200. It does not check
// certificates: a process that is just starting signs its own.
func answersOK(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		client := http.Client{
			Timeout: 2 * time.Second,
			Transport: &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			},
		}
		last := "no answer yet"
		err := wait.PollUntilContextTimeout(ctx, readyInterval, readyTimeout, true,
			func(ctx context.Context) (bool, error) {
				answer := get(ctx, &client, url)
				if ctx.Err() == nil || answer == "" { // else the last one explains more than that it was cut off
					last = answer
				}
				return answer == "", nil
			})
		if err != nil {
			return fmt.Errorf("%s: %s: %w", url, last, err)
		}
		return nil
	}
}

// get returns the reason why a URL does not answer 200, or nothing if it does.
func get(ctx context.Context, client *http.Client, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // which of the checks failed
		return response.Status + " " + string(said)
	}
	return ""
}
