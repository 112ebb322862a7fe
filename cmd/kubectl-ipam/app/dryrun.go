package app

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dryRun is the flag --dry-run, as kubectl has it. Without a value it means the server,
// which alone knows which block would be had.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

func dryRuns() []string {
	return []string{string(dryRunNone), string(dryRunClient), string(dryRunServer)}
}

func bindDryRun(cmd *cobra.Command) *dryRun {
	d := new(dryRun)
	cmd.Flags().StringVar((*string)(d), "dry-run", string(dryRunNone),
		"none; server: ask the API server what would be done, and do nothing; client: only print the object that would be sent")
	cmd.Flag("dry-run").NoOptDefVal = string(dryRunServer)
	complete(cmd, "dry-run", dryRuns()...)
	return d
}

func (d dryRun) check() error {
	if !slices.Contains(dryRuns(), string(d)) {
		return coded(ExitUsage, fmt.Errorf("--dry-run=%s: is none of none, client and server", string(d)))
	}
	return nil
}

// done says that something was done, or would be.
func (d dryRun) done(what string) string {
	switch d {
	case dryRunClient:
		return what + " (dry run)"
	case dryRunServer:
		return what + " (server dry run)"
	default:
		return what
	}
}

// ApplyToCreate implements client.CreateOption.
func (d dryRun) ApplyToCreate(o *client.CreateOptions) { o.DryRun = d.all(o.DryRun) }

// ApplyToPatch implements client.PatchOption.
func (d dryRun) ApplyToPatch(o *client.PatchOptions) { o.DryRun = d.all(o.DryRun) }

// ApplyToDelete implements client.DeleteOption.
func (d dryRun) ApplyToDelete(o *client.DeleteOptions) { o.DryRun = d.all(o.DryRun) }

func (d dryRun) all(before []string) []string {
	if d == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return before
}
