package migrate

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
)

// row represents a line of a plan: an object, the object that it becomes, and a reason or
// remark.
type row struct{ object, becomes, note string }

// printTable prints rows under a heading.
func printTable(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "OBJECT\tBECOMES\tNOTE")
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", terminal.Printable(r.object), terminal.Printable(r.becomes), terminal.Printable(r.note))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the plan: %w", err)
	}
	return nil
}

// cannot marks an object that is not imported.
const cannot = "cannot be mapped"

// listed joins texts, and counts those beyond the first few.
func listed(texts []string) string {
	const most = 3
	if len(texts) <= most {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
}
