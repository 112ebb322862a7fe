package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/audit"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/ipam"
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
	c, namespace, operator, err := target(ctx, e, f.operator)
	if err != nil {
		return nil, err
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
	found := r.forRelease()
	if len(found) == 0 {
		e.Note("nothing that is in all reports is for a person to release")
		return
	}
	e.Note("in all reports, and for a person to release, or all of them at once with --release:")
	for _, f := range found {
		fmt.Fprintf(e.ErrOut, "  kubectl ipam release -n %s ipallocation/%s\n", f.Object.Namespace, f.Object.Name)
	}
}

// CheckReport holds the output of `check`, which is also the content of the files of --report.
type CheckReport struct {
	metav1.TypeMeta `json:",inline"`
	// ReadAt is the API server's time when the last look began.
	ReadAt metav1.Time `json:"readAt"`
	// Checked counts the objects that were read.
	Checked CheckedObjects `json:"checked"`
	// NotChecked names the kinds that the caller cannot list.
	NotChecked []string `json:"notChecked,omitempty"`
	// UnderWay is the number of records without holder that are too young to be judged.
	UnderWay int            `json:"underWay,omitempty"`
	Findings []CheckFinding `json:"findings"`
}

// CheckedObjects counts objects by kind.
type CheckedObjects struct {
	IPAllocations   int `json:"ipAllocations"`
	IPClaims        int `json:"ipClaims"`
	Pools           int `json:"pools"`
	IPAddressClaims int `json:"ipAddressClaims"`
	IPAddresses     int `json:"ipAddresses"`
}

// CheckFinding holds a finding and its outcome.
type CheckFinding struct {
	audit.Finding `json:",inline"`
	// Repeated reports whether all reports of --compare have the finding too.
	Repeated bool `json:"repeated,omitempty"`
	// Released reports whether --release has released it.
	Released bool `json:"released,omitempty"`
}

const kindCheckReport = "CheckReport"

func reportOfCheck(s *audit.Snapshot, findings []audit.Finding, underWay int) *CheckReport {
	r := &CheckReport{
		TypeMeta: command.ReportType(kindCheckReport), ReadAt: metav1.NewTime(s.Now.UTC()), UnderWay: underWay,
		Checked: CheckedObjects{
			IPAllocations: len(s.Records) + len(s.Unreadable), IPClaims: len(s.Claims), Pools: len(s.Pools),
			IPAddressClaims: len(s.AddressClaims), IPAddresses: len(s.Addresses),
		},
		Findings: make([]CheckFinding, 0, len(findings)),
	}
	for _, unread := range s.Unread {
		what := unread.Resource
		if unread.Namespace != "" {
			what += " outside namespace " + unread.Namespace
		}
		r.NotChecked = append(r.NotChecked, what)
	}
	for i := range findings {
		r.Findings = append(r.Findings, CheckFinding{Finding: findings[i]})
	}
	return r
}

// readReports reads files of --report.
func readReports(paths []string) ([]*CheckReport, error) {
	var reports []*CheckReport
	for _, path := range paths {
		text, err := os.ReadFile(path) //nolint:gosec // the caller names it
		if err != nil {
			return nil, command.Coded(command.ExitUsage, fmt.Errorf("--compare: %w", err))
		}
		report := &CheckReport{}
		if err := json.Unmarshal(text, report); err != nil || report.Kind != kindCheckReport || report.APIVersion != command.ReportVersion {
			return nil, command.Coded(command.ExitUsage, fmt.Errorf("--compare %s: is no report of kubectl ipam check: name a file that --report has written", path))
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// compare marks the findings that all earlier reports have too.
func (r *CheckReport) compare(earlier []*CheckReport) {
	if len(earlier) == 0 {
		return
	}
	common := r.found()
	for _, report := range earlier {
		common = audit.Both(common, report.found())
	}
	for i := range r.Findings {
		r.Findings[i].Repeated = len(audit.Both([]audit.Finding{r.Findings[i].Finding}, common)) > 0
	}
}

func (r *CheckReport) found() []audit.Finding {
	found := make([]audit.Finding, len(r.Findings))
	for i := range r.Findings {
		found[i] = r.Findings[i].Finding
	}
	return found
}

// writeTo writes the report as JSON.
func (r *CheckReport) writeTo(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// forRelease returns the findings that can be released: they are no passing state, and only a
// person can delete them.
func (r *CheckReport) forRelease() []*CheckFinding {
	var found []*CheckFinding
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Repeated && f.Releasable && !f.Released {
			found = append(found, f)
		}
	}
	return found
}

// releaseFound deletes the records of the findings that can be released, if they are still the
// objects that were judged.
func releaseFound(ctx context.Context, e *command.Env, r *CheckReport) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	for _, f := range r.forRelease() {
		if err := releaseUnchanged(ctx, c, f); err != nil {
			return fmt.Errorf("releasing %s: %w", f.Object, err)
		}
		f.Released = true
		e.Note("released %s", f.Object)
	}
	return nil
}

// releaseUnchanged deletes a record in its present state, if a person can still delete that state:
// a claim may have taken it over since it was judged.
func releaseUnchanged(ctx context.Context, c client.Client, f *CheckFinding) error {
	record := &v1alpha1.IPAllocation{}
	err := c.Get(ctx, client.ObjectKey{Namespace: f.Object.Namespace, Name: f.Object.Name}, record)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if f.Kind != audit.RecordUnreadable && record.Spec.State != v1alpha1.AllocationRetained {
		return command.Coded(command.ExitConflict, fmt.Errorf("it is %s by now: run the check again", record.Spec.State))
	}
	uid := types.UID(f.Object.UID)
	err = c.Delete(ctx, record, client.Preconditions{UID: &uid, ResourceVersion: &record.ResourceVersion})
	return client.IgnoreNotFound(err)
}

// result returns the error with which the check ends.
func (r *CheckReport) result() error {
	wrong := 0
	for i := range r.Findings {
		if f := &r.Findings[i]; !f.Released && !f.IsNote() {
			wrong++
		}
	}
	switch {
	case wrong > 0:
		return command.Coded(command.ExitUnhealthy, fmt.Errorf("%s: see each for what to do", ipam.FormatCount(wrong, "finding")))
	case len(r.NotChecked) > 0:
		return command.Coded(command.ExitForbidden, errors.New("nothing is wrong in what you may read, and not everything was checked: run it as a user who may list all that is named above, such as one with the role ipam-pool-admin"))
	}
	return nil
}

// Names implements command.Report.
func (r *CheckReport) Names() []string {
	var names []string
	for i := range r.Findings {
		if o := &r.Findings[i].Object; o.Kind != audit.KindDomain { // a routing domain is no object
			names = append(names, strings.ToLower(o.Kind)+"/"+o.Name)
		}
	}
	return names
}

// Table implements command.Report.
func (r *CheckReport) Table(wide bool) *command.Table {
	t := &command.Table{Headers: []string{"SEVERITY", "FINDING", "OBJECT"}, Empty: r.agreement()}
	if wide {
		t.Headers = append(t.Headers, "UID", "BLOCK", "REPEATED", "MESSAGE")
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		severity := command.Cell{Text: string(f.Severity), Style: styleOfSeverity(f.Severity)}
		cells := []command.Cell{severity, {Text: string(f.Kind)}, command.Text("%s", f.Object)}
		if wide {
			t.Add(append(cells, command.Text("%s", f.Object.UID), command.Cell{Text: command.OrNone(f.Block)}, command.Text("%t", f.Repeated), command.Cell{Text: f.Message})...)
			continue
		}
		t.Add(cells...)
		t.Explain(f.Message)
	}
	if !slices.ContainsFunc(r.Findings, func(f CheckFinding) bool { return !f.IsNote() }) {
		t.Footer = r.agreement()
	}
	return t
}

func styleOfSeverity(s audit.Severity) command.Style {
	switch s {
	case audit.SeverityError:
		return command.Bad
	case audit.SeverityNote:
		return command.Plain
	default:
		return command.Warning
	}
}

// agreement returns a summary of the checked objects, for a report in which nothing is wrong.
func (r *CheckReport) agreement() string {
	c := &r.Checked
	parts := []string{ipam.FormatCount(c.IPAllocations, "record"), ipam.FormatCount(c.IPClaims, "claim"), ipam.FormatCount(c.Pools, "pool")}
	if c.IPAddressClaims+c.IPAddresses > 0 {
		parts = append(parts, ipam.FormatCount(c.IPAddressClaims, "claim")+" of Cluster API", ipam.FormatNumber(c.IPAddresses, "address", "addresses"))
	}
	return "Nothing is wrong: " + ipam.JoinTexts(parts) + " agree."
}
