package cluster

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// overlay is config/default for managers that are processes.
//
//go:embed overlay.yaml.tmpl
var overlay string

// Kubectl runs kubectl as the administrator, in the module's root, and returns its output. An
// error contains its standard error output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--kubeconfig=" + c.Kubeconfig(), "--cache-dir=" + c.files.pathTo("cache", "kubectl")}, args...)
	cmd := exec.CommandContext(ctx, c.assets.path("kubectl"), args...)
	cmd.Dir = c.moduleRoot
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args[2:], " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Install applies a kustomization (a directory relative to the module's root)
// and waits until the API server serves the kinds in it.
func (c *Cluster) Install(ctx context.Context, kustomization string) error {
	return c.apply(ctx, filepath.Join(c.moduleRoot, kustomization))
}

// Reinstall applies the operator's manifests again, as they were at the start.
func (c *Cluster) Reinstall(ctx context.Context) error {
	return c.apply(ctx, c.files.pathTo("install"))
}

// ReinstallAs applies the operator's manifests again as another field manager. That fails if it
// would change a field that another manager owns, unless a flag forces it.
func (c *Cluster) ReinstallAs(ctx context.Context, manager string, flags ...string) error {
	args := append([]string{"apply", "--server-side", "--field-manager=" + manager, "--kustomize", c.files.pathTo("install")}, flags...)
	_, err := c.Kubectl(ctx, args...)
	return err
}

func (c *Cluster) apply(ctx context.Context, dir string) error {
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--kustomize", dir); err != nil {
		return err
	}
	return c.AwaitKinds(ctx)
}

// installOperator applies config/default without its Deployment and with the Service of the
// webhooks leading to the balancer.
func (c *Cluster) installOperator(ctx context.Context) error {
	// Kustomize takes no absolute path.
	installDir := c.files.pathTo("install")
	base, err := filepath.EvalSymlinks(cmp.Or(c.options.Manifests, filepath.Join(c.moduleRoot, "config", "default")))
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(installDir, base)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	values := map[string]any{"Base": relative, "Port": c.Balancer.Addr().Port, "Host": c.Balancer.Addr().IP}
	if err := template.Must(template.New("overlay").Parse(overlay)).Execute(&text, values); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(installDir, "kustomization.yaml"), text.Bytes(), 0o600); err != nil {
		return err
	}
	return c.apply(ctx, installDir)
}

// webhookService is in front of the operator's webhooks.
const webhookService = "cadastre-webhook-service"

// deployment is the name of the operator's Deployment.
const deployment = "cadastre-controller-manager"

// StartInstalled runs managers for a Deployment of the operator that another program, such as
// clusterctl, has installed in a namespace: under its service account, with the flags of its
// container except for the addresses to listen on. The Service of the webhooks is made to lead
// to the balancer. StartInstalled returns when all are ready.
func (c *Cluster) StartInstalled(ctx context.Context, namespace string, managers int) error {
	if c.Balancer != nil {
		return errors.New("it has a balancer already")
	}
	c.namespace = namespace
	if err := c.readDeployment(ctx); err != nil {
		return err
	}
	c.options.Managers = managers
	webhooks, err := c.startBalancer()
	if err != nil {
		return err
	}
	if err := c.LeadToBalancer(ctx); err != nil {
		return err
	}
	return c.startManagers(ctx, webhooks)
}

// readDeployment sets the options of managers, from now on, to those of the operator's
// Deployment.
func (c *Cluster) readDeployment(ctx context.Context) error {
	k8s, err := client.New(c.admin, client.Options{})
	if err != nil {
		return err
	}
	installed := &appsv1.Deployment{}
	if err := k8s.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: deployment}, installed); err != nil {
		return fmt.Errorf("looking for the operator's Deployment: %w", err)
	}
	c.account = installed.Spec.Template.Spec.ServiceAccountName
	for _, container := range installed.Spec.Template.Spec.Containers {
		if container.Name == "manager" {
			c.options.ManagerArgs = expand(container)
		}
	}
	return nil
}

// RollOut replaces the managers of an installed operator one by one by managers of its present
// Deployment, as the controller of Deployments does.
func (c *Cluster) RollOut(ctx context.Context) error {
	if err := c.readDeployment(ctx); err != nil {
		return err
	}
	for _, old := range c.Managers {
		if !old.Running() {
			continue
		}
		if _, err := c.AddManager(ctx); err != nil {
			return err
		}
		if err := old.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// StopInstalled ends the managers of an installed operator, and the balancer, as its Deployment
// and its Service are gone.
func (c *Cluster) StopInstalled() error {
	var errs []error
	for _, manager := range c.Managers {
		errs = append(errs, manager.Stop())
	}
	errs = append(errs, c.Balancer.Stop())
	c.Managers, c.Balancer = nil, nil
	return errors.Join(errs...)
}

// expand returns the arguments of a container as a kubelet expands them: with the values of its
// environment in place of $(NAME).
func expand(container corev1.Container) []string {
	var pairs []string
	for _, variable := range container.Env {
		pairs = append(pairs, "$("+variable.Name+")", variable.Value)
	}
	replacer := strings.NewReplacer(pairs...)
	args := make([]string, len(container.Args))
	for i, arg := range container.Args {
		args[i] = replacer.Replace(arg)
	}
	return args
}

// RenewCredentials gives the managers new tokens, as a kubelet does for a new Pod. They count
// from the next start on. Call it when the operator was installed again: clusterctl deletes its
// service account on an upgrade, and the API server refuses the tokens of that as soon as it
// does not remember them any more, which takes 10 s.
func (c *Cluster) RenewCredentials(ctx context.Context) error {
	config, err := c.OperatorConfig(ctx)
	if err != nil {
		return err
	}
	for _, manager := range c.Managers {
		if err := c.writeCredentials(manager, config); err != nil {
			return err
		}
	}
	return nil
}

// LeadToBalancer makes the Service of the webhooks of an installed operator lead to the
// balancer of StartInstalled, as overlay does beforehand. Call it again when the operator was
// installed again.
func (c *Cluster) LeadToBalancer(ctx context.Context) error {
	k8s, err := client.New(c.admin, client.Options{})
	if err != nil {
		return err
	}
	service := &corev1.Service{}
	if err := k8s.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: webhookService}, service); err != nil {
		return err
	}
	address := c.Balancer.Addr()
	// The fields of the manifests stay, so that the manifests can be applied again.
	service.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: address.IP.String(),
		Selector: service.Spec.Selector, Ports: service.Spec.Ports,
	}
	if err := k8s.Update(ctx, service); err != nil {
		return fmt.Errorf("leading the Service of the webhooks to the balancer: %w", err)
	}
	for name, kind := range map[string]string{
		manifests.MutatingWebhooks: kindMutating, manifests.ClusterWebhooks: kindMutating, manifests.ValidatingWebhooks: kindValidating,
	} {
		// A manager that runs writes its certificate and paths at the same time.
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return setPort(ctx, k8s, kind, name, int64(address.Port)) })
		if err != nil {
			return fmt.Errorf("leading %s to the balancer: %w", name, err)
		}
	}
	return nil
}

// setPort sets the port at which all webhooks of a configuration are called.
func setPort(ctx context.Context, k8s client.Client, kind, name string, port int64) error {
	configuration := &unstructured.Unstructured{}
	configuration.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
	if err := k8s.Get(ctx, client.ObjectKey{Name: name}, configuration); err != nil {
		return err
	}
	webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, webhook := range webhooks {
		_ = unstructured.SetNestedField(webhook.(map[string]any), port, "clientConfig", "service", "port")
	}
	_ = unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
	return k8s.Update(ctx, configuration)
}

// Upgrade installs the manifests of this module over those that were installed before, CRDs
// first, while all managers run. Managers that are added from then on run the build of this
// module.
func (c *Cluster) Upgrade(ctx context.Context) error {
	c.options.Manifests, c.options.ManagerBinary = "", ""
	if err := c.Install(ctx, "config/crd"); err != nil {
		return err
	}
	return c.installOperator(ctx)
}

// AddManager starts one more replica, and returns when it is ready and behind the
// balancer.
func (c *Cluster) AddManager(ctx context.Context) (*Manager, error) {
	config, err := c.OperatorConfig(ctx)
	if err != nil {
		return nil, err
	}
	port, err := c.free.next()
	if err != nil {
		return nil, err
	}
	added, err := c.prepareManager(config, loopback(port))
	if err != nil {
		return nil, err
	}
	if err := added.Start(ctx); err != nil {
		return nil, err
	}
	c.Balancer.Add(added.WebhookAddress)
	return added, nil
}
