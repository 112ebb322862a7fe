package view

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
)

// MostBlocks limits the listed blocks of a CIDR, unless the caller asks for all of them.
const MostBlocks = 50

// NewWho returns the command who.
func NewWho(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "who ADDRESS|CIDR",
		Short: "Show who holds an address or a network",
		Long: `Show who holds an address or a network: every routing domain and pool that contains it,
what is held there, by whom, since when, and who asked for it. What is free is said to be
free, and what is never handed out is said with the reason. If claims hold the same addresses
in several routing domains, these are named below.

Of a network all blocks in it are listed, the first 50 of them unless --all is given.
An address that lies in no pool that you may read ends with exit code 4.

Who held it before is in the history, which the operator writes: to the file of its flag
--history-file, or to its log, with --logging-format=json. With --history-file the command
reads such files, and says below what is held now what was granted, kept, released and
refused of these addresses.`,
		Example: `  # Who has this address?
  kubectl ipam who 10.2.16.77

  # Everything that is held in a network, with the names of records and projects
  kubectl ipam who 10.2.0.0/16 -o wide --all

  # Who had this address in the last two days?
  kubectl ipam who 10.2.16.77 --since 48h --history-file history.jsonl

  # The same, from the logs of all replicas
  kubectl logs -n cadastre-system -l control-plane=controller-manager --tail=-1 |
    kubectl ipam who 10.2.16.77 --since 48h --history-file -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o := command.BindOutput(cmd)
	e.BindEverywhere(cmd)
	all := cmd.Flags().Bool("all", false, fmt.Sprintf("list all blocks, not only the first %d", MostBlocks))
	var past historyOptions
	cmd.Flags().StringArrayVar(&past.files, "history-file", nil, "also show what this file of the operator's history says; may be given several times, - is the standard input")
	cmd.Flags().StringVar(&past.since, "since", "", "of the history only what is not older: a duration such as 48h, or a time such as 2026-11-25T13:00:00Z")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked, err := ParseAsked(args[0])
		if err != nil {
			return command.Coded(command.ExitUsage, err)
		}
		most := MostBlocks
		if *all {
			most = math.MaxInt
		}
		return who(e, cmd, o, whoRequest{asked, most, past})
	}
	return cmd
}

// ParseAsked reads an address, which is a block of one, or a CIDR.
func ParseAsked(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s is not an address: write one such as 10.0.0.1 or 2001:db8::1, or a CIDR such as 10.0.0.0/24", text)
		}
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	block, err := netip.ParsePrefix(text)
	switch {
	case err != nil || block.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is not a CIDR: write one such as 10.0.0.0/24 or 2001:db8::/64", text)
	case block != block.Masked():
		return netip.Prefix{}, fmt.Errorf("%s has host bits set: write %s for the network, or %s for the address", text, block.Masked(), block.Addr())
	}
	return block, nil
}

// whoRequest represents the request of a caller: the addresses, the limit of listed rows, and the
// history to read.
type whoRequest struct {
	asked netip.Prefix
	most  int
	past  historyOptions
}

func who(e *command.Env, cmd *cobra.Command, o *command.Output, request whoRequest) error {
	asked, most := request.asked, request.most
	before, err := request.past.read(e, asked, most)
	if err != nil {
		return err
	}
	var scope register.Scope
	if asked.IsSingleIP() {
		scope = register.At(asked.Addr())
	}
	r, err := e.ReadScope(cmd, scope)
	if err != nil {
		return err
	}
	report := NewWhoReport(r, asked, most)
	report.History = before
	if len(report.Places) == 0 && (before == nil || len(before.Entries) == 0) {
		return command.Coded(command.ExitNotFound, fmt.Errorf("%s lies in no pool that you may read: see kubectl ipam pools", Bare(asked)))
	}
	c, err := e.Client()
	if err != nil {
		return err
	}
	found := command.NewOwners(c)
	report.AddOwners(cmd.Context(), found)
	report.now = e.Clock.Now()
	found.Explain(e)
	return e.Print(o, report)
}
