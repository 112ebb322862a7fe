package messages

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Rules holds the CEL rules of one CRD, which the API server evaluates.
type Rules struct {
	Kind       string
	structural *schema.Structural
	validator  *cel.Validator
}

// RulesOf reads the rules of all CRDs, from the root of the module.
func RulesOf(root fs.FS) ([]Rules, error) {
	return eachFile(root, "config/crd/bases/*.yaml", rulesIn)
}

func rulesIn(text []byte) (Rules, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return Rules{}, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	stated := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(stated, internal, nil); err != nil {
		return Rules{}, err
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		return Rules{}, err
	}
	return Rules{definition.Spec.Names.Kind, structural, cel.NewValidator(structural, true, math.MaxInt64)}, nil
}

// Refuse returns the rows of the refusals of an object with this spec, in YAML, by the rules.
// The older spec is empty if the object is created.
func (r Rules) Refuse(ctx context.Context, spec, older string) ([]Row, error) {
	object, err := objectOf(r.Kind, spec)
	if err != nil {
		return nil, err
	}
	row := Row{Object: r.Kind, On: CreateOrUpdate, Answer: Invalid}
	var before any
	if older != "" {
		row.On = "update"
		if before, err = objectOf(r.Kind, older); err != nil {
			return nil, err
		}
	}
	errs, _ := r.validator.Validate(ctx, nil, r.structural, object, before, math.MaxInt64)
	rows := make([]Row, 0, len(errs))
	for _, e := range errs {
		row.Message, row.Value = e.Error(), ""
		if e.Type == field.ErrorTypeInvalid {
			row.Value = valueAt(object, e.Field)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// valueAt returns the field at a path such as spec.cidr, if it is a text. A number cannot be in
// the message of a rule: by the API server's estimate, to write one costs too much.
func valueAt(object map[string]any, path string) string {
	var at any = object
	for name := range strings.SplitSeq(path, ".") {
		fields, ok := at.(map[string]any)
		if !ok {
			return ""
		}
		at = fields[name]
	}
	text, _ := at.(string)
	return text
}

func objectOf(kind, spec string) (map[string]any, error) {
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	err = json.Unmarshal(text, &fields) // which keeps integers
	return map[string]any{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "a"}, "spec": fields}, err
}

// Templates returns the messages of the rules, each with the field that it is about.
func (r Rules) Templates() []Template {
	found := templatesOf(r.structural, "")
	for i := range found {
		found[i].At = r.Kind + " " + found[i].At
	}
	return found
}

func templatesOf(s *schema.Structural, path string) []Template {
	var found []Template
	for _, rule := range s.XValidations {
		message := rule.Message
		if message == "" {
			message = longest(rule.MessageExpression)
		}
		found = append(found, Template{At: path + rule.FieldPath, parts: []string{strings.TrimPrefix(path+rule.FieldPath, "."), message}})
	}
	for name, property := range s.Properties {
		found = append(found, templatesOf(&property, path+"."+name)...)
	}
	if s.Items != nil {
		found = append(found, templatesOf(s.Items, path)...)
	}
	return found
}

// longest returns the longest of the texts in an expression.
func longest(expression string) string {
	return slices.MaxFunc(strings.Split(expression, "'"), func(a, b string) int { return len(a) - len(b) })
}

// kindOf returns the kind of a resource that policies are about. A LocalIPPool is answered like
// an IPPool.
func kindOf(resource string) string {
	return map[string]string{
		"ipclaims": "IPClaim", "ippools": "IPPool", "localippools": "IPPool", "ipaddressclaims": "IPAddressClaim", "ipallocations": "IPAllocation",
		"clusters": "Cluster",
	}[resource]
}

// Policies returns the rows of the policies, from the root of the module.
func Policies(root fs.FS) ([]Row, error) {
	rows, err := eachFile(root, "config/policy/*.yaml", policiesIn)
	return slices.Concat(rows...), err
}

func policiesIn(text []byte) ([]Row, error) {
	var rows []Row
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		err := documents.Decode(policy)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		if policy.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		for _, validation := range policy.Spec.Validations {
			for _, object := range objectsOf(policy.Spec.MatchConstraints.ResourceRules, validation.Message) {
				rows = append(rows, Row{Object: object, On: requestsOf(validation.Expression), Answer: "403 Forbidden", Message: validation.Message})
			}
		}
	}
}

// requestsOf returns the requests that a validation can refuse.
func requestsOf(expression string) string {
	switch {
	case strings.Contains(expression, "request.operation == 'UPDATE'"):
		return "create"
	case strings.HasPrefix(expression, "request.operation == 'CREATE' ||"):
		return "update"
	case strings.Contains(expression, "request.operation == 'CREATE'"):
		return CreateOrUpdate
	}
	return "update"
}

// objectsOf returns the kinds that a message of a policy is about: the kinds that the policy is
// for, or the claim alone if the message is about a field that only a claim has.
func objectsOf(rules []admissionv1.NamedRuleWithOperations, message string) []string {
	var kinds []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			kinds = append(kinds, kindOf(resource))
		}
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	if strings.HasPrefix(message, "spec.") { // a claim of Cluster API has no such field
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "IPAddressClaim" })
	}
	if slices.Contains(kinds, "IPClaim") && (strings.HasPrefix(message, "status:") || strings.HasPrefix(message, "spec.allocationName:")) {
		return []string{"IPClaim"}
	}
	return kinds
}
