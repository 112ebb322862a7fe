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
	o := command.BindOutput(cmd)
	var operator string
	var clientOnly bool
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show the client's version, and ask no cluster")
	bindOperatorNamespace(cmd, &operator)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report := &VersionReport{TypeMeta: command.ReportType("VersionReport")}
		if clientOnly {
			report.Versions = installation.Versions{Client: version.Own(), Skew: installation.SkewUnknown, Message: "the cluster was not asked"}
			return e.Print(o, report)
		}
		doctor, err := doctor(cmd.Context(), e, operator)
		if err != nil {
			return err
		}
		report.Versions = installation.ReadVersions(cmd.Context(), doctor.Client, doctor.Operator, doctor.Version)
		return e.Print(o, report)
	}
	return cmd
}

// VersionReport holds the output of `version`.
type VersionReport struct {
	metav1.TypeMeta       `json:",inline"`
	installation.Versions `json:",inline"`
}

// Names implements command.Report.
func (r *VersionReport) Names() []string { return []string{r.Client} }

// Table implements command.Report.
func (r *VersionReport) Table(wide bool) *command.Table {
	t := &command.Table{Headers: []string{"PART", "VERSION"}}
	t.Add(command.Text("client"), command.Text("%s", r.Client))
	t.Add(command.Text("operator"), command.Text("%s", command.OrNone(r.Operator)))
	for _, image := range r.Images {
		t.Add(command.Text("operator image"), command.Text("%s", image))
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
		t.Add(command.Text("crd %s", plural), command.Text("%s%s", strings.Join(d.Versions, ", "), fields))
	}
	skew := command.Cell{Text: string(r.Skew)}
	if r.Skew == installation.SkewUnsupported {
		skew.Style = command.Bad
	}
	t.Add(command.Text("skew"), skew)
	t.Explain(r.Message)
	return t
}
