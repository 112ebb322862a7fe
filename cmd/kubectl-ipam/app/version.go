package app

import (
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/version"
)

func newVersion(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of client, operator and CRDs, and whether they fit",
		Long: `Show the versions of client, operator and CRDs, and whether they fit. The operator's is
that of the replica that leads, as its lease says. A client works with an operator of the
minor version before or after its own, and with CRDs that have all fields that it knows.`,
		Example: `  # All versions
  kubectl ipam version

  # This client alone, without asking the cluster
  kubectl ipam version --client`,
	}
	o := bindOutput(cmd)
	var operator string
	var clientOnly bool
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show the client's version, and ask no cluster")
	bindOperatorNamespace(cmd, &operator)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report := &VersionReport{TypeMeta: reportType("VersionReport")}
		if clientOnly {
			report.Versions = installation.Versions{Client: version.Own(), Skew: installation.SkewUnknown, Message: "the cluster was not asked"}
			return e.print(o, report)
		}
		doctor, err := e.doctor(cmd.Context(), operator)
		if err != nil {
			return err
		}
		report.Versions = installation.ReadVersions(cmd.Context(), doctor.Client, doctor.Operator, doctor.Version)
		return e.print(o, report)
	}
	return cmd
}

// VersionReport is what `version` prints.
type VersionReport struct {
	metav1.TypeMeta       `json:",inline"`
	installation.Versions `json:",inline"`
}

func (r *VersionReport) names() []string { return []string{r.Client} }

func (r *VersionReport) table(wide bool) *table {
	t := &table{headers: []string{"PART", "VERSION"}}
	t.add(text("client"), text("%s", r.Client))
	t.add(text("operator"), text("%s", orNone(r.Operator)))
	for _, image := range r.Images {
		t.add(text("operator image"), text("%s", image))
	}
	for i := range r.Definitions {
		d := &r.Definitions[i]
		plural, _, _ := strings.Cut(d.Name, ".")
		fields := ", the fields that this client knows"
		if !d.Same {
			fields = ", other fields than this client knows"
		}
		if wide {
			fields += ", made by controller-gen " + orNone(d.Generator)
		}
		t.add(text("crd %s", plural), text("%s%s", strings.Join(d.Versions, ", "), fields))
	}
	skew := cell{text: string(r.Skew)}
	if r.Skew == installation.SkewUnsupported {
		skew.style = bad
	}
	t.add(text("skew"), skew)
	t.explain(r.Message)
	return t
}
