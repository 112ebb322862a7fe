package command

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DryRun represents the flag --dry-run, as in kubectl. Without a value it means the server,
// because only the server knows which block would be given.
type DryRun string

// The values of --dry-run.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

func dryRuns() []string {
	return []string{string(DryRunNone), string(DryRunClient), string(DryRunServer)}
}

// BindDryRun binds the flag --dry-run.
func BindDryRun(cmd *cobra.Command) *DryRun {
	d := new(DryRun)
	cmd.Flags().StringVar((*string)(d), "dry-run", string(DryRunNone),
		"none; server: ask the API server what would be done, and do nothing; client: only print the object that would be sent")
	cmd.Flag("dry-run").NoOptDefVal = string(DryRunServer)
	Complete(cmd, "dry-run", dryRuns()...)
	return d
}

// Check returns an error if the value does not exist.
func (d DryRun) Check() error {
	if !slices.Contains(dryRuns(), string(d)) {
		return Coded(ExitUsage, fmt.Errorf("--dry-run=%s: is none of none, client and server", string(d)))
	}
	return nil
}

// Done returns the report that something was done, or would be.
func (d DryRun) Done(what string) string {
	switch d {
	case DryRunClient:
		return what + " (dry run)"
	case DryRunServer:
		return what + " (server dry run)"
	default:
		return what
	}
}

// ApplyToCreate implements client.CreateOption.
func (d DryRun) ApplyToCreate(o *client.CreateOptions) { o.DryRun = d.all(o.DryRun) }

// ApplyToPatch implements client.PatchOption.
func (d DryRun) ApplyToPatch(o *client.PatchOptions) { o.DryRun = d.all(o.DryRun) }

// ApplyToDelete implements client.DeleteOption.
func (d DryRun) ApplyToDelete(o *client.DeleteOptions) { o.DryRun = d.all(o.DryRun) }

func (d DryRun) all(before []string) []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return before
}
