package health

import (
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/audit"
)

// TestNotesDoNotFailCheck covers reports with and without a problem.
func TestNotesDoNotFailCheck(t *testing.T) {
	finding := func(kind audit.Kind, object audit.Object) CheckFinding {
		return CheckFinding{Finding: audit.Finding{Severity: kind.Severity(), Kind: kind, Object: object}}
	}
	note := finding(audit.NetworkDiffersFromPool, audit.Object{Kind: "IPPool", Name: "p"})
	shared := finding(audit.BlockInSeveralDomains, audit.Object{Kind: audit.KindDomain, Name: "default"})
	held := finding(audit.GatewayHeld, audit.Object{Kind: "IPPool", Name: "q"})
	for name, c := range map[string]struct {
		findings []CheckFinding
		agreed   bool
		names    []string
	}{
		"nothing":                    {nil, true, nil},
		"notes":                      {[]CheckFinding{note, shared}, true, []string{"ippool/p"}},
		"a warning":                  {[]CheckFinding{held}, false, []string{"ippool/q"}},
		"a warning and notes":        {[]CheckFinding{held, note, shared}, false, []string{"ippool/q", "ippool/p"}},
		"a warning that is released": {[]CheckFinding{{Finding: held.Finding, Released: true}}, true, []string{"ippool/q"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &CheckReport{Findings: c.findings}
			if err := r.result(); (err == nil) != c.agreed {
				t.Errorf("the check ends with %v", err)
			}
			if got := r.Names(); !slices.Equal(got, c.names) {
				t.Errorf("it names %q, want %q", got, c.names)
			}
			wantFooter := ""
			if c.agreed && !slices.ContainsFunc(c.findings, func(f CheckFinding) bool { return !f.IsNote() }) {
				wantFooter = r.agreement()
			}
			if got := r.Table(false).Footer; got != wantFooter {
				t.Errorf("below the table is %q, want %q", got, wantFooter)
			}
		})
	}
}
