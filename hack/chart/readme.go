package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
)

// WriteReadme writes the table of values into the README of a chart, from the schema of the
// values and their defaults.
func WriteReadme(dir string) error {
	schema, err := readSchema(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return err
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("values.yaml: %w", err)
	}
	for _, flag := range Flags() { // the operator's own defaults, if the chart has none
		if _, set, _ := unstructured.NestedFieldNoCopy(values, "flags", flag.Name); !set {
			_ = unstructured.SetNestedField(values, flag.DefValue, "flags", flag.Name)
		}
	}
	table := "| value | default | |\n|---|---|---|\n" + strings.Join(rows(schema, values, ""), "")
	return document.SpliceFile(filepath.Join(dir, "README.md"), "values", table)
}

// rows returns the rows of the table for the properties of a schema, in the order of their names.
func rows(schema map[string]any, defaults any, prefix string) []string {
	var all []string
	properties, _, _ := unstructured.NestedMap(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property := properties[name].(map[string]any)
		byName, _ := defaults.(map[string]any)
		usual := byName[name]
		if _, nested := property["properties"]; nested {
			all = append(all, rows(property, usual, prefix+name+".")...)
			continue
		}
		description, _ := property["description"].(string)
		all = append(all, fmt.Sprintf("| `%s%s` | %s | %s |\n", prefix, name, shown(usual), cell(description)))
	}
	return all
}

// cell returns a text as a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// shown returns a default value as a cell of the table.
func shown(value any) string {
	switch text, isText := value.(string); {
	case value == nil, isText && text == "":
		return "none"
	case isText:
		return "`" + text + "`"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return "`" + string(text) + "`"
}
