package installation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// definitions checks the CRDs.
func (d *Doctor) definitions(ctx context.Context) []Check {
	var checks []Check
	for _, shipped := range manifests.Definitions() {
		name := "crd/" + shipped.Spec.Names.Plural
		live := &apiextensionsv1.CustomResourceDefinition{}
		err := d.Client.Get(ctx, client.ObjectKey{Name: shipped.Name}, live)
		switch {
		case apierrors.IsNotFound(err):
			checks = append(checks, failed(name, remedyManifests, "there is no CustomResourceDefinition %s", shipped.Name))
		case err != nil:
			checks = append(checks, unread(name, "CustomResourceDefinition "+shipped.Name, err))
		default:
			checks = append(checks, judgeDefinition(name, live, &shipped))
		}
	}
	return checks
}

func judgeDefinition(name string, live, shipped *apiextensionsv1.CustomResourceDefinition) Check {
	if why := notServed(live); why != "" {
		return failed(name, "see kubectl describe crd "+live.Name, "%s", why)
	}
	c := compareDefinitions(live, shipped)
	switch {
	case len(c.lacks) > 0:
		return failed(name, "apply the CRDs of the operator's version", "lacks %s", ipam.FirstFew(c.lacks))
	case len(c.more) > 0:
		return warned(name, "use a client of the operator's version", "has %s, which this client does not know", ipam.FirstFew(c.more))
	case len(c.differs) > 0:
		return warned(name, "apply the CRDs of the operator's version", "has other rules than this client knows for %s", ipam.FirstFew(c.differs))
	case live.Labels[contractLabel] == "":
		return warned(name, remedyManifests, "lacks the label %s, by which Cluster API finds the version of its contract", contractLabel)
	}
	return ok(name, "%s, as this client knows it", served(live))
}

// contractLabel lists the versions that implement a contract of Cluster API.
const contractLabel = "cluster.x-k8s.io/v1beta2"

// notServed returns the reason why the API server does not serve a CRD, or "" if it does.
func notServed(live *apiextensionsv1.CustomResourceDefinition) string {
	if !live.DeletionTimestamp.IsZero() {
		return "is being deleted, with all its objects"
	}
	for _, condition := range live.Status.Conditions {
		wanted := condition.Type == apiextensionsv1.Established || condition.Type == apiextensionsv1.NamesAccepted
		if wanted && condition.Status != apiextensionsv1.ConditionTrue || condition.Type == apiextensionsv1.NonStructuralSchema && condition.Status == apiextensionsv1.ConditionTrue {
			return fmt.Sprintf("is not served: %s: %s", condition.Reason, condition.Message)
		}
	}
	if len(live.Status.Conditions) == 0 {
		return "is not served yet"
	}
	return ""
}

// served lists the served versions, and marks the stored one.
func served(live *apiextensionsv1.CustomResourceDefinition) string {
	var all []string
	for i := range live.Spec.Versions {
		v := &live.Spec.Versions[i]
		switch {
		case v.Served && v.Storage && len(live.Spec.Versions) > 1:
			all = append(all, v.Name+" (stored)")
		case v.Served:
			all = append(all, v.Name)
		}
	}
	return "serves " + strings.Join(all, ", ")
}

// comparison holds the differences between an installed CRD and the shipped one, by fields such as
// spec.cidr.
type comparison struct{ lacks, more, differs []string }

// compareDefinitions compares the versions that both have, and names the parts that only one has.
func compareDefinitions(live, shipped *apiextensionsv1.CustomResourceDefinition) comparison {
	var c comparison
	if live.Spec.Scope != shipped.Spec.Scope {
		c.lacks = append(c.lacks, fmt.Sprintf("the scope %s", shipped.Spec.Scope))
	}
	if conversion := live.Spec.Conversion; conversion != nil && conversion.Strategy != apiextensionsv1.NoneConverter {
		c.more = append(c.more, "a conversion by "+string(conversion.Strategy))
	}
	versions := map[string]*apiextensionsv1.CustomResourceDefinitionVersion{}
	for i := range live.Spec.Versions {
		versions[live.Spec.Versions[i].Name] = &live.Spec.Versions[i]
	}
	for i := range shipped.Spec.Versions {
		want := &shipped.Spec.Versions[i]
		got := versions[want.Name]
		delete(versions, want.Name)
		if got == nil || !got.Served && want.Served {
			c.lacks = append(c.lacks, "the version "+want.Name)
			continue
		}
		c.version(got, want)
	}
	for name := range versions {
		c.more = append(c.more, "the version "+name)
	}
	slices.Sort(c.more)
	return c
}

func (c *comparison) version(live, shipped *apiextensionsv1.CustomResourceDefinitionVersion) {
	if live.Storage != shipped.Storage {
		c.differs = append(c.differs, "the version that is stored")
	}
	if (live.Subresources == nil || live.Subresources.Status == nil) != (shipped.Subresources == nil || shipped.Subresources.Status == nil) {
		c.lacks = append(c.lacks, "the status subresource as shipped")
	}
	for _, field := range shipped.SelectableFields {
		if !slices.Contains(live.SelectableFields, field) {
			c.lacks = append(c.lacks, "the selectable field "+field.JSONPath)
		}
	}
	if live.Schema == nil || shipped.Schema == nil {
		return
	}
	c.schema("", live.Schema.OpenAPIV3Schema, shipped.Schema.OpenAPIV3Schema)
}

// schema compares a field and the fields in it. It ignores descriptions: they differ if comments
// were improved.
func (c *comparison) schema(path string, live, shipped *apiextensionsv1.JSONSchemaProps) {
	if live == nil || shipped == nil {
		return
	}
	names := map[string]bool{}
	for name := range shipped.Properties {
		names[name] = true
	}
	for name := range live.Properties {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		got, has := live.Properties[name]
		want, knows := shipped.Properties[name]
		inner := join(path, name)
		switch {
		case !has:
			c.lacks = append(c.lacks, inner)
		case !knows:
			c.more = append(c.more, inner)
		default:
			c.schema(inner, &got, &want)
		}
	}
	if live.Items != nil && shipped.Items != nil {
		c.schema(path+"[]", live.Items.Schema, shipped.Items.Schema)
	}
	if !equality.Semantic.DeepEqual(shallow(live), shallow(shipped)) {
		c.differs = append(c.differs, path)
	}
}

// shallow returns a copy of a field without the fields in it.
func shallow(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	own := s.DeepCopy()
	own.Properties, own.Items, own.Description = nil, nil, ""
	return own
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
