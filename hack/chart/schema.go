package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
