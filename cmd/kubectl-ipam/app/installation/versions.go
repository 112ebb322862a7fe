package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// versionLabel is the label for the version on the leader's lease.
const versionLabel = "app.kubernetes.io/version"

// Skew represents the difference between versions.
type Skew string

// The differences between versions.
const (
	// SkewNone means that all known versions are equal.
	SkewNone Skew = "None"
	// SkewSupported means that the versions differ, and work with each other.
	SkewSupported Skew = "Supported"
	// SkewUnsupported means that the versions differ by more than a minor version, or that the
	// CRDs lack fields that the client or the operator needs.
	SkewUnsupported Skew = "Unsupported"
	// SkewUnknown means that too little is known.
	SkewUnknown Skew = "Unknown"
)

// Versions holds the versions of all parts.
type Versions struct {
	// Client is the version of this program.
	Client string `json:"client"`
	// Operator is the leader's version according to its lease; empty if that is not known.
	Operator string `json:"operator,omitempty"`
	// Images are the images of the operator's Deployment.
	Images []string `json:"images,omitempty"`
	// Definitions are the CRDs; empty if the caller cannot read them.
	Definitions []Definition `json:"crds,omitempty"`
	Skew        Skew         `json:"skew"`
	// Message describes the difference.
	Message string `json:"message"`
}

// Definition holds the version of a CRD.
type Definition struct {
	Name string `json:"name"`
	// Versions are the served versions of the API.
	Versions []string `json:"versions"`
	// Generator is the version of controller-gen that made it.
	Generator string `json:"generator,omitempty"`
	// Same reports whether it has exactly the fields that this client knows.
	Same bool `json:"same"`
	// Lacks are the fields that it lacks, and Unknown the fields that this client does not know.
	Lacks   []string `json:"lacks,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
}

// ReadVersions reads the versions that the caller can read.
func ReadVersions(ctx context.Context, reader client.Reader, operator, own string) Versions {
	v := Versions{Client: own}
	lease := &coordinationv1.Lease{}
	if reader.Get(ctx, client.ObjectKey{Namespace: operator, Name: LeaseName}, lease) == nil {
		v.Operator = strings.Replace(lease.Labels[versionLabel], "_", "+", 1)
	}
	found, _ := deployments(ctx, reader, operator)
	for i := range found {
		for _, container := range found[i].Spec.Template.Spec.Containers {
			v.Images = append(v.Images, container.Image)
		}
	}
	for _, shipped := range manifests.Definitions() {
		live := &apiextensionsv1.CustomResourceDefinition{}
		if reader.Get(ctx, client.ObjectKey{Name: shipped.Name}, live) == nil {
			v.Definitions = append(v.Definitions, definitionOf(live, &shipped))
		}
	}
	v.Skew, v.Message = judgeVersions(&v)
	return v
}

func definitionOf(live, shipped *apiextensionsv1.CustomResourceDefinition) Definition {
	c := compareDefinitions(live, shipped)
	return Definition{
		Name: live.Name, Versions: servedVersions(live, ""), Generator: live.Annotations["controller-gen.kubebuilder.io/version"],
		Same: len(c.lacks)+len(c.more) == 0, Lacks: c.lacks, Unknown: c.more,
	}
}

// judgeVersions judges whether the parts work with each other. A client works with an operator of
// the minor version before or after its own, and with CRDs that have its fields.
func judgeVersions(v *Versions) (Skew, string) {
	for i := range v.Definitions {
		if d := &v.Definitions[i]; len(d.Lacks) > 0 {
			return SkewUnsupported, d.Name + " lacks " + ipam.FirstFew(d.Lacks) + ": apply the CRDs of the operator's version"
		}
	}
	newer := slices.IndexFunc(v.Definitions, func(d Definition) bool { return len(d.Unknown) > 0 })
	client, clientErr := utilversion.ParseSemantic(v.Client)
	operator, operatorErr := utilversion.ParseSemantic(v.Operator)
	switch {
	case v.Operator == "":
		return SkewUnknown, "the operator's version is not known: no replica leads, or you may not read its lease"
	case clientErr != nil || operatorErr != nil:
		if v.Client == v.Operator {
			return SkewNone, "client and operator are of the same build"
		}
		return SkewUnknown, "client or operator are of no released version"
	case client.Major() != operator.Major() || distance(client.Minor(), operator.Minor()) > 1:
		return SkewUnsupported, "client and operator differ by more than a minor version: use a client of the operator's version"
	case newer >= 0:
		return SkewSupported, v.Definitions[newer].Name + " has " + ipam.FirstFew(v.Definitions[newer].Unknown) + ", which this client does not know"
	case v.Client != v.Operator:
		return SkewSupported, "client and operator differ, and work with each other"
	}
	return SkewNone, "client and operator are of the same version"
}

func distance(a, b uint) uint { return max(a, b) - min(a, b) }

// versions checks that the parts work with each other.
func (d *Doctor) versions(ctx context.Context) Check {
	const name = "versions"
	v := ReadVersions(ctx, d.Client, d.Operator, d.Version)
	switch v.Skew {
	case SkewUnsupported:
		return warned(name, "see kubectl ipam version", "%s", v.Message)
	case SkewUnknown:
		return skipped(name, "%s", v.Message)
	}
	return ok(name, "%s", v.Message)
}

// definitions checks the CRDs.
func (d *Doctor) definitions(ctx context.Context) []Check {
	var checks []Check
	for _, shipped := range manifests.Definitions() {
		name := "crd/" + shipped.Spec.Names.Plural
		live := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: shipped.Name}}
		if bad := d.get(ctx, live, failed(name, remedyManifests, "")); bad != nil {
			checks = append(checks, *bad)
			continue
		}
		checks = append(checks, judgeDefinition(name, live, &shipped))
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
	return ok(name, "serves %s, as this client knows it", strings.Join(servedVersions(live, " (stored)"), ", "))
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

// servedVersions returns the names of the served versions. suffix marks the stored one if there
// are several versions.
func servedVersions(live *apiextensionsv1.CustomResourceDefinition, suffix string) []string {
	var all []string
	for i := range live.Spec.Versions {
		v := &live.Spec.Versions[i]
		switch {
		case v.Served && v.Storage && len(live.Spec.Versions) > 1:
			all = append(all, v.Name+suffix)
		case v.Served:
			all = append(all, v.Name)
		}
	}
	return all
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
	for _, name := range sets.List(sets.KeySet(live.Properties).Union(sets.KeySet(shipped.Properties))) {
		got, has := live.Properties[name]
		want, knows := shipped.Properties[name]
		inner := strings.TrimPrefix(path+"."+name, ".")
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
