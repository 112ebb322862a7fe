package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
)

// Run runs a command line, without the name of the program, and prints what it says. An error
// is printed after "error: ", on one line but where several fields are wrong.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) ExitCode {
	root := New(streams)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitDone
	}
	if text := explained(err); text != "" {
		fmt.Fprintln(streams.ErrOut, "error: "+terminal.PrintableLines(text))
	}
	return codeOf(err)
}

// New makes the command with all its subcommands.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	e := newEnv(streams)
	root := &cobra.Command{
		Use:   "kubectl-ipam",
		Short: "See who holds which addresses, ask for some, and look after the pools",
		Long: `See who holds which addresses, ask for some, and look after the pools.

Every command works with your own rights in the cluster. What you may not read is left
out, and the command says so.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ipam"},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return e.checkColor()
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return coded(ExitUsage, err) })
	e.bind(root)
	root.AddCommand(
		newCheck(e),
		newClaim(e),
		newCreate(e),
		newDefaultClass(e),
		newDoctor(e),
		newExplain(e),
		newFree(e),
		newImport(e),
		newMap(e),
		newPause(e),
		newPools(e),
		newRelease(e),
		newResume(e),
		newSupportBundle(e),
		newTree(e),
		newUI(e),
		newVersion(e),
		newWho(e),
	)
	checkUsage(root)
	return root
}

// checkUsage has arguments that are wrong end with ExitUsage, in all commands below one.
func checkUsage(parent *cobra.Command) {
	for _, command := range parent.Commands() {
		command.Args = usage(command.Args)
		checkUsage(command)
	}
}

// usage has arguments that are wrong end with ExitUsage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		check = cobra.NoArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		return coded(ExitUsage, fmt.Errorf("%w: see %s --help", err, cmd.CommandPath()))
	}
}
