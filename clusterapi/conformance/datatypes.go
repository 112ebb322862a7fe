package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func dataTypeClauses() []Clause {
	return []Clause{
		{
			ID: "C01", Name: "kind_is_served", Level: Must, Section: dataTypes, Step: "1", prerequisite: true, definition: true, check: kindIsServed,
			Requires: "the API server serves the group and the kind of the pool",
		},
		{
			ID: "C02", Name: "CRD_has_standard_name", Level: Must, Section: dataTypes, Step: "2", definition: true, check: crdHasStandardName,
			Requires: "the pool is defined by a CRD whose name is computed from its group and kind by CalculateCRDName",
		},
		{
			ID: "C03", Name: "type_and_object_metadata", Level: Must, Section: dataTypes, Step: "3", definition: true, check: poolHasMetadata,
			Requires: "the pool has apiVersion, kind and metadata",
		},
		{
			ID: "C04", Name: "status_has_conditions", Level: Should, Section: dataTypes, Step: "4", definition: true, check: statusHasConditions,
			Requires: "the status of the pool has conditions",
		},
		{
			ID: "C05", Name: "pool_has_condition_Ready", Level: Should, Section: dataTypes, Step: "4.1", check: poolHasReady,
			Requires: "the pool has a condition Ready that sums up its state",
		},
	}
}

func kindIsServed(_ context.Context, t *trial) error {
	kind := t.pool.GroupVersionKind()
	_, err := t.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err
}

func crdHasStandardName(ctx context.Context, t *trial) error {
	name := contract.CalculateCRDName(t.pool.GroupVersionKind().Group, t.pool.GetKind())
	err := t.Get(ctx, client.ObjectKey{Name: name}, &apiextensionsv1.CustomResourceDefinition{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	other, err := t.definition(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("the CRD of %s is %s: want %s", t.pool.GetKind(), other.Name, name)
}

// definition returns the CRD of the pool, of any name.
func (t *trial) definition(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	all := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := t.List(ctx, all); err != nil {
		return nil, err
	}
	kind := t.pool.GroupVersionKind()
	for i, crd := range all.Items {
		if crd.Spec.Group == kind.Group && crd.Spec.Names.Kind == kind.Kind {
			return &all.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no CRD defines %s", kind.GroupKind())
}

// schema returns the schema of the pool in the version of the template.
func (t *trial) schema(ctx context.Context) (*apiextensionsv1.JSONSchemaProps, error) {
	crd, err := t.definition(ctx)
	if err != nil {
		return nil, err
	}
	for _, version := range crd.Spec.Versions {
		if version.Name == t.pool.GroupVersionKind().Version && version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
			return version.Schema.OpenAPIV3Schema, nil
		}
	}
	return nil, fmt.Errorf("the CRD %s has no schema for %s", crd.Name, t.pool.GroupVersionKind().Version)
}

func poolHasMetadata(ctx context.Context, t *trial) error {
	schema, err := t.schema(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, field := range []string{"apiVersion", "kind", "metadata"} {
		if !hasProperty(schema, field) {
			errs = append(errs, fmt.Errorf("the schema has no %s", field))
		}
	}
	return errors.Join(errs...)
}

// hasProperty reports whether objects of a schema can have a field.
func hasProperty(schema *apiextensionsv1.JSONSchemaProps, field string) bool {
	_, has := schema.Properties[field]
	return has || schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

// conditions reports whether the schema of the pool has status.conditions.
func (t *trial) conditions(ctx context.Context) (bool, error) {
	schema, err := t.schema(ctx)
	if err != nil || !hasProperty(schema, "status") {
		return false, err
	}
	status, has := schema.Properties["status"]
	return !has || hasProperty(&status, "conditions"), nil
}

func statusHasConditions(ctx context.Context, t *trial) error {
	has, err := t.conditions(ctx)
	if err == nil && !has {
		err = errors.New("the schema has no status.conditions")
	}
	return err
}

func poolHasReady(ctx context.Context, t *trial) error {
	has, err := t.conditions(ctx)
	if err != nil {
		return err
	}
	if !has {
		return skip("the pool has no status.conditions: see C04")
	}
	return t.until(ctx, func(ctx context.Context) error {
		pool := t.pool.DeepCopy()
		if err := t.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(pool.Object, "status", "conditions")
		if err != nil {
			return err
		}
		isReady := func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return fields["type"] == "Ready"
		}
		if !slices.ContainsFunc(conditions, isReady) {
			return fmt.Errorf("%s has the conditions %v: want one of type Ready", named(pool), conditions)
		}
		return nil
	})
}
