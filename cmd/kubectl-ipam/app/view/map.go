package view

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// defaultWidth is the assumed width if there is no terminal.
const defaultWidth = 80

// NewMap returns the command map.
func NewMap(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "map POOL",
		Short: "Draw the address space of a pool",
		Long: `Draw the address space of a pool, in the order of the addresses. Each line begins with an
address, and each character is one address, or in a large pool a block of them: see the
legend below the map. Use --range to see a part of it in more detail.

Of an IPv6 pool the regions in which something is held are drawn, each in its own scale, and
the free space between them.`,
		Example: `  # A pool, and a part of it
  kubectl ipam map nodes
  kubectl ipam map core --range 10.1.0.0/20`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}),
	}
	o := command.BindOutput(cmd)
	within := cmd.Flags().String("range", "", "draw only these addresses: a CIDR, or the first and the last one (10.0.0.10-10.0.0.20)")
	command.CompleteWith(cmd, "range", completeRanges(e))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := e.ReadScope(cmd, register.OfPool(args[0]))
		if err != nil {
			return err
		}
		pool, err := drawnPool(e, r, args[0])
		if err != nil {
			return err
		}
		drawn, err := drawnRange(pool, *within)
		if err != nil {
			return command.Coded(command.ExitUsage, err)
		}
		return e.Print(o, mapReport(pool, drawn, width(e)))
	}
	return cmd
}

// drawnPool finds a pool that has a CIDR.
func drawnPool(e *command.Env, r *register.Register, name string) (*register.Pool, error) {
	pool, err := findPool(e, r, name)
	switch {
	case err != nil:
		return nil, err
	case !pool.IsKnown():
		return nil, command.Coded(command.ExitForbidden, fmt.Errorf("pool %s: you may not get ippools, so its address space is not known: ask for the right to get them", name))
	case !pool.CIDR.IsValid():
		return nil, command.Coded(command.ExitNotFound, fmt.Errorf("pool %s has no CIDR yet: it waits for a block of %s", name, pool.Home))
	}
	return pool, nil
}

// drawnRange reads the flag --range: all of the pool if it is empty.
func drawnRange(pool *register.Pool, text string) (space.Range, error) {
	if text == "" {
		return space.RangeOf(pool.CIDR), nil
	}
	asked, err := convert.Span(field.NewPath("--range"), text)
	switch {
	case err != nil:
		return asked, err
	case asked.To.Less(asked.From):
		return asked, fmt.Errorf("--range=%s ends before it begins: swap the addresses", text)
	case !pool.CIDR.Contains(asked.From) || !pool.CIDR.Contains(asked.To):
		return asked, fmt.Errorf("--range=%s is not inside pool %s, which is %s", text, pool.Key.Name, pool.CIDR)
	}
	return asked, nil
}

// width returns the width of the terminal, in characters.
func width(e *command.Env) int {
	if file, ok := e.Out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return defaultWidth
}

// completeRanges offers the CIDRs of the child pools.
func completeRanges(e *command.Env) command.Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		r, err := e.ReadQuietly(cmd, register.OfPool(args[0]))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		pool, err := findPool(e, r, args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var blocks []string
		for _, record := range pool.Records {
			if record.Purpose == ipam.PurposePool {
				blocks = append(blocks, record.Block.String())
			}
		}
		return blocks, cobra.ShellCompDirectiveNoFileComp
	}
}

// cellsOf returns the blocks of a length that have an address of the range, in order.
func cellsOf(r space.Range, length int) []netip.Prefix {
	var cells []netip.Prefix
	for address := r.From; ; {
		cell := netip.PrefixFrom(address, length).Masked()
		cells = append(cells, cell)
		last := space.RangeOf(cell).To
		if !last.Less(r.To) {
			return cells
		}
		address = last.Next()
	}
}
