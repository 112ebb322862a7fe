package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/audit"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// defaultGrace is twice the grace of the operator, because a new leader restarts the grace.
const defaultGrace = 6 * time.Minute

// checkFlags holds the flags of check.
type checkFlags struct {
	audit.Options
	reports, compared []string
	release           bool
	operator          string
}

// NewCheck returns the command check.
func NewCheck(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare records, holders and pools with each other",
		Long: `Compare records, holders and pools with each other, and report what does not agree:
blocks that overlap or lie outside their pool, records without holder or pool, claims,
pools and addresses without record, blocks that are kept for too long, and gateways that
a claim holds.

Notes are no findings: addresses that were handed out
with another gateway, name server, MTU or VLAN than their pool has by now, and blocks that
overlap one of another routing domain.

What is under way is not reported. A record may be without a holder for --grace, and
anything that is wrong must stay so for --settle.

A finding that two reports have in common is no passing state. With --compare, check lists
which records may be released, and how; --release does it. This applies to retained blocks
whose time is over, or whose pool is gone, and to records that cannot be read: those that
the operator lets a person delete. It deletes nothing else.

Exit codes: 0, nothing is wrong, whatever is noted; 8, something is; 5, nothing is wrong in
what you may read, and you may not read everything.`,
		Example: `  # Is anything wrong?
  kubectl ipam check

  # Write a report, and release a while later what is wrong still
  kubectl ipam check --report monday.json
  kubectl ipam check --compare monday.json
  kubectl ipam check --compare monday.json --release`,
	}
	o := command.BindOutput(cmd)
	var f checkFlags
	flags := cmd.Flags()
	flags.DurationVar(&f.Grace, "grace", defaultGrace, "how long a record may be without a holder, or past its time: more than the operator's --orphan-grace, which is 3 minutes")
	flags.DurationVar(&f.Settle, "settle", 30*time.Second, "how long anything must stay wrong to be reported")
	flags.StringArrayVar(&f.reports, "report", nil, "write the report to a file, as JSON; can be given several times")
	flags.StringArrayVar(&f.compared, "compare", nil, "a report of an earlier check: a finding that is in all of them too may be released; can be given several times")
	flags.BoolVar(&f.release, "release", false, "release the records that --compare lists for release")
	bindOperatorNamespace(cmd, &f.operator)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.release && len(f.compared) == 0 {
			return command.Coded(command.ExitUsage, errors.New("--release: needs --compare with the report of an earlier check, so that nothing is released that is wrong for a moment only"))
		}
		return check(cmd.Context(), e, o, &f)
	}
	return cmd
}

// bindOperatorNamespace binds the flag for the operator's namespace.
func bindOperatorNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "operator-namespace", "", "namespace of the operator. Default: that of its webhooks' Service or of its Deployment, else "+manifests.DefaultNamespace)
}

func check(ctx context.Context, e *command.Env, o *command.Output, f *checkFlags) error {
	earlier, err := readReports(f.compared)
	if err != nil {
		return err
	}
	report, err := readAudit(ctx, e, f)
	if err != nil {
		return err
	}
	report.compare(earlier)
	for _, path := range f.reports {
		if err := report.writeTo(path); err != nil {
			return err
		}
	}
	if f.release {
		if err := releaseFound(ctx, e, report); err != nil {
			return err
		}
	}
	if err := e.Print(o, report); err != nil {
		return err
	}
	noteCheck(e, report, f)
	return report.result()
}

// readAudit reads the objects that the caller can read, and judges them.
func readAudit(ctx context.Context, e *command.Env, f *checkFlags) (*CheckReport, error) {
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	namespace, err := e.Namespace()
	if err != nil {
		return nil, err
	}
	operator := f.operator
	if operator == "" {
		operator = installation.Namespace(ctx, c)
	}
	reader := &audit.Reader{
		Client: c, Namespace: namespace, Now: e.Server.Now,
		LeaderSince: func(ctx context.Context) time.Time { return installation.LeaderSince(ctx, c, operator) },
	}
	snapshot, findings, underWay, err := audit.Watch(ctx, reader.Read, f.Options)
	if err != nil {
		return nil, err
	}
	return reportOfCheck(snapshot, findings, underWay), nil
}

// noteCheck notes beside the report which objects were not checked, and which actions can follow.
func noteCheck(e *command.Env, r *CheckReport, f *checkFlags) {
	if len(r.NotChecked) > 0 {
		e.Note("not checked, as you may not list them: %s", strings.Join(r.NotChecked, ", "))
	}
	if r.UnderWay > 0 {
		e.Note("not judged yet: %s without holder, because --grace is %s, and neither the record nor the operator's leader is as old", ipam.FormatCount(r.UnderWay, "record"), f.Grace)
	}
	if len(f.compared) == 0 || f.release {
		return
	}
	switch commands := r.commands(); len(commands) {
	case 0:
		e.Note("nothing that is in all reports is for a person to release")
	default:
		e.Note("in all reports, and for a person to release, or all of them at once with --release:")
		for _, command := range commands {
			fmt.Fprintln(e.ErrOut, "  "+command)
		}
	}
}
