package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/audit"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/bundle"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NewSupportBundle returns the command support-bundle.
func NewSupportBundle(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write the data needed to understand a problem into a ZIP file, without secrets",
		Long: `Write the data needed to understand a problem into a ZIP file: versions, all objects of
Cadastre and of Cluster API that concern it, events, how it is installed, the end of the
operator's logs, and the reports of doctor and check. Names, addresses and labels are in
it as they are.

No Secret is read. Paths and CA bundles of webhooks, values of environment variables,
tokens and keys are taken out.

Objects that you may not read are left out, and index.yaml in the file gives the reasons.`,
		Example: `  # Of all namespaces
  kubectl ipam support-bundle

  # Of one namespace, into a file of a name
  kubectl ipam support-bundle -n team-a -o team-a.zip`,
	}
	var file, operator string
	var all bool
	flags := cmd.Flags()
	flags.StringVarP(&file, "output", "o", "cadastre-support-bundle.zip", "the file to write; it must not exist")
	flags.BoolVarP(&all, "all-namespaces", "A", false, "of all namespaces, as without -n")
	bindOperatorNamespace(cmd, &operator)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		limited := *e.Flags.Namespace
		if all {
			limited = ""
		}
		collector, err := collector(cmd.Context(), e, operator, limited)
		if err != nil {
			return err
		}
		index, err := writeBundle(cmd.Context(), collector, file)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Out, "%s has %s of %s.\n", file, ipam.FormatCount(len(index.Files), "file"), index.Scope)
		var left []string
		for _, unread := range index.Unread {
			left = append(left, unread.What)
		}
		if len(left) > 0 {
			e.Note("left out, as index.yaml explains: %s", strings.Join(left, ", "))
		}
		return nil
	}
	return cmd
}

// collector returns a collector of a bundle for the caller, of one namespace, or of all if
// namespace is empty.
func collector(ctx context.Context, e *command.Env, operator, namespace string) (*bundle.Collector, error) {
	doctor, err := doctor(ctx, e, operator)
	if err != nil {
		return nil, err
	}
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	check := &checkFlags{Options: audit.Options{Grace: defaultGrace, Settle: 5 * time.Second}, operator: doctor.Operator}
	return &bundle.Collector{
		Client: doctor.Client, Clients: clients, Namespace: namespace, Own: doctor.Namespace, Operator: doctor.Operator, Now: e.Server.Now,
		Reports: []bundle.Report{
			{File: "version.yaml", Make: func(ctx context.Context) (any, error) {
				return reportOfVersions(installation.ReadVersions(ctx, doctor.Client, doctor.Operator, doctor.Version)), nil
			}},
			{File: "doctor.yaml", Make: func(ctx context.Context) (any, error) { return reportOfDoctor(doctor.Run(ctx)), nil }},
			{File: "check.yaml", Make: func(ctx context.Context) (any, error) { return readAudit(ctx, e, check) }},
		},
	}, nil
}

// writeBundle writes a file that did not exist. It removes the file again if that fails.
func writeBundle(ctx context.Context, collector *bundle.Collector, path string) (*bundle.Index, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the caller names it
	if errors.Is(err, fs.ErrExist) {
		return nil, command.Coded(command.ExitConflict, fmt.Errorf("--output %s: exists already: choose another file, or remove it", path))
	}
	if err != nil {
		return nil, command.Coded(command.ExitUsage, fmt.Errorf("--output: %w", err))
	}
	index, err := collector.Collect(ctx, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return index, nil
}
