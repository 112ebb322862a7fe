package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// AwaitKinds waits until the API server serves all kinds that are defined. (kubectl wait
// fails on a definition that has no conditions yet.)
func (c *Cluster) AwaitKinds(ctx context.Context) error {
	reader, err := NewClient(c.admin)
	if err != nil {
		return err
	}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		err := reader.List(ctx, definitions)
		return err == nil && !slices.ContainsFunc(definitions.Items, isNotServed), err
	})
	if err != nil {
		return fmt.Errorf("waiting until all kinds are served: %w", err)
	}
	return nil
}

func isNotServed(definition apiextensionsv1.CustomResourceDefinition) bool {
	return !apihelpers.IsCRDConditionTrue(&definition, apiextensionsv1.Established)
}
