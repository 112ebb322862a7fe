package apireference

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

const (
	root = "../.."
	page = "docs/api.md"
)

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	must.Succeed(t, err)
	return string(text)
}

func readAPI(t *testing.T) *API {
	t.Helper()
	api, err := Read(root)
	must.Succeed(t, err)
	return api
}

// TestEveryReasonBelongsToCondition fails for a new reason that the comment of no condition lists.
func TestEveryReasonBelongsToCondition(t *testing.T) {
	api, used := readAPI(t), map[string]bool{}
	if len(api.Conditions) < 5 || len(api.Reasons) < 20 {
		t.Fatalf("found %d conditions and %d reasons only", len(api.Conditions), len(api.Reasons))
	}
	for _, condition := range api.Conditions {
		if condition.Meaning == "" || len(condition.Uses) == 0 {
			t.Errorf("the comment of the condition %s does not state its meaning, or its reasons", condition.Type)
		}
		for _, use := range condition.Uses {
			for _, reason := range use.Reasons {
				used[reason] = true
				if api.Reasons[reason] == "" {
					t.Errorf("the condition %s lists %s, which is no reason, or one without a comment", condition.Type, reason)
				}
			}
			if !strings.Contains(strings.Join(kinds(), "|"), use.Kinds) {
				t.Errorf("the condition %s has %q, which is no column of the table", condition.Type, use.Kinds)
			}
		}
	}
	for reason := range api.Reasons {
		if !used[reason] {
			t.Errorf("no condition lists the reason %s", reason)
		}
	}
}

// field represents a row of a table of fields.
type field struct{ kind, standard, validation string }

// fields returns the rows of the page, by type and field.
func fields(t *testing.T) map[string]map[string]field {
	t.Helper()
	heading := regexp.MustCompile(`^##+ (\w+)$`)
	row := regexp.MustCompile("^\\| `(\\w+)` \\| (.*) \\| (.*) \\| (.*) \\| (.*) \\|$")
	all, typeName := map[string]map[string]field{}, ""
	for line := range strings.Lines(readPage(t)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "/")
		if match := heading.FindStringSubmatch(line); match != nil {
			typeName = match[1]
			all[typeName] = map[string]field{}
		} else if match := row.FindStringSubmatch(line); match != nil && typeName != "" {
			all[typeName][match[1]] = field{kind: match[2], standard: match[4], validation: match[5]}
		}
	}
	return all
}

// TestPageMatchesCRDSchemas walks through the schemas of all CRDs.
func TestPageMatchesCRDSchemas(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d CRDs: %v", len(files), err)
	}
	checked := &comparison{TB: t, fields: fields(t)}
	for _, path := range files {
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		must.Succeed(t, yaml.UnmarshalStrict(text, &crd))
		for _, version := range crd.Spec.Versions {
			checked.object(crd.Spec.Names.Kind, *version.Schema.OpenAPIV3Schema)
		}
	}
	if checked.immutable < 30 {
		t.Errorf("compared %d fields that do not change, which are too few to be all", checked.immutable)
	}
}

// comparison compares schemas with the rows of the page.
type comparison struct {
	testing.TB
	fields    map[string]map[string]field
	immutable int
}

// linked matches the type of a field that has another section.
var linked = regexp.MustCompile(`^\[(\w+)\]\(#\w+\)`)

func (c *comparison) object(typeName string, schema apiextensionsv1.JSONSchemaProps) {
	for name, property := range schema.Properties {
		row, ok := c.fields[typeName][name]
		if !ok {
			c.Errorf("%s has no row for %s of %s: run make docs", page, name, typeName)
			continue
		}
		if slices.Contains(schema.Required, name) && !strings.HasPrefix(row.validation, "Required") {
			c.Errorf("%s does not state that %s.%s is required", page, typeName, name)
		}
		c.compare(typeName+"."+name, row, property)
		c.unchanging(typeName, name, row, schema, property)
		items := property
		if property.Items != nil {
			items = *property.Items.Schema
		}
		if match := linked.FindStringSubmatch(row.kind); match != nil && len(items.Properties) > 0 {
			c.object(match[1], items)
		}
	}
}

// compare compares a row with the default and the bounds of a field.
func (c *comparison) compare(name string, row field, property apiextensionsv1.JSONSchemaProps) {
	if standard := property.Default; standard != nil {
		var value any
		if err := json.Unmarshal(standard.Raw, &value); err != nil {
			c.Fatal(err)
		}
		if want := fmt.Sprintf("`%v`", value); row.standard != want {
			c.Errorf("%s gives %s the default %q, want %s", page, name, row.standard, want)
		}
	}
	bounds := map[string]*int64{"max length": property.MaxLength, "min length": property.MinLength, "max items": property.MaxItems, "max entries": property.MaxProperties}
	for word, value := range map[string]*float64{"max": property.Maximum, "min": property.Minimum} {
		if value != nil {
			bounds[word] = new(int64(*value))
		}
	}
	for word, value := range bounds {
		if value == nil {
			continue
		}
		if want := fmt.Sprintf("%s: %d", word, *value); !strings.Contains(row.validation, want) {
			c.Errorf("%s describes %s as %q, which lacks %q", page, name, row.validation, want)
		}
	}
	for _, value := range property.Enum {
		if want := strings.Trim(string(value.Raw), `"`); !strings.Contains(row.validation, want) {
			c.Errorf("%s describes %s as %q, which lacks the value %s", page, name, row.validation, want)
		}
	}
}

// unchanging compares whether a field can change, by its rules and those of its object.
func (c *comparison) unchanging(of, name string, row field, schema, property apiextensionsv1.JSONSchemaProps) {
	for _, rule := range property.XValidations {
		if rule.Rule == "self == oldSelf" {
			c.says(of, name, row)
		}
	}
	for _, rule := range schema.XValidations {
		if rule.FieldPath == "."+name && strings.Contains(rule.Rule, "oldSelf") {
			c.says(of, name, row)
		}
	}
}

func (c *comparison) says(of, name string, row field) {
	c.immutable++
	if !strings.Contains(row.validation, "is immutable") {
		c.Errorf("%s does not state that %s.%s is immutable: %q", page, of, name, row.validation)
	}
}
