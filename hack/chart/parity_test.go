package chart

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/helm"
)

// image is the image in config/manager.
const image = "image.repository=cadastre-manager,image.tag=dev"

// east holds the values of config/overlays/hub-provisioner.
const east = "hubProvisioner.enabled=true,hubProvisioner.clusterName=east,hubProvisioner.namespace=cluster-east"

// TestChartMatchesKustomize compares each object of the rendered chart with that
// of a kustomization.
func TestChartMatchesKustomize(t *testing.T) {
	for _, c := range []struct {
		kustomization      string
		release, namespace string
		values             string
		more               []string // kustomizations that are applied beside it
	}{
		{kustomization: "config/default", release: "cadastre", namespace: "cadastre-system"},
		{kustomization: "config/overlays/cert-manager", release: "cadastre", namespace: "cadastre-system", values: "certManager.enabled=true"},
		{kustomization: "config/overlays/another-namespace", release: "ipam", namespace: "address-management", values: "serviceAccount.name=cadastre"},
		{kustomization: "config/default", release: "cadastre", namespace: "cadastre-system", values: "policies.mutating=true", more: []string{"config/policy/mutating"}},
		{kustomization: "config/overlays/prometheus", release: "cadastre", namespace: "cadastre-system", values: "metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true"},
		{kustomization: "config/default", release: "cadastre", namespace: "cadastre-system", values: "metrics.podMonitor.enabled=true", more: []string{"config/prometheus/pod-monitor"}},
		{kustomization: "config/default", release: "cadastre", namespace: "cadastre-system", values: "dashboards.enabled=true", more: []string{"config/dashboards"}},
		{kustomization: "config/overlays/api-servers-only", release: "cadastre", namespace: "cadastre-system", values: "networkPolicy.apiServerCIDRs={192.0.2.10/32}"},
		{kustomization: "config/overlays/hub-provisioner", release: "cadastre", namespace: "cadastre-system", values: east},
	} {
		t.Run(c.kustomization+" "+c.values, func(t *testing.T) {
			want := map[string]any{}
			for _, dir := range append(c.more, c.kustomization) {
				maps.Copy(want, byName(t, suite.Kustomized(t, dir), forKustomize))
			}
			got := byName(t, rendered(t, c.release, c.namespace, c.values), forHelm(t, c.release))
			if len(want) < 20 {
				t.Errorf("kustomize renders %d objects: %v", len(want), slices.Sorted(maps.Keys(want)))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what kustomize renders (-) is not what helm does (+):\n%s", diff)
			}
		})
	}
}

// TestAdditionsFollowOverlayNamespace adds the monitors, and the provisioner of a hub, to a copy of the
// overlay with other names, as a user does.
func TestAdditionsFollowOverlayNamespace(t *testing.T) {
	dir := t.TempDir()
	to, err := filepath.Rel(dir, filepath.Join(suite.ModuleRoot(t), "config"))
	suite.Must(t, err)
	file, err := os.ReadFile(filepath.Join(suite.ModuleRoot(t), "config/overlays/another-namespace/kustomization.yaml"))
	suite.Must(t, err)
	overlay := string(file)
	for text, values := range map[string]string{
		overlay + "components: [../../prometheus/service-monitor]\n":                   "metrics.serviceMonitor.enabled=true",
		overlay + "components: [../../prometheus/pod-monitor]\n":                       "metrics.podMonitor.enabled=true",
		overlay + "components: [../../prometheus/rules]\n":                             "metrics.alerts.enabled=true",
		strings.ReplaceAll(overlay, "../../default", "../../overlays/hub-provisioner"): east,
	} {
		text = strings.ReplaceAll(text, "../..", to)
		suite.Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
		want := byName(t, suite.Kustomized(t, dir), forKustomize)
		got := byName(t, rendered(t, "ipam", "address-management", "serviceAccount.name=cadastre", values), forHelm(t, "ipam"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: what kustomize renders (-) is not what helm does (+):\n%s", values, diff)
		}
	}
}

// TestEveryKustomizationRenders runs kustomize in every directory of config that has one.
func TestEveryKustomizationRenders(t *testing.T) {
	var dirs []string
	root := filepath.Join(suite.ModuleRoot(t), "config")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "kustomization.yaml" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return err
	})
	suite.Must(t, err)
	for _, want := range []string{"default", "overlays/prometheus", "prometheus/pod-monitor"} {
		if !slices.Contains(dirs, filepath.Join(root, want)) {
			t.Errorf("%s is not among the kustomizations %v", want, dirs)
		}
	}
	for _, dir := range dirs {
		if objects, err := manifests.Decode([]byte(suite.Kustomized(t, dir))); err != nil || len(objects) == 0 {
			t.Errorf("%s renders %d objects: %v", dir, len(objects), err)
		}
	}
}

// rendered returns the output of helm for the chart, with values in the form of --set, or of the
// flag that stands before them.
func rendered(t *testing.T, release, namespace string, values ...string) string {
	t.Helper()
	out, err := attempt(t, release, namespace, values...)
	suite.Must(t, err)
	return out
}

func attempt(t *testing.T, release, namespace string, values ...string) (string, error) {
	t.Helper()
	program, err := helm.New(suite.ModuleRoot(t), t.TempDir())
	suite.Must(t, err)
	args := []string{"template", release, filepath.Join(suite.ModuleRoot(t), Directory), "--namespace=" + namespace, "--set=" + image}
	for _, v := range values {
		if !strings.HasPrefix(v, "--") {
			v = "--set=" + v
		}
		args = append(args, v)
	}
	return program.Run(t.Context(), args...)
}

// byName returns the objects of manifests by kind, namespace and name, made alike; without those of
// which alike returns false.
func byName(t *testing.T, text string, alike func(*unstructured.Unstructured) bool) map[string]any {
	t.Helper()
	objects, err := manifests.Decode([]byte(text))
	suite.Must(t, err)
	all := map[string]any{}
	for _, obj := range objects {
		key := obj.GroupVersionKind().String() + " " + obj.GetNamespace() + "/" + obj.GetName()
		if alike(obj) {
			if _, twice := all[key]; twice {
				t.Errorf("%s occurs twice", key)
			}
			all[key] = obj.Object
		}
	}
	return all
}

// forKustomize leaves out the namespace, which Helm makes by --create-namespace.
func forKustomize(obj *unstructured.Unstructured) bool {
	eachContainer(obj, func(container map[string]any) {
		container["args"] = explicit(container["args"])
	})
	return obj.GetKind() != "Namespace"
}

// forHelm removes only the fields that Helm needs on all objects.
func forHelm(t *testing.T, release string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool {
		labels := obj.GetLabels()
		for label, want := range map[string]string{
			"app.kubernetes.io/instance": release, "app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version": "v0.1.0", "helm.sh/chart": "cadastre-0.1.0",
		} {
			if labels[label] != want {
				t.Errorf("%s %s has the label %s=%q, want %q", obj.GetKind(), obj.GetName(), label, labels[label], want)
			}
			delete(labels, label)
		}
		obj.SetLabels(labels)
		if obj.GetKind() == "CustomResourceDefinition" {
			annotations := obj.GetAnnotations()
			if annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("helm uninstall deletes %s, and the register with it", obj.GetName())
			}
			delete(annotations, "helm.sh/resource-policy")
			obj.SetAnnotations(annotations)
		}
		eachContainer(obj, func(container map[string]any) {
			container["args"] = explicit(container["args"])
			if container["imagePullPolicy"] != "IfNotPresent" { // the API server's own default
				t.Errorf("imagePullPolicy is %v", container["imagePullPolicy"])
			}
			delete(container, "imagePullPolicy")
		})
		return true
	}
}

func eachContainer(obj *unstructured.Unstructured, do func(map[string]any)) {
	containers, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "template", "spec", "containers")
	list, _ := containers.([]any)
	for _, container := range list {
		do(container.(map[string]any))
	}
}

// explicit returns flags in order, each with its value.
func explicit(args any) []string {
	var flags []string
	for _, arg := range args.([]any) {
		flag := arg.(string)
		if !strings.Contains(flag, "=") {
			flag += "=true"
		}
		flags = append(flags, flag)
	}
	slices.Sort(flags)
	return flags
}
