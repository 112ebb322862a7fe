package bundle

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// redacted replaces a removed value.
const redacted = "<redacted>"

// hidden is the annotation that holds a copy of all fields.
const hidden = "kubectl.kubernetes.io/last-applied-configuration"

// Redact takes out of an object the fields that hold secrets, and the managed fields.
func Redact(obj *unstructured.Unstructured) {
	obj.SetManagedFields(nil)
	annotations := obj.GetAnnotations()
	if _, has := annotations[hidden]; has {
		annotations[hidden] = redacted
		obj.SetAnnotations(annotations)
	}
	switch obj.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		eachMap(obj.Object, redactWebhook, "webhooks")
	case "CustomResourceDefinition":
		eachMap(obj.Object, func(version map[string]any) { delete(version, "schema") }, "spec", "versions")
		unstructured.RemoveNestedField(obj.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	case "Deployment":
		redactPod(obj.Object, "spec", "template", "spec")
	case "Pod":
		redactPod(obj.Object, "spec")
	}
}

func redactWebhook(webhook map[string]any) {
	config, _ := webhook["clientConfig"].(map[string]any)
	if config == nil {
		return
	}
	for _, field := range []string{"caBundle", "url"} {
		if config[field] != nil {
			config[field] = redacted
		}
	}
	if service, _ := config["service"].(map[string]any); service != nil && service["path"] != nil {
		service["path"] = redacted
	}
}

// redactPod takes out the values of environment variables: the values for proxies may have
// passwords.
func redactPod(object map[string]any, fields ...string) {
	for _, containers := range []string{"containers", "initContainers", "ephemeralContainers"} {
		eachMap(object, func(container map[string]any) {
			eachMap(container, func(variable map[string]any) {
				if variable["value"] != nil {
					variable["value"] = redacted
				}
			}, "env")
		}, append(append([]string{}, fields...), containers)...)
	}
}

// eachMap calls do for every map of a list in an object. The changes of do stay in the object.
func eachMap(object map[string]any, do func(map[string]any), fields ...string) {
	list, found, _ := unstructured.NestedFieldNoCopy(object, fields...)
	items, isList := list.([]any)
	if !found || !isList {
		return
	}
	for _, item := range items {
		if fields, isMap := item.(map[string]any); isMap {
			do(fields)
		}
	}
}

// Filter takes secrets out of texts. The zero value knows secrets by their form only.
type Filter struct{ secrets []string }

// LearnPaths adds the secrets in the paths of webhook configurations to the filter, before they
// are redacted.
func (f *Filter) LearnPaths(configuration *unstructured.Unstructured) {
	eachMap(configuration.Object, func(webhook map[string]any) {
		path, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if secret, _, nested := strings.Cut(strings.Trim(path, "/"), "/"); nested {
			f.secrets = append(f.secrets, secret)
		}
	}, "webhooks")
}

// aSecret lists the forms of secrets: the first element of a webhook's path, tokens, passwords in
// URLs, private keys.
var aSecret = []struct { //nolint:gochecknoglobals // compiled once
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`/[a-z2-7]{26}/`), "/" + redacted + "/"},
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]*`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic) +[\w.~+/=-]+`), "$1 " + redacted},
	{regexp.MustCompile(`://[^/\s:@"]+:[^/\s@"]+@`), "://" + redacted + "@"},
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), redacted},
	// A key that begins before the text.
	{regexp.MustCompile(`[\w+/=:.\s-]*-----END [A-Z ]*PRIVATE KEY-----`), redacted},
}

// Text returns a text without its secrets.
func (f *Filter) Text(text string) string {
	for _, secret := range f.secrets {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	for _, s := range aSecret {
		text = s.pattern.ReplaceAllString(text, s.replacement)
	}
	return text
}
