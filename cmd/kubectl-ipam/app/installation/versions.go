package installation

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	deployments := &appsv1.DeploymentList{}
	if reader.List(ctx, deployments, client.InNamespace(operator), Labels()) == nil {
		for i := range deployments.Items {
			v.Images = append(v.Images, imagesOf(deployments.Items[i].Spec.Template.Spec.Containers)...)
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
	d := Definition{
		Name: live.Name, Generator: live.Annotations["controller-gen.kubebuilder.io/version"],
		Same: len(c.lacks)+len(c.more) == 0, Lacks: c.lacks, Unknown: c.more,
	}
	for i := range live.Spec.Versions {
		if live.Spec.Versions[i].Served {
			d.Versions = append(d.Versions, live.Spec.Versions[i].Name)
		}
	}
	return d
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
func (d *Doctor) versions(ctx context.Context) []Check {
	const name = "versions"
	v := ReadVersions(ctx, d.Client, d.Operator, d.Version)
	switch v.Skew {
	case SkewUnsupported:
		return []Check{warned(name, "see kubectl ipam version", "%s", v.Message)}
	case SkewUnknown:
		return []Check{skipped(name, "%s", v.Message)}
	}
	return []Check{ok(name, "%s", v.Message)}
}
