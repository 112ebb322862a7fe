// Package chart writes the parts of the Helm chart that are generated, from the manifests
// of kustomize and from the operator's flags, so that the chart installs the same objects as the
// manifests.
package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // flags of --logging-format=json
	"sigs.k8s.io/yaml"

	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/operator"
)

// Directory is the directory of the chart, within the module.
const Directory = "config/charts/cadastre"

// template represents a generated file of the chart, with the objects that takes accepts.
type template struct {
	name string
	// condition is the expression under which the objects are installed; empty means always.
	condition string
	takes     func(*unstructured.Unstructured) bool
}

// templates returns the generated files, in the order in which they are tried for an object.
func templates() []template {
	return []template{
		{"in-cluster-pools.yaml", ".Values.inClusterPools.enabled", func(obj *unstructured.Unstructured) bool {
			return strings.Contains(obj.GetName(), "in-cluster-pool") || isOfProvider(obj)
		}},
		{"hub-provisioner-rbac.yaml", ".Values.hubProvisioner.enabled", func(obj *unstructured.Unstructured) bool { return obj.GetName() == hubProvisioner }},
		{"crds.yaml", ".Values.crds.install", ofKind("CustomResourceDefinition")},
		{"policies.yaml", "", ofKind("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")},
		{"mutating-policy.yaml", ".Values.policies.mutating", ofKind("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")},
		{"flow-control.yaml", ".Values.flowControl.enabled", ofKind("FlowSchema", "PriorityLevelConfiguration")},
		{"priority-class.yaml", `eq .Values.priorityClassName "cadastre"`, ofKind("PriorityClass")},
		{"webhooks.yaml", "", ofKind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")},
		{"rbac.yaml", "", func(obj *unstructured.Unstructured) bool {
			return obj.GetName() == "cadastre-manager" && ofKind("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")(obj) ||
				slices.Contains([]string{metricsReader, "cadastre-removal"}, obj.GetName()) && ofKind("ClusterRole")(obj)
		}},
		{"service-monitor.yaml", ".Values.metrics.serviceMonitor.enabled", ofKind("Service", "ServiceMonitor")},
		{"pod-monitor.yaml", ".Values.metrics.podMonitor.enabled", func(obj *unstructured.Unstructured) bool {
			return obj.GetName() == metricsReader || ofKind("PodMonitor")(obj)
		}},
		{"dashboards.yaml", ".Values.dashboards.enabled", ofKind("ConfigMap")},
		{"alerts.yaml", ".Values.metrics.alerts.enabled", ofKind("PrometheusRule")},
		{"user-roles.yaml", ".Values.userRoles.create", ofKind("ClusterRole")},
	}
}

// byHand reports whether the template of an object is written by hand, because its values change
// more of it than names.
func byHand(obj *unstructured.Unstructured) bool {
	switch obj.GetKind() {
	case "ServiceAccount":
		return obj.GetName() == account
	case "Service":
		return obj.GetName() == "cadastre-webhook-service"
	}
	return ofKind("Namespace", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "Issuer", "Certificate")(obj)
}

// isOfProvider reports whether an object is a CRD of the in-cluster provider. Such a CRD has no label of
// the release, so that nothing that is deleted by labels deletes it.
func isOfProvider(obj *unstructured.Unstructured) bool {
	return ofKind("CustomResourceDefinition")(obj) && strings.HasSuffix(obj.GetName(), "."+incluster.GroupVersion.Group)
}

func ofKind(kinds ...string) func(*unstructured.Unstructured) bool {
	return func(obj *unstructured.Unstructured) bool { return slices.Contains(kinds, obj.GetKind()) }
}

// WriteTemplates writes the templates of a chart in a directory for the objects that are
// installed without it.
func WriteTemplates(dir string, installed []byte) error {
	objects, err := manifests.Decode(installed)
	if err != nil {
		return err
	}
	files := map[string][]string{}
	for _, obj := range objects {
		index := slices.IndexFunc(templates(), func(t template) bool { return t.takes(obj) })
		switch {
		case byHand(obj):
		case index < 0:
			return fmt.Errorf("%s %s: no template of the chart has objects of this kind: add the kind to templates or byHand", obj.GetKind(), obj.GetName())
		default:
			text, err := generalize(obj)
			if err != nil {
				return err
			}
			name := templates()[index].name
			files[name] = append(files[name], text)
		}
	}
	for _, t := range templates() {
		if len(files[t.name]) == 0 {
			return fmt.Errorf("%s: the manifests have no object for it", t.name)
		}
		if err := os.WriteFile(filepath.Join(dir, "templates", t.name), []byte(t.text(files[t.name])), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// text returns the content of the file with the objects.
func (t template) text(objects []string) string {
	text := strings.Join(objects, "---\n")
	if t.condition != "" {
		text = "{{- if " + t.condition + " }}\n" + text + "{{- end }}\n"
	}
	return "{{- /* Generated from config/ by `make chart`: change it there. */ -}}\n" + text
}

// These are the names in the manifests, which a release of the chart replaces by its own.
const (
	namespace = "cadastre-system"
	account   = "cadastre-controller-manager"
)

// hubProvisioner is the name of the provisioner of a hub, and of its account and roles.
const hubProvisioner = "cadastre-hub-provisioner"

// metricsReader is the name of the role that reads metrics, and of the objects with which the
// PodMonitor reads them.
const metricsReader = "cadastre-metrics-reader"

// CommonLabels returns the labels on all objects of the manifests; the chart has a template for
// them.
func CommonLabels() []string { return []string{"app.kubernetes.io/name", "cluster.x-k8s.io/provider"} }

// These stand for templates while an object is marshaled: of the labels, of the interval of a monitor, and
// of the classes to which the provisioner of a hub can add pools.
const labelsMark, intervalMark, classesMark = "zz-common-labels", "zz-interval", "zz-classes"

// generalize returns the template of an object: with the labels of the release, and the names of
// its namespace and service account.
func generalize(obj *unstructured.Unstructured) (string, error) {
	obj = obj.DeepCopy()
	labels := obj.GetLabels()
	for _, common := range CommonLabels() {
		delete(labels, common)
	}
	if !isOfProvider(obj) {
		labels[labelsMark] = "x"
	}
	obj.SetLabels(labels)
	if obj.GetKind() == "CustomResourceDefinition" {
		annotations := obj.GetAnnotations()
		annotations["helm.sh/resource-policy"] = "keep"
		obj.SetAnnotations(annotations)
	}
	monitored := ofKind("ServiceMonitor", "PodMonitor", "PrometheusRule")(obj)
	if err := setInterval(obj); err != nil {
		return "", err
	}
	setClasses(obj)
	marshalled, err := yaml.Marshal(obj.Object)
	if err != nil {
		return "", err
	}
	text := strings.ReplaceAll(string(marshalled), "{{", `{{ "{{" }}`)
	labeled := "    {{- include \"cadastre.labels\" . | nindent 4 }}\n"
	if ofKind("ConfigMap")(obj) {
		labeled += "    {{- with .Values.dashboards.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n" +
			"  {{- with .Values.dashboards.annotations }}\n  annotations:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n"
	}
	if monitored {
		labeled += "    {{- with .Values.metrics.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n"
	}
	text = strings.ReplaceAll(text, "    "+labelsMark+": x\n", labeled)
	text = strings.ReplaceAll(text, "    interval: "+intervalMark+"\n",
		"    {{- with .Values.metrics.interval }}\n    interval: {{ . | quote }}\n    {{- end }}\n")
	text = strings.ReplaceAll(text, "  resourceNames:\n  - "+classesMark+"\n",
		"  {{- with .Values.hubProvisioner.classes }}\n  resourceNames:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n")
	return certified(named(text)), nil
}

// setClasses marks the names of the classes in the role of the provisioner of a hub.
func setClasses(obj *unstructured.Unstructured) {
	rules, _, _ := unstructured.NestedSlice(obj.Object, "rules") // only roles have some
	for _, rule := range rules {
		if r := rule.(map[string]any); obj.GetName() == hubProvisioner && slices.Equal(r["verbs"].([]any), []any{"provision"}) {
			r["resourceNames"] = []any{classesMark}
			obj.Object["rules"] = rules
		}
	}
}

// setInterval marks the interval of the endpoints of a monitor.
func setInterval(obj *unstructured.Unstructured) error {
	for _, field := range []string{"endpoints", "podMetricsEndpoints"} {
		endpoints, found, err := unstructured.NestedSlice(obj.Object, "spec", field)
		if err != nil || !found {
			continue // an object of another kind
		}
		for _, endpoint := range endpoints {
			endpoint.(map[string]any)["interval"] = intervalMark
		}
		if err := unstructured.SetNestedSlice(obj.Object, endpoints, "spec", field); err != nil {
			return err
		}
	}
	return nil
}

// named replaces the namespace and the service account in a text by the names of the release. It
// quotes a name that is a whole value, because it can look like a number.
func named(text string) string {
	const ofNamespace, ofAccount = ".Release.Namespace", `include "cadastre.serviceAccountName" .`
	whole := func(name string) *regexp.Regexp { return regexp.MustCompile(`(?m)^( *(?:[a-zA-Z]+:|-) )` + name + `$`) }
	text = whole(namespace).ReplaceAllString(text, "${1}{{ "+ofNamespace+" | quote }}")
	text = whole(account).ReplaceAllString(text, "${1}{{ "+ofAccount+" | quote }}")
	text = strings.ReplaceAll(text, namespace, "{{ "+ofNamespace+" }}")
	return strings.ReplaceAll(text, account, "{{ "+ofAccount+" }}")
}

// certified makes the annotation for cert-manager depend on whether cert-manager issues the
// certificate.
func certified(text string) string {
	annotation := regexp.MustCompile(`(?m)^  annotations:\n    cert-manager\.io/inject-ca-from: .*\n`)
	return annotation.ReplaceAllString(text, "  {{- if .Values.certManager.enabled }}\n$0  {{- end }}\n")
}

// Derived returns the flags that no value sets, because they follow from other settings: the
// namespace of the release, serviceAccount.name, the name of the Service, and inClusterPools. kubeconfig is for
// programs that do not run in a cluster.
func Derived() []string {
	return []string{"operator-namespace", "service-account", "webhook-service-name", "in-cluster-pools", "kubeconfig"}
}

// Flags returns the operator's flags that are values of the chart.
func Flags() []*pflag.Flag {
	set := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	new(operator.Options).Bind(set)
	logsv1.AddFlags(logs.NewOptions(), set)
	var flags []*pflag.Flag
	set.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(Derived(), flag.Name) && !flag.Hidden {
			flags = append(flags, flag)
		}
	})
	return flags
}

// schemaOf returns the JSON schema of a flag's value.
func schemaOf(flag *pflag.Flag) map[string]any {
	schema := map[string]any{"description": flag.Usage, "type": []any{"string", "null"}}
	switch flag.Value.Type() {
	case "bool":
		schema["type"] = []any{"boolean", "null"}
	case "int", "int32", "uint32", "Level":
		schema["type"] = []any{"integer", "null"}
	case "duration":
		schema["pattern"] = `^([0-9.]+(ns|us|ms|s|m|h))+$`
	}
	if isAddress(flag.Name) {
		schema["pattern"] = `:[0-9]+$`
	}
	return schema
}

// isAddress reports whether a flag is an address whose port the Pod must name.
func isAddress(flag string) bool { return flag == "health-addr" || flag == "diagnostics-address" }

const schemaFile = "values.schema.json"

// WriteSchema writes the operator's flags into the schema of the values of a chart. The rest of
// the schema is written by hand, and stays.
func WriteSchema(dir string) error {
	schema, err := readSchema(dir)
	if err != nil {
		return err
	}
	flags := map[string]any{}
	for _, flag := range Flags() {
		flags[flag.Name] = schemaOf(flag)
	}
	if err := unstructured.SetNestedMap(schema, flags, "properties", "flags", "properties"); err != nil {
		return fmt.Errorf("%s: %w", schemaFile, err)
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, schemaFile), append(text, '\n'), 0o644)
}

func readSchema(dir string) (map[string]any, error) {
	text, err := os.ReadFile(filepath.Join(dir, schemaFile))
	if err != nil {
		return nil, err
	}
	schema := map[string]any{}
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("%s: %w", schemaFile, err)
	}
	return schema, nil
}
