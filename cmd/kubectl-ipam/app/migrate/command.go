package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// NewImport returns the command import.
func NewImport(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Take over the addresses of another address manager",
		Long: `Take over the addresses of another address manager, without changing an address.

Each command prints the result for each object, and the objects that cannot be taken over,
with the reasons. It changes nothing without --apply, which may be interrupted and run again;
--rollback undoes it.`,
	}
	cmd.AddCommand(newImportCSV(e), newImportMetal3(e), newImportNetBox(e))
	return cmd
}

func newImportMetal3(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metal3",
		Short: "Take over the pools of Metal3's IP address manager",
		Long: `Take over the pools of Metal3's IP address manager: its IPPools become LocalIPPools, and
the IPAddressClaims and IPAddresses of Cluster API that name them are moved to these. The
Clusters must be paused during the import.`,
		Example: `  # What would become of each pool, claim and address
  kubectl ipam import metal3

  # Move the pool "machines"
  kubectl ipam import metal3 --pool machines --apply`,
	}
	o := &Options{}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Pools, "pool", nil, "a pool to take over; may be repeated (default: all)")
	flags.BoolVar(&o.Verbose, "verbose", false, "list every claim, instead of counting those that need no attention")
	flags.DurationVar(&o.Settle, "settle", defaultSettle, "how long to wait for work of Metal3's provider, once its pools are closed")
	flags.StringVar(&o.Suffix, "suffix", defaultSuffix, "suffix of the names of the new pools")
	return importWith(e, cmd, o, func([]string) (importer, error) {
		if flags.Changed("namespace") {
			o.Namespace = *e.Flags.Namespace
		}
		return Metal3, nil
	})
}

func newImportCSV(e *command.Env) *cobra.Command {
	return importFiles(e, &cobra.Command{
		Use:   "csv FILE",
		Short: "Make pools, and claims of the held blocks, from a CSV file",
		Long: `Make pools, and claims of the held blocks, from a CSV file, whose first line names the
columns that it has: kind (pool, claim or reserved), name, cidr, pool, parent, namespace,
routingDomain, network, gateway, description. Comma, semicolon and tab can separate them.
With - the file is read from the standard input.

What the operator would refuse, now or beside the other rows, is listed with its line, and
nothing is made; --skip-problems makes the rest.`,
		Example: `  # What would be made of a file
  kubectl ipam import csv addresses.csv -n network

  # Make it
  kubectl ipam import csv addresses.csv -n network --apply`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, c client.Client, o Options, files []io.Reader) error {
		return CSV(ctx, c, o, files[0])
	})
}

func newImportNetBox(e *command.Env) *cobra.Command {
	var server NetBoxServer
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "netbox [FILE...]",
		Short: "Make pools, and claims of the held blocks, from NetBox",
		Long: `Make pools, and claims of the held blocks, from NetBox: its prefixes, IP addresses and IP
ranges. With --url they are read from its REST API, with the token of --token-file or of the
environment variable NETBOX_TOKEN; else from files with the JSON that the API answers, in any
number of pages. With - a file is read from the standard input.

What the operator would refuse, now or beside the other objects, is listed, and nothing is
made; --skip-problems makes the rest.`,
		Example: `  # What would be made of all prefixes and addresses
  kubectl ipam import netbox --url https://netbox.example.com --token-file token -n network

  # Make it of files, and reserve the held blocks instead of claiming them
  kubectl ipam import netbox prefixes.json addresses.json --reserve --apply`,
		Args: func(cmd *cobra.Command, args []string) error {
			if server.URL != "" {
				return cobra.NoArgs(cmd, args)
			}
			if len(args) == 0 {
				return errors.New("neither files nor --url: name one of them")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&server.URL, "url", "", "read the REST API of the NetBox at this URL, instead of files")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "a file with the API token for --url (default: the environment variable NETBOX_TOKEN)")
	return importFiles(e, cmd, func(ctx context.Context, c client.Client, o Options, files []io.Reader) error {
		if server.URL == "" {
			return NetBox(ctx, c, o, files...)
		}
		server.Token = os.Getenv("NETBOX_TOKEN")
		if tokenFile != "" {
			text, err := readFile(tokenFile)
			if err != nil {
				return err
			}
			server.Token = string(text)
		}
		return NetBoxFrom(ctx, c, o, server)
	})
}

// importFiles adds flags and action to the import from files.
func importFiles(e *command.Env, cmd *cobra.Command, run func(context.Context, client.Client, Options, []io.Reader) error) *cobra.Command {
	o := &Options{}
	cmd.Flags().BoolVar(&o.Verbose, "verbose", false, "list every claim, instead of counting those of a pool")
	cmd.Flags().BoolVar(&o.SkipProblems, "skip-problems", false, "leave out objects that cannot be imported, instead of importing nothing")
	cmd.Flags().BoolVar(&o.Reserve, "reserve", false, "put the held blocks into the reserved ranges of the pools, instead of making claims")
	return importWith(e, cmd, o, func(names []string) (_ importer, err error) {
		if o.Namespace, err = e.Namespace(); err != nil {
			return nil, err
		}
		files := make([]io.Reader, len(names))
		for i, name := range names {
			if files[i] = e.In; name == "-" {
				continue
			}
			text, err := readFile(name)
			if err != nil {
				return nil, err
			}
			files[i] = bytes.NewReader(text)
		}
		return func(ctx context.Context, c client.Client, o Options) error { return run(ctx, c, o, files) }, nil
	})
}

// readFile reads a file that the caller names.
func readFile(name string) ([]byte, error) {
	text, err := os.ReadFile(name) //nolint:gosec // the caller names the file, with the caller's rights
	return text, command.Coded(command.ExitUsage, err)
}

// importer represents one of the imports.
type importer func(context.Context, client.Client, Options) error

// importWith adds the flags and the action of every import. prepare completes the options, and
// returns the import.
func importWith(e *command.Env, cmd *cobra.Command, o *Options, prepare func(args []string) (importer, error)) *cobra.Command {
	flags := cmd.Flags()
	apply := flags.Bool("apply", false, "apply the table, or continue an interrupted import or rollback")
	rollback := flags.Bool("rollback", false, "undo what --apply did, while nothing new was claimed")
	flags.DurationVar(&o.Timeout, "timeout", defaultTimeout, "how long to wait for the operator while it makes no progress")
	cmd.MarkFlagsMutuallyExclusive("apply", "rollback")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		run, err := prepare(args)
		if err != nil {
			return err
		}
		switch {
		case *apply:
			o.Action = Apply
		case *rollback:
			o.Action = Rollback
		}
		o.Out = e.Out
		c, err := e.Client()
		if err != nil {
			return err
		}
		err = run(cmd.Context(), c, *o)
		if problems, ok := errors.AsType[*ProblemsError](err); ok {
			return command.Coded(command.ExitUnhealthy, fmt.Errorf("%w", problems))
		}
		return err
	}
	return cmd
}
