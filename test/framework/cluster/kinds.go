package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AwaitKinds waits until the API server serves all kinds that are defined. (kubectl wait
// fails on a definition that has no conditions yet.)
func (c *Cluster) AwaitKinds(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	reader, err := client.New(c.admin, client.Options{Scheme: scheme})
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
