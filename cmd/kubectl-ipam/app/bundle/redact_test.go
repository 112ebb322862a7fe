package bundle

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestSecretFieldsAreRedacted(t *testing.T) {
	for name, text := range map[string]string{
		"a copy of the applied object":         "{kind: IPPool, metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: hush, kept: a}}}",
		"the managers of the fields":           "{kind: IPPool, kept: a, metadata: {managedFields: [{manager: hush}]}}",
		"the path of a webhook":                "{kind: MutatingWebhookConfiguration, webhooks: [{name: kept, clientConfig: {service: {path: /hush/a}}}]}",
		"the URL of a webhook":                 "{kind: ValidatingWebhookConfiguration, webhooks: [{name: kept, clientConfig: {url: 'https://kept/hush'}}]}",
		"the bundle of a webhook":              "{kind: ValidatingWebhookConfiguration, webhooks: [{name: kept, clientConfig: {caBundle: hush}}]}",
		"the environment of a container":       "{kind: Deployment, spec: {template: {spec: {containers: [{env: [{name: kept, value: hush}]}]}}}}",
		"the environment of an init container": "{kind: Pod, spec: {initContainers: [{env: [{name: kept, value: hush}]}]}}",
		"the schema of a CRD, for its size":    "{kind: CustomResourceDefinition, spec: {versions: [{name: kept, schema: hush}]}}",
	} {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
			t.Fatal(err)
		}
		Redact(obj)
		got, err := yaml.Marshal(obj.Object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got), "hush") || !strings.Contains(string(got), "kept") {
			t.Errorf("%s: became %s", name, got)
		}
	}
}

func TestSecretPatternsAreFiltered(t *testing.T) {
	path := strings.Repeat("a", 26)
	configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{
		map[string]any{"clientConfig": map[string]any{"service": map[string]any{"path": "/hush/mutate"}}},
	}}}
	var f Filter
	f.LearnPaths(configuration)
	for name, c := range map[string]struct{ text, want string }{
		"a path that is known":   {"Post https://a/hush/mutate: EOF", "Post https://a/<redacted>/mutate: EOF"},
		"a path by its form":     {"Post https://a/" + path + "/mutate: EOF", "Post https://a/<redacted>/mutate: EOF"},
		"a token":                {"token eyJhbGciOi.eyJpc3Mi.c2ln-_ end", "token <redacted> end"},
		"a header":               {"Authorization: Bearer abc.def end", "Authorization: Bearer <redacted> end"},
		"a password in a URL":    {"proxy http://user:hush@proxy:3128 end", "proxy http://<redacted>@proxy:3128 end"},
		"a key":                  {"a -----BEGIN EC PRIVATE KEY-----\nhuh\n-----END EC PRIVATE KEY----- b", "a <redacted> b"},
		"a key that is cut off":  {"a -----BEGIN PRIVATE KEY-----\nhuh", "a <redacted>"},
		"the end of a key":       {"1999-01-01T00:00:00Z huh+/=\n-----END PRIVATE KEY-----\n\"b\"", "<redacted>\n\"b\""},
		"a text without secrets": {"claim team-a/x holds 10.0.0.0/24: 2001:db8::/64", "claim team-a/x holds 10.0.0.0/24: 2001:db8::/64"},
	} {
		if got := f.Text(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
