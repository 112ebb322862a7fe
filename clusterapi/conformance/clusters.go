package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The kind of the infrastructure of the kit's Clusters. No object of it exists.
const (
	infrastructureGroup = "infrastructure.conformance.example.com"
	infrastructureKind  = "ConformanceCluster"
)

// infrastructure returns the CRD of that kind. Cluster API needs it to convert Clusters for providers
// that read v1beta1.
func infrastructure() *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(infrastructureKind) + "s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:   plural + "." + infrastructureGroup,
			Labels: map[string]string{"cluster.x-k8s.io/v1beta1": "v1", "cluster.x-k8s.io/v1beta2": "v1"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: infrastructureGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: infrastructureKind, ListKind: infrastructureKind + "List", Plural: plural, Singular: strings.ToLower(infrastructureKind),
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

// installInfrastructure creates the CRD, if it does not exist, and waits until it is served.
func (t *trial) installInfrastructure(ctx context.Context) error {
	crd := infrastructure()
	if err := t.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := t.watch(t.watching, &apiextensionsv1.CustomResourceDefinitionList{}, client.MatchingFields{"metadata.name": crd.Name}); err != nil {
		return err
	}
	return t.until(ctx, func(ctx context.Context) error {
		if err := t.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		isEstablished := func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}
		if !slices.ContainsFunc(crd.Status.Conditions, isEstablished) {
			return fmt.Errorf("the CRD %s is not established", crd.Name)
		}
		return nil
	})
}

// Close removes the CRD that the kit's Clusters need.
func (k *Kit) Close(ctx context.Context) error {
	return client.IgnoreNotFound(k.target.Client.Delete(ctx, infrastructure()))
}

// pause states the ways in which a Cluster is paused.
type pause struct{ field, annotation bool }

// cluster creates a Cluster whose infrastructure does not exist.
func (t *trial) cluster(ctx context.Context, name string, paused pause) (*clusterv1.Cluster, error) {
	if err := t.installInfrastructure(ctx); err != nil {
		return nil, fmt.Errorf("preparing a Cluster: %w", err)
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrastructureGroup, Kind: infrastructureKind, Name: name}
	if paused.field {
		cluster.Spec.Paused = new(true)
	}
	if paused.annotation {
		cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	}
	return cluster, t.Create(ctx, cluster)
}

// annotate sets the annotation that pauses, or removes it if the value is null.
func (t *trial) annotate(ctx context.Context, object client.Object, value string) error {
	return t.Patch(ctx, object, merge(`{"metadata":{"annotations":{"`+clusterv1.PausedAnnotation+`":`+value+`}}}`))
}

// resume ends the pause of a Cluster.
func (t *trial) resume(ctx context.Context, cluster *clusterv1.Cluster) error {
	return client.IgnoreNotFound(t.Patch(ctx, cluster, merge(`{"metadata":{"annotations":{"`+clusterv1.PausedAnnotation+`":null}},"spec":{"paused":null}}`)))
}
