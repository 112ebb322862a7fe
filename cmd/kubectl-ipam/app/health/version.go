package health

import (
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// NewVersion returns the command version.
func NewVersion(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of client, operator and CRDs, and whether they fit",
		Long: `Show the versions of client, operator and CRDs, and whether they fit. The operator's is
that of the replica that leads, from its lease. A client works with an operator of the
minor version before or after its own, and with CRDs that have all fields that it knows.`,
		Example: `  # All versions
  kubectl ipam version

  # This client alone, without asking the cluster
  kubectl ipam version --client`,
	}
	var operator string
	var clientOnly bool
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show the client's version, and ask no cluster")
	bindOperatorNamespace(cmd, &operator)
	e.RunReport(cmd, func(cmd *cobra.Command, _ []string) (command.Report, error) {
		if clientOnly {
			return reportOfVersions(installation.Versions{Client: version.Own(), Skew: installation.SkewUnknown, Message: "the cluster was not asked"}), nil
		}
		c, _, operator, err := target(cmd.Context(), e, operator)
		if err != nil {
			return nil, err
		}
		return reportOfVersions(installation.ReadVersions(cmd.Context(), c, operator, version.Own())), nil
	})
	return cmd
}

// VersionReport holds the output of `version`.
type VersionReport struct {
	metav1.TypeMeta       `json:",inline"`
	installation.Versions `json:",inline"`
}

func reportOfVersions(versions installation.Versions) *VersionReport {
	return &VersionReport{TypeMeta: command.ReportType("VersionReport"), Versions: versions}
}

// Names implements command.Report.
func (r *VersionReport) Names() []string { return []string{r.Client} }

// Table implements command.Report.
func (r *VersionReport) Table(wide bool) *command.Table {
	t := &command.Table{Headers: []string{"PART", "VERSION"}}
	t.Add(command.Texts("client", r.Client)...)
	t.Add(command.Texts("operator", r.Operator)...)
	for _, image := range r.Images {
		t.Add(command.Texts("operator image", image)...)
	}
	for i := range r.Definitions {
		d := &r.Definitions[i]
		plural, _, _ := strings.Cut(d.Name, ".")
		fields := ", the fields that this client knows"
		if !d.Same {
			fields = ", other fields than this client knows"
		}
		if wide {
			fields += ", made by controller-gen " + command.OrNone(d.Generator)
		}
		t.Add(command.Texts("crd "+plural, strings.Join(d.Versions, ", ")+fields)...)
	}
	skew := command.Cell{Text: string(r.Skew)}
	if r.Skew == installation.SkewUnsupported {
		skew.Style = command.Bad
	}
	t.Add(command.Text("skew"), skew)
	t.Explain(r.Message)
	return t
}
