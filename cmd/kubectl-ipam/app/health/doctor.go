// Package health implements the commands that examine an installation: doctor, check,
// support-bundle and version.
package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// defaultWait is the time that --wait waits if it has no value.
const defaultWait = 5 * time.Minute

// NewDoctor returns the command doctor.
func NewDoctor(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that Cadastre is installed, runs and is protected",
		Long: `Check that Cadastre is installed, runs and is protected: CRDs, webhooks and their CA
bundles, certificate, admission policies and their bindings, replicas and leader, versions,
rights, flow control, Cluster API's in-cluster provider if Cadastre serves its pools, and a claim
and a forged record as dry runs. Nothing is changed.

What you may not read is skipped. With few rights, the dry run of a claim in your
namespace (-n) still shows whether the webhooks answer.

Exit codes: 0, nothing has failed; 8, something has; 124, something still had at the end
of the time of --wait.`,
		Example: `  # What is wrong?
  kubectl ipam doctor

  # In a script that installs Cadastre: until it is ready, for 10 minutes at most
  kubectl ipam doctor --wait=10m

  # As a user who may only use a namespace
  kubectl ipam doctor -n team-a`,
	}
	o := command.BindOutput(cmd)
	var operator string
	var timeout time.Duration
	cmd.Flags().DurationVar(&timeout, "wait", 0, "check again until nothing fails, for so long at most")
	cmd.Flags().Lookup("wait").NoOptDefVal = defaultWait.String()
	bindOperatorNamespace(cmd, &operator)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if timeout < 0 {
			return command.Coded(command.ExitUsage, errors.New("--wait: is negative: give a time such as 5m"))
		}
		doctor, err := doctor(cmd.Context(), e, operator)
		if err != nil {
			return err
		}
		report, err := diagnose(cmd.Context(), doctor, timeout)
		if err != nil {
			return err
		}
		if err := e.Print(o, report); err != nil {
			return err
		}
		return report.result(timeout)
	}
	return cmd
}

// doctor returns a Doctor for the caller's cluster and namespace.
func doctor(ctx context.Context, e *command.Env, operator string) (*installation.Doctor, error) {
	c, namespace, operator, err := target(ctx, e, operator)
	if err != nil {
		return nil, err
	}
	return &installation.Doctor{
		Client: c, Namespace: namespace, Operator: operator, ServiceAccount: installation.AccountIn(ctx, c, operator),
		Version: version.Own(), Now: e.Server.Now,
	}, nil
}

// target returns a client of the caller, the caller's namespace, and the operator's: the one that
// the flag names, or else the one that is found.
func target(ctx context.Context, e *command.Env, flag string) (c client.Client, namespace, operator string, err error) {
	c, namespace, err = e.ClientAndNamespace()
	if err == nil && flag == "" {
		flag = installation.Namespace(ctx, c)
	}
	return c, namespace, flag, err
}

// bindOperatorNamespace binds the flag for the operator's namespace.
func bindOperatorNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "operator-namespace", "", "namespace of the operator. Default: that of its webhooks' Service or of its Deployment, else "+manifests.DefaultNamespace)
}

// diagnose makes all checks. With a time to wait, it repeats them until none fails or the time is
// over.
func diagnose(ctx context.Context, doctor *installation.Doctor, timeout time.Duration) (*DoctorReport, error) {
	report := reportOfDoctor(doctor.Run(ctx))
	if timeout == 0 {
		return report, nil
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pause := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Steps: 100, Cap: 5 * time.Second}
	err := pause.DelayFunc().Until(limited, true, true, func(ctx context.Context) (bool, error) {
		checks := doctor.Run(ctx)
		if limited.Err() == nil { // otherwise the time limit cut the checks short
			report = reportOfDoctor(checks)
		}
		return len(report.Names()) == 0, nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // the report names the failures
	}
	return report, err
}

// DoctorReport holds the output of `doctor`.
type DoctorReport struct {
	metav1.TypeMeta `json:",inline"`
	Checks          []installation.Check `json:"checks"`
}

func reportOfDoctor(checks []installation.Check) *DoctorReport {
	return &DoctorReport{TypeMeta: command.ReportType("DoctorReport"), Checks: checks}
}

func (r *DoctorReport) result(waited time.Duration) error {
	n := len(r.Names())
	switch {
	case n == 0:
		return nil
	case waited > 0:
		return command.Coded(command.ExitTimedOut, fmt.Errorf("%s failed after %s", ipam.FormatNumber(n, "check still", "checks still"), waited))
	}
	return command.Coded(command.ExitUnhealthy, fmt.Errorf("%s failed: see each for what to do", ipam.FormatCount(n, "check")))
}

// Names implements command.Report: it returns the checks that have failed.
func (r *DoctorReport) Names() []string {
	var names []string
	for i := range r.Checks {
		if r.Checks[i].Result == installation.ResultFailed {
			names = append(names, r.Checks[i].Name)
		}
	}
	return names
}

// Table implements command.Report.
func (r *DoctorReport) Table(bool) *command.Table {
	t := &command.Table{Headers: []string{"CHECK", "RESULT", "MESSAGE"}}
	styles := map[installation.Result]command.Style{
		installation.ResultOK: command.Good, installation.ResultWarning: command.Warning, installation.ResultFailed: command.Bad, installation.ResultSkipped: command.Faint,
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		short, long := c.Message, ""
		if utf8.RuneCountInString(short) > command.LineWidth {
			short, long = "", short+": "
		}
		t.Add(command.Cell{Text: c.Name}, command.Cell{Text: string(c.Result), Style: styles[c.Result]}, command.Cell{Text: short})
		t.Explain(strings.TrimSuffix(long+c.Remedy, ": "))
	}
	return t
}
