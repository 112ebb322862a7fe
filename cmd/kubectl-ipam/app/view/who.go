package view

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// MostBlocks limits the listed blocks of a CIDR, unless the caller asks for all of them.
const MostBlocks = 50

// NewWho returns the command who.
func NewWho(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "who ADDRESS|CIDR",
		Short: "Show who holds an address or a network",
		Long: `Show who holds an address or a network: every routing domain and pool that contains it,
the held block, its holder, since when, and the user who asked for it. Free addresses are
shown as free, and addresses that are never handed out with the reason. If claims hold the
same addresses in several routing domains, these are named below.

Of a network all blocks in it are listed, the first 50 of them unless --all is given.
An address that lies in no pool that you may read ends with exit code 4.

Who held it before is in the history, which the operator writes: to the file of its flag
--history-file, or to its log, with --logging-format=json. With --history-file the command
reads such files, and lists, below the blocks that are held now, the blocks of these
addresses that were granted, kept, released and refused.`,
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
	e.BindEverywhere(cmd)
	all := cmd.Flags().Bool("all", false, fmt.Sprintf("list all blocks, not only the first %d", MostBlocks))
	var past historyOptions
	cmd.Flags().StringArrayVar(&past.files, "history-file", nil, "also show the entries of this file of the operator's history; may be given several times, - is the standard input")
	cmd.Flags().StringVar(&past.since, "since", "", "of the history only entries that are not older: a duration such as 48h, or a time such as 2026-11-25T13:00:00Z")
	e.RunReport(cmd, func(cmd *cobra.Command, args []string) (command.Report, error) {
		asked, err := ParseAsked(args[0])
		if err != nil {
			return nil, command.Coded(command.ExitUsage, err)
		}
		most := MostBlocks
		if *all {
			most = math.MaxInt
		}
		before, err := past.read(e, asked, most)
		if err != nil {
			return nil, err
		}
		return who(e, cmd, asked, most, before)
	})
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

// who returns the holders of the addresses, and the history of them that was read before.
func who(e *command.Env, cmd *cobra.Command, asked netip.Prefix, most int, before *WhoHistory) (*WhoReport, error) {
	var scope register.Scope
	if asked.IsSingleIP() {
		scope = register.At(asked.Addr())
	}
	r, err := e.ReadScope(cmd, scope)
	if err != nil {
		return nil, err
	}
	report := NewWhoReport(r, asked, most)
	report.History, report.now = before, e.Clock.Now()
	if len(report.Places) == 0 && (before == nil || len(before.Entries) == 0) {
		return nil, command.Coded(command.ExitNotFound, fmt.Errorf("%s lies in no pool that you may read: see kubectl ipam pools", Bare(asked)))
	}
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	found := command.NewOwners(c)
	report.AddOwners(cmd.Context(), found)
	found.Explain(e)
	return report, nil
}

// NewWhoReport finds every pool that contains the addresses or lies in them, with its blocks,
// withheld ranges and free addresses among them. It leaves out pools that have none of these.
func NewWhoReport(r *register.Register, asked netip.Prefix, most int) *WhoReport {
	report := &WhoReport{TypeMeta: command.ReportType("WhoReport"), Asked: Bare(asked), Places: []Place{}, left: most}
	for _, domain := range r.Domains {
		report.add(placeOfDomain(report, domain, asked))
	}
	for _, pool := range r.Pools {
		report.add(placeOfPool(report, pool, asked))
	}
	report.SharedBy = sharedBy(r, asked)
	return report
}

// sharedBy returns the routing domains in which claims hold the same of the addresses.
func sharedBy(r *register.Register, asked netip.Prefix) []string {
	var held []register.Held
	for _, pool := range r.Pools {
		if pool.Domain == nil {
			continue
		}
		for _, record := range pool.Overlapping(asked) {
			if record.Purpose == ipam.PurposeClaim && record.State == ipam.StateBound {
				held = append(held, register.Held{Record: &record.Record, Domain: pool.Domain.Key})
			}
		}
	}
	names := map[string]bool{}
	for _, pair := range register.Shared(held) {
		names[pair.Inner.Domain.FullName()], names[pair.Outer.Domain.FullName()] = true, true
	}
	return slices.Sorted(maps.Keys(names))
}

// placeOfDomain returns the records of root pools that are gone, that the caller cannot read, or that do
// not state the addresses any more: what a pool occupied before an edit.
func placeOfDomain(report *WhoReport, domain *register.Domain, asked netip.Prefix) Place {
	hasPool := func(record *register.Record) bool {
		common := record.Block
		if common.Bits() < asked.Bits() {
			common = asked
		}
		return record.Child != nil && record.Child.Overlaps(common)
	}
	records := slices.DeleteFunc(domain.Overlapping(asked), hasPool)
	return Place{RoutingDomain: domain.Name(), Blocks: heldBlocks(nil, listed(report, records))}
}

func placeOfPool(report *WhoReport, pool *register.Pool, asked netip.Prefix) Place {
	place := Place{
		RoutingDomain: pool.Domain.Name(), Pool: new(command.RefOfPool(pool.Key)), PoolPhase: idlePhase(pool),
		Blocks: heldBlocks(pool, listed(report, pool.Overlapping(asked))), depth: pool.Depth(),
	}
	if !pool.Overlaps(asked) {
		return place
	}
	place.PoolCIDR = pool.CIDR.String()
	if pool.IsKnown() {
		for _, w := range listed(report, pool.WithheldIn(asked)) {
			place.Withheld = append(place.Withheld, WithheldRange{Range: rangeText(w.Range), Reason: w.Reason, first: w.From})
		}
	}
	bounds := asked
	if bounds.Bits() < pool.CIDR.Bits() {
		bounds = pool.CIDR
	}
	free := space.CountOf(bounds).Sub(pool.Space().UsedIn(bounds))
	place.Free = free.String()
	switch {
	case free.IsZero():
	case asked.IsSingleIP():
		place.freeText = asked.String()
	default:
		place.freeText = command.AddressesOf(free)
	}
	return place
}

// listed returns the first of the rows, which the report has room for, and counts the others.
func listed[T any](r *WhoReport, rows []T) []T {
	n := min(len(rows), r.left)
	r.left -= n
	r.Omitted += len(rows) - n
	return rows[:n]
}

// add adds a place that has something to show.
func (r *WhoReport) add(place Place) {
	if len(place.Blocks) > 0 || len(place.Withheld) > 0 || place.PoolCIDR != "" {
		r.Places = append(r.Places, place)
	}
}

func heldBlocks(pool *register.Pool, records []*register.Record) []HeldBlock {
	var blocks []HeldBlock
	for _, record := range records {
		blocks = append(blocks, heldBlock(pool, record))
	}
	return blocks
}

func heldBlock(pool *register.Pool, record *register.Record) HeldBlock {
	block := HeldBlock{
		CIDR: record.Block.String(), State: string(record.State), Holder: command.RefOfHolder(record.Holder),
		Terminating: record.Terminating, Since: metav1.NewTime(record.Since),
		RequestedBy: record.RequestedBy, Class: record.Class, Project: record.Project,
		Allocation: record.Name.String(), first: record.Block.Addr(),
	}
	if record.Purpose == ipam.PurposePool && record.State == ipam.StateBound {
		block.State = stateCarved
	}
	if !record.ReleaseAfter.IsZero() {
		block.ReleaseAfter = new(metav1.NewTime(record.ReleaseAfter))
	}
	if pool != nil {
		block.Drained = pool.Withheld.Overlaps(record.Block)
	}
	return block
}

// idlePhase returns the phase of a pool that hands out nothing, such as Paused; otherwise, or if the
// caller cannot read the pool, it is empty.
func idlePhase(pool *register.Pool) string {
	if !pool.IsKnown() {
		return ""
	}
	phase := pool.Object.PoolStatus().Phase
	if phase == v1alpha1.PoolReady || phase == v1alpha1.PoolExhausted {
		return ""
	}
	return string(phase)
}

// Bare returns a block as people write it: a single address without its length.
func Bare(block netip.Prefix) string { return cmp.Or(convert.Address(block), block.String()) }

// rangeText returns a range as people write it: as a single address or a CIDR if it is one.
func rangeText(r space.Range) string {
	if blocks := blocksOf(r); len(blocks) == 1 {
		return Bare(blocks[0])
	}
	return r.From.String() + "-" + r.To.String()
}
