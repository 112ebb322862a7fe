// Package app runs the commands of the kubectl plug-in, which are in the folders below it by
// groups.
//
// A command reads the objects that its caller can read, decides by them, and prints a report: a
// value that is the same for a person, as a table, and for a program, as JSON or YAML. In the
// cluster, it writes only as its name indicates. The exit code states how a command ended: see
// ExitCode.
package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/edit"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/explain"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/health"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/migrate"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/ui"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/view"
)

// Run runs a command line, without the name of the program, and prints its output. It prints an
// error after "error: ", on one line unless several fields are wrong.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) command.ExitCode {
	root := New(streams)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return command.ExitDone
	}
	if text := command.Explained(err); text != "" {
		fmt.Fprintln(streams.ErrOut, "error: "+terminal.PrintableLines(text))
	}
	return command.CodeOf(err)
}

// New makes the command with all its subcommands.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	e := command.NewEnv(streams)
	root := &cobra.Command{
		Use:   "kubectl-ipam",
		Short: "See who holds which addresses, ask for some, and look after the pools",
		Long: `See who holds which addresses, ask for some, and look after the pools.

Every command works with your own rights in the cluster. It leaves out the objects that you
may not read, and reports that.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ipam"},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return command.CheckValues(cmd)
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return command.Coded(command.ExitUsage, err) })
	e.Bind(root)
	root.AddCommand(
		health.NewCheck(e),
		edit.NewClaim(e),
		view.NewClasses(e),
		edit.NewCreate(e),
		edit.NewDefaultClass(e),
		health.NewDoctor(e),
		explain.NewExplain(e),
		view.NewFree(e),
		migrate.NewImport(e),
		view.NewMap(e),
		edit.NewPause(e),
		view.NewPools(e),
		edit.NewRelease(e),
		edit.NewResume(e),
		health.NewSupportBundle(e),
		view.NewTree(e),
		ui.NewUI(e),
		health.NewVersion(e),
		view.NewWho(e),
	)
	checkUsage(root)
	return root
}

// checkUsage makes all commands below parent end with ExitUsage if their arguments are wrong.
func checkUsage(parent *cobra.Command) {
	for _, child := range parent.Commands() {
		check := child.Args
		if check == nil {
			check = cobra.NoArgs
		}
		child.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return command.Coded(command.ExitUsage, fmt.Errorf("%w: see %s --help", err, cmd.CommandPath()))
			}
			return nil
		}
		checkUsage(child)
	}
}
