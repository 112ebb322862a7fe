package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// Finding holds a rule of axe-core that elements of a page break.
type Finding struct {
	ID string
	// Impact is minor, moderate, serious or critical.
	Impact string
	Help   string
	Nodes  []struct {
		Target         []json.RawMessage
		FailureSummary string
	}
}

// String returns the rule and the elements.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s", f.ID, f.Impact, f.Help)
	for _, node := range f.Nodes {
		fmt.Fprintf(&b, "\n  %s: %s", node.Target, strings.ReplaceAll(node.FailureSummary, "\n", " "))
	}
	return b.String()
}

// axe returns the file in which `make browser` puts axe-core.
func axe() (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "bin", "axe.min.js"), nil
}

// Findings returns the findings of axe-core on the page as it is now. Without axe-core the test is
// skipped, or fails if Required is set.
func (p *Page) Findings() []Finding {
	p.t.Helper()
	path, err := axe()
	p.must("looking for axe-core", err)
	source, err := os.ReadFile(path)
	switch {
	case err != nil && os.Getenv(Required) != "":
		p.t.Fatalf("no axe-core: %v: run `make browser`", err)
	case err != nil:
		p.t.Skipf("accessibility is not judged: %v: run `make browser`", err)
	}
	p.Run(string(source)) // past the content security policy of the page, as debuggers are
	return Value[[]Finding](p, "axe.run(document,{resultTypes:['violations']}).then(r=>r.violations.map(v=>({ID:v.id,Impact:v.impact,Help:v.help,Nodes:v.nodes.map(n=>({Target:n.target,FailureSummary:n.failureSummary}))})))")
}
