// Package manifests reads the manifests that are embedded in the programs, for an operator
// under an account, and lists the differences between them and the objects of a cluster.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/cadastre-dev/cadastre/config"
)

// The namespace and the service account that the manifests name. An operator may have others.
const (
	DefaultNamespace = "cadastre-system"
	ServiceAccount   = "cadastre-controller-manager"
)

// The names of the webhook configurations. The API server calls mutating webhooks in the order of
// these names: those of Clusters before Cluster API's own, capi-*, and the others after all
// webhooks of other parties.
const (
	MutatingWebhooks   = "zz-cadastre-mutating-webhook-configuration"
	ClusterWebhooks    = "aa-cadastre-cluster"
	ValidatingWebhooks = "cadastre-validating-webhook-configuration"
)

// Account represents the service account under which an operator runs.
type Account struct{ Namespace, Name string }

// replaceIn returns manifests that name the account in place of the default one, as kustomize, Helm
// and clusterctl write them.
func (a Account) replaceIn(manifest []byte) []byte {
	return []byte(strings.NewReplacer(DefaultNamespace, a.Namespace, ServiceAccount, a.Name).Replace(string(manifest)))
}

// The manifests are embedded, so that an error in them is one of the program: these
// functions panic on it.

// Definitions returns the CRDs, in the order of their names.
func Definitions() []apiextensionsv1.CustomResourceDefinition {
	return decodeFiles[apiextensionsv1.CustomResourceDefinition](config.CRDs, "crd/bases/*.yaml", "CustomResourceDefinition", nil)
}

// Policies returns the admission policies for an operator under an account.
func Policies(operator Account) []admissionv1.ValidatingAdmissionPolicy {
	return decodeFiles[admissionv1.ValidatingAdmissionPolicy](config.Policies, "policy/*.yaml", "ValidatingAdmissionPolicy", operator.replaceIn)
}

// Webhook holds a webhook as it is shipped, of either kind of configuration.
type Webhook struct {
	admissionv1.ValidatingWebhook
	Reinvocation *admissionv1.ReinvocationPolicyType
}

// Webhooks returns the webhooks of a configuration for an operator under an account, by their
// names. Their conditions are in a patch of the same names.
func Webhooks(configuration string, operator Account) map[string]*Webhook {
	webhooks := map[string]*Webhook{}
	for _, manifest := range [][]byte{config.Webhooks, config.ClusterWebhooks, config.MatchConditions} {
		for _, obj := range mustDecode(operator.replaceIn(manifest)) {
			if obj.GetName() != configuration {
				continue
			}
			read := typed[admissionv1.MutatingWebhookConfiguration](obj) // has all fields of the other kind
			for i := range read.Webhooks {
				w := &read.Webhooks[i]
				if existing := webhooks[w.Name]; existing != nil {
					existing.MatchConditions = w.MatchConditions
				} else {
					webhooks[w.Name] = WebhookOf(w)
				}
			}
		}
	}
	return webhooks
}

// WebhookOf converts a mutating webhook: it copies the fields that validating webhooks have
// too, and the reinvocation policy.
func WebhookOf(w *admissionv1.MutatingWebhook) *Webhook {
	return &Webhook{Reinvocation: w.ReinvocationPolicy, ValidatingWebhook: admissionv1.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
		TimeoutSeconds: w.TimeoutSeconds, MatchConditions: w.MatchConditions,
	}}
}

// OperatorRoles returns the rules of the operator's roles, by namespace; the empty one for
// rules that hold in all.
func OperatorRoles(operator Account) map[string][]rbacv1.PolicyRule {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, obj := range mustDecode(operator.replaceIn(config.OperatorRoles)) {
		role := typed[rbacv1.Role](obj)
		rules[role.Namespace] = append(rules[role.Namespace], role.Rules...)
	}
	return rules
}

// UserRoles returns the roles for people.
func UserRoles() []rbacv1.ClusterRole {
	var roles []rbacv1.ClusterRole
	for _, obj := range mustDecode(config.UserRoles) {
		roles = append(roles, *typed[rbacv1.ClusterRole](obj))
	}
	return roles
}

func decodeFiles[T any](files fs.FS, pattern, kind string, change func([]byte) []byte) []T {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		panic(err)
	}
	var all []T
	for _, name := range names {
		manifest, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		if change != nil {
			manifest = change(manifest)
		}
		for _, obj := range mustDecode(manifest) {
			if obj.GetKind() == kind {
				all = append(all, *typed[T](obj))
			}
		}
	}
	return all
}

func mustDecode(manifest []byte) []*unstructured.Unstructured {
	objects, err := Decode(manifest)
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, firstLine(manifest)))
	}
	return objects
}

// Decode returns the objects of a manifest.
func Decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		obj := &unstructured.Unstructured{}
		switch err := decoder.Decode(&obj.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decoding a manifest: %w", err)
		case len(obj.Object) > 0:
			objects = append(objects, obj)
		}
	}
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// typed converts an object, and panics on a field that its type does not have.
func typed[T any](obj *unstructured.Unstructured) *T {
	result := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, result, true); err != nil {
		panic(err)
	}
	return result
}

// Schemas validates objects as the API server will once they are admitted: if it would refuse
// an object then, the object must not be recorded now. The CEL rules, which cost more, are left
// to the API server; package convert states the same for created objects.
type Schemas map[string]kindSchema

type kindSchema struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
}

// NewSchemas returns the schemas of the CRDs, by kind.
func NewSchemas() Schemas {
	all := Schemas{}
	for _, definition := range Definitions() {
		kind := definition.Spec.Names.Kind
		s, err := newSchema(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if err != nil {
			panic(fmt.Sprintf("the schema of %s: %v", kind, err))
		}
		all[kind] = s
	}
	return all
}

func newSchema(stated *apiextensionsv1.JSONSchemaProps) (kindSchema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(stated, internal, nil); err != nil {
		return kindSchema{}, err
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return kindSchema{}, err
	}
	structural, err := schema.NewStructural(internal)
	return kindSchema{validator: validator, structural: structural}, err
}

// Errors returns the errors for which the API server will refuse an object.
func (s Schemas) Errors(kind string, object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, s[kind].validator)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, s[kind].structural, object)...)
}
