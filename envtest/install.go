package envtest

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/config"
)

// clusterAPI holds the CRDs of Cluster API without which no IPAddressClaim is served, in the
// served version. `make generate` makes them from the types with which the operator is built.
//
//go:embed clusterapi/*.yaml
var clusterAPI embed.FS

// plane represents a control plane, with the access of its administrator.
type plane struct {
	cfg *rest.Config
	k8s client.Client
}

// fieldOwner is the field owner under which the objects are applied.
const fieldOwner = client.FieldOwner("cadastre-envtest")

func connect(cfg *rest.Config) (*plane, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	quiet := rest.CopyConfig(cfg)
	quiet.Timeout = startWithin                         // of a request: requests for the served kinds have no context
	quiet.WarningHandlerWithContext = rest.NoWarnings{} // the probe gets a warning that it waits for a pool
	k8s, err := client.New(quiet, client.Options{Scheme: scheme})
	return &plane{cfg: cfg, k8s: k8s}, err
}

// install installs everything but the webhooks.
func (on *plane) install(ctx context.Context) error {
	if err := on.installCRDs(ctx); err != nil {
		return err
	}
	if err := on.apply(ctx, corev1ac.Namespace(namespace)); err != nil {
		return fmt.Errorf("installing the Namespace %s: %w", namespace, err)
	}
	return on.installPolicies(ctx)
}

// installCRDs installs Cadastre's CRDs and the missing CRDs of Cluster API, and waits until all
// are served.
func (on *plane) installCRDs(ctx context.Context) error {
	all, err := definitions(config.CRDs, "crd/bases/*.yaml")
	if err != nil {
		return err
	}
	others, err := definitions(clusterAPI, "clusterapi/*.yaml")
	if err != nil {
		return err
	}
	for _, wanted := range others {
		missing, err := on.isMissing(ctx, wanted)
		if err != nil {
			return err
		}
		if missing {
			all = append(all, wanted)
		}
	}
	if _, err := envtest.InstallCRDs(on.cfg, envtest.CRDInstallOptions{CRDs: all, MaxTime: startWithin}); err != nil {
		return fmt.Errorf("installing the CRDs: %w", err)
	}
	return nil
}

// isMissing reports whether there is no such CRD yet. It returns an error if the CRD exists but
// does not serve the wanted version.
func (on *plane) isMissing(ctx context.Context, wanted *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	there := &apiextensionsv1.CustomResourceDefinition{}
	err := on.k8s.Get(ctx, client.ObjectKeyFromObject(wanted), there)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the CRD %s: %w", wanted.Name, err)
	}
	version := wanted.Spec.Versions[0].Name
	serves := func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version && v.Served }
	if !slices.ContainsFunc(there.Spec.Versions, serves) {
		return false, fmt.Errorf("the CRD %s does not serve %s: install the CRDs of Cluster API 1.11 or later, or leave it out", wanted.Name, version)
	}
	return false, nil
}

// installPolicies installs the policies in the order of their files: awaitAnswers waits for the
// last of them.
func (on *plane) installPolicies(ctx context.Context) error {
	return eachFile(config.Policies, "policy/*.yaml", func(text []byte) error {
		objects, err := decode[map[string]any](text)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := on.applyObject(ctx, object); err != nil {
				return err
			}
		}
		return nil
	})
}

// applyObject applies an object that was read from a manifest.
func (on *plane) applyObject(ctx context.Context, content map[string]any) error {
	object := &unstructured.Unstructured{Object: content}
	if err := on.apply(ctx, client.ApplyConfigurationFromUnstructured(object)); err != nil {
		return fmt.Errorf("installing the %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

func (on *plane) apply(ctx context.Context, object runtime.ApplyConfiguration) error {
	return on.k8s.Apply(ctx, object, fieldOwner, client.ForceOwnership)
}

// definitions returns the CRDs in the files that match the pattern.
func definitions(files embed.FS, pattern string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var all []*apiextensionsv1.CustomResourceDefinition
	err := eachFile(files, pattern, func(text []byte) error {
		found, err := decode[*apiextensionsv1.CustomResourceDefinition](text)
		all = append(all, found...)
		return err
	})
	return all, err
}

func eachFile(files embed.FS, pattern string, do func(text []byte) error) error {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := do(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// decode reads the objects of a manifest.
func decode[T any](text []byte) ([]T, error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []T
	for {
		var one T
		err := documents.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// installWebhooks installs the webhook configurations, by which the API server calls the
// webhooks at a port of this machine. The operator adds its certificate and the paths.
func (on *plane) installWebhooks(ctx context.Context, port int) error {
	// The API server resolves a Service of this type to its external name, and the port of
	// the webhook's client configuration. The certificate still has the name of the Service.
	leads := corev1ac.ServiceSpec().WithType(corev1.ServiceTypeExternalName).WithExternalName(loopback)
	if err := on.apply(ctx, corev1ac.Service(service, namespace).WithSpec(leads)); err != nil {
		return fmt.Errorf("installing the Service %s/%s: %w", namespace, service, err)
	}
	configurations, err := webhookConfigurations(port)
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := on.applyObject(ctx, configuration); err != nil {
			return err
		}
	}
	return nil
}

// webhookConfigurations returns the configurations with the match conditions, as
// kustomize makes them, with the port at which the API server calls the webhooks.
func webhookConfigurations(port int) ([]map[string]any, error) {
	configurations, err := decode[map[string]any](config.Webhooks)
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks' manifests: %w", err)
	}
	forClusters, err := decode[map[string]any](config.ClusterWebhooks)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of the Clusters' webhooks: %w", err)
	}
	configurations = append(configurations, forClusters...)
	conditions, err := decode[map[string]any](config.MatchConditions)
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks' match conditions: %w", err)
	}
	for i, configuration := range configurations {
		index := slices.IndexFunc(conditions, func(patch map[string]any) bool { return nameOf(patch) == nameOf(configuration) })
		if index < 0 {
			return nil, fmt.Errorf("there are no match conditions for %s", nameOf(configuration))
		}
		if configurations[i], err = merge(configuration, conditions[index]); err != nil {
			return nil, fmt.Errorf("adding the match conditions to %s: %w", nameOf(configuration), err)
		}
		lead(configurations[i], port)
	}
	return configurations, nil
}

func nameOf(object map[string]any) string {
	name, _, _ := unstructured.NestedString(object, "metadata", "name")
	return name
}

// merge merges a patch into a webhook configuration. The fields that matter here are alike in
// both kinds.
func merge(configuration, patch map[string]any) (map[string]any, error) {
	before, err := json.Marshal(configuration)
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, change, admissionv1.ValidatingWebhookConfiguration{})
	if err != nil {
		return nil, err
	}
	merged := &unstructured.Unstructured{}
	err = merged.UnmarshalJSON(after)
	return merged.Object, err
}

// lead sets a port of the Service as the address of all webhooks of a configuration.
func lead(configuration map[string]any, port int) {
	webhooks, _ := configuration["webhooks"].([]any)
	for _, hook := range webhooks {
		hook.(map[string]any)["clientConfig"] = map[string]any{
			"service": map[string]any{"namespace": namespace, "name": service, "port": int64(port)},
		}
	}
}
