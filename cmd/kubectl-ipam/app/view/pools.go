// Package view holds the commands that show the address space: pools, free, map, tree and who.
package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// NewPools returns the command pools.
func NewPools(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools [NAME]",
		Short: "Show how full the pools are",
		Long: `Show how full the pools are, in the order of their addresses. HELD counts the addresses of a
pool that claims hold, CARVED those of its child pools, WITHHELD those that are never handed
out, and FREE the rest. USED counts the held addresses of the pool and of all pools below it.

The figures come from the pools' status, which the operator writes within a second or two.
With --count they are counted from the records, and retained and cooling addresses are
counted beside held ones. With 100,000 records that takes some seconds. They are also counted
if there are pools of Cluster API's in-cluster provider that Cadastre serves.

If you may not list pools, the command shows those that your claims could use, with the
operator's answer to a dry run. HELD then counts the blocks that you can see.`,
		Example: `  # All pools
  kubectl ipam pools

  # One pool: a LocalIPPool of the namespace before an IPPool, and before pools of other kinds
  kubectl ipam pools nodes -o yaml
  kubectl ipam pools inclusterippool/nodes -n team-a

  # Count the records instead of reading the status
  kubectl ipam pools --count`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.FirstPool(),
	}
	e.BindEverywhere(cmd)
	count := cmd.Flags().Bool("count", false, "count the records, rather than to take the figures from the pools' status")
	e.RunReport(cmd, func(cmd *cobra.Command, args []string) (command.Report, error) {
		scope := register.NoneOfKnown()
		if *count {
			scope = nil
		}
		r, err := e.ReadScope(cmd, scope)
		if err != nil {
			return nil, err
		}
		report := reportOfPools(r, candidatesFor(e, cmd, r))
		if len(args) > 0 {
			err = report.selectPool(e, args[0])
		}
		return report, err
	})
	return cmd
}

// selectPool removes all pools but one from a report.
func (r *PoolReport) selectPool(e *command.Env, name string) error {
	i, err := findNamed(e, name, func(key ipam.PoolKey) (int, bool) {
		i := slices.IndexFunc(r.Pools, func(p PoolUse) bool { return p.key() == key })
		return i, i >= 0
	})
	if err == nil {
		r.Pools = r.Pools[i : i+1]
		r.Pools[0].depth = 0
	}
	return err
}

// findPool finds a pool by its name. A pool that the in-cluster provider serves is none.
func findPool(e *command.Env, r *register.Register, name string) (*register.Pool, error) {
	return findNamed(e, name, func(key ipam.PoolKey) (*register.Pool, bool) {
		pool := r.Pool(key)
		return pool, pool != nil && (pool.IsKnown() || !key.Kind.IsInCluster())
	})
}

// findNamed finds the pool that an argument names: kind/NAME, or NAME alone, of the first kind that has
// it.
func findNamed[T any](e *command.Env, argument string, find func(ipam.PoolKey) (T, bool)) (pool T, err error) {
	namespace, err := e.Namespace()
	if err != nil {
		return pool, err
	}
	ref, err := command.PoolOf(argument)
	if err != nil {
		return pool, err
	}
	for _, kind := range []ipam.PoolKind{ipam.PoolKindLocalIPPool, ipam.PoolKindIPPool, ipam.PoolKindInClusterIPPool, ipam.PoolKindGlobalInClusterIPPool} {
		if ref.Kind != "" && ipam.PoolKind(ref.Kind) != kind {
			continue
		}
		if found, ok := find(ipam.PoolOfKind(kind, namespace, ref.Name)); ok {
			return found, nil
		}
	}
	return pool, NoPool(namespace, ref.Name)
}

// scopeOf returns the scope of the records of the pools that an argument may name.
func scopeOf(argument string) register.Scope {
	_, name := command.SplitKind(argument)
	return register.OfPool(name)
}

// completeOfPool returns a completion that offers values of the pool that the first argument names.
func completeOfPool(e *command.Env, values func(*register.Pool) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		r, err := e.ReadQuietly(cmd, scopeOf(args[0]))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		pool, err := findPool(e, r, args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values(pool), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// NoPool returns the error of a pool that the caller cannot read.
func NoPool(namespace, name string) error {
	return command.Coded(command.ExitNotFound, fmt.Errorf("pool %s: there is none of that name that you may read, in namespace %s or cluster-scoped: see kubectl ipam pools", name, namespace))
}

// PoolReport represents the output of `pools`.
type PoolReport struct {
	metav1.TypeMeta `json:",inline"`
	Pools           []PoolUse `json:"pools"`
}

// PoolUse represents the utilization of a pool. Counts are of addresses, as decimal strings: IPv6
// pools have more than a JSON number can count. Unknown values are left out.
type PoolUse struct {
	Kind          string `json:"kind"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name"`
	CIDR          string `json:"cidr,omitempty"`
	RoutingDomain string `json:"routingDomain,omitempty"`
	Parent        string `json:"parent,omitempty"`
	Phase         string `json:"phase,omitempty"`

	// Source is the origin of the figures: Status, Records, or DryRun for a pool that the
	// caller cannot read. For DryRun, Held counts only the blocks that the caller can see.
	Source string `json:"source"`

	// Total = Held + Carved + Withheld + Free, if no blocks overlap.
	Total string `json:"total,omitempty"`
	// Held counts the blocks of claims, or of claims that are gone: Retained and Cooling, which
	// are known if the source is Records.
	Held     string `json:"held,omitempty"`
	Retained string `json:"retained,omitempty"`
	Cooling  string `json:"cooling,omitempty"`
	// Carved counts the blocks of child pools.
	Carved   string `json:"carved,omitempty"`
	Withheld string `json:"withheld,omitempty"`
	Free     string `json:"free,omitempty"`
	// Drained counts the addresses of Held and Carved that would not be handed out any more,
	// because they have been reserved, or are outside of the ranges.
	Drained string `json:"drained,omitempty"`
	// Used counts the held addresses of the pool and of all pools below it.
	Used string `json:"used,omitempty"`
	// Blocks is the number of recorded blocks of the pool.
	Blocks int `json:"blocks"`
	// Waiting is the number of IPClaims that wait for a block that could be of this pool.
	Waiting int `json:"waiting"`
	// LargestFreePrefix is as in /20; empty if nothing is free.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// UtilizationPercent is the share of the addresses that can be handed out that is held or
	// carved: 0 only if no address is held or carved, and 100 only if no address is free.
	UtilizationPercent int `json:"utilizationPercent"`
	// Message is the operator's message about a pool that the caller cannot read.
	Message string `json:"message,omitempty"`

	depth    int
	percent  string
	readable bool
	// extent is the CIDR, or for a pool that holds only ranges of it, these.
	extent string
}

// The sources of figures.
const (
	sourceStatus  = "Status"
	sourceRecords = "Records"
	sourceDryRun  = "DryRun"
)

// reportOfPools returns the report of all pools of the register, and of the pools that the
// operator reports in answers to dry runs.
func reportOfPools(r *register.Register, candidates map[ipam.PoolKey]v1alpha1.CandidatePool) *PoolReport {
	report := &PoolReport{TypeMeta: command.ReportType("PoolReport"), Pools: []PoolUse{}}
	for _, pool := range r.Pools {
		report.Pools = append(report.Pools, poolUse(pool, r.RecordsRead))
	}
	for _, key := range slices.SortedFunc(maps.Keys(candidates), func(a, b ipam.PoolKey) int { return cmp.Compare(a.Name, b.Name) }) {
		if r.Pool(key) == nil {
			report.Pools = append(report.Pools, PoolUse{Kind: string(key.Kind), Namespace: key.Namespace, Name: key.Name})
		}
	}
	for i := range report.Pools {
		p := &report.Pools[i]
		if c, ok := candidates[p.key()]; ok && !p.readable {
			p.Source, p.Free, p.LargestFreePrefix, p.Message = sourceDryRun, c.Available, c.LargestFreePrefix, c.Message
		}
	}
	return report
}

func (p *PoolUse) key() ipam.PoolKey {
	return ipam.PoolKey{Kind: ipam.PoolKind(p.Kind), Namespace: p.Namespace, Name: p.Name}
}

func poolUse(pool *register.Pool, isCounted bool) PoolUse {
	use := PoolUse{
		Kind: string(pool.Key.Kind), Namespace: pool.Key.Namespace, Name: pool.Key.Name,
		RoutingDomain: pool.Domain.Name(), Source: sourceStatus, Waiting: len(pool.Waiting),
		depth: pool.Depth(), percent: "0%", readable: pool.IsKnown(),
	}
	usage, ok := pool.UsageOfStatus()
	if isCounted {
		usage, ok = pool.Usage()
		use.Source = sourceRecords
	}
	use.Held, use.Blocks = usage.Held.String(), usage.Blocks
	if ok {
		use.CIDR, use.extent = pool.CIDR.String(), pool.Extent()
		use.fill(&usage, isCounted)
	}
	if pool.IsKnown() {
		use.Phase = string(pool.Object.PoolStatus().Phase)
		if pool.IsChild() {
			use.Parent = pool.Home.Name
		}
	}
	return use
}

func (p *PoolUse) fill(u *register.Usage, isCounted bool) {
	p.Total, p.Carved, p.Withheld, p.Free = u.Total.String(), u.Carved.String(), u.Withheld.String(), u.Free.String()
	p.Drained, p.Used = u.Drained.String(), u.Used.String()
	if isCounted {
		p.Retained, p.Cooling = u.Retained.String(), u.Cooling.String()
	}
	usable := u.Total.Sub(u.Withheld)
	taken := usable.Sub(u.Free)
	if usable.IsZero() { // nothing can be handed out
		taken, usable = space.CountOf64(1), space.CountOf64(1)
	}
	p.UtilizationPercent, p.percent = taken.Percent(usable), command.Percent(taken, usable)
	if u.LargestFree != ipam.NoLength {
		p.LargestFreePrefix = fmt.Sprintf("/%d", u.LargestFree)
	}
}

// Names implements command.Report.
func (r *PoolReport) Names() []string {
	var names []string
	for i := range r.Pools {
		names = append(names, command.RefOfPool(r.Pools[i].key()).Argument())
	}
	return names
}

// Table implements command.Report.
func (r *PoolReport) Table(wide bool) *command.Table {
	t := &command.Table{
		Headers: []string{"POOL", "CIDR", "USE", "", "HELD", "CARVED", "FREE", "WITHHELD", "LARGEST FREE", "USED"},
		Empty:   "There are no pools that you may read.",
	}
	if wide {
		t.Headers = append(t.Headers, "DOMAIN", "PHASE", "BLOCKS", "RETAINED", "COOLING", "DRAINED", "WAITING", "TOTAL")
	}
	for i := range r.Pools {
		t.Add(r.Pools[i].row(wide)...)
	}
	return t
}

func (p *PoolUse) row(wide bool) []command.Cell {
	use, share := command.Cell{Text: bar(p.UtilizationPercent), Style: fullness(p.UtilizationPercent)}, p.percent
	switch {
	case !p.readable:
		use, share = command.Cell{Text: "not readable", Style: command.Faint}, ""
	case p.CIDR == "":
		use, share = command.Cell{Text: "no CIDR yet", Style: command.Faint}, ""
	}
	cells := []command.Cell{
		{Text: strings.Repeat("  ", p.depth) + command.RefOfPool(p.key()).PoolName()}, {Text: command.OrNone(p.extent)}, use, {Text: share},
		number(p.Held), number(p.Carved), number(p.Free), number(p.Withheld), {Text: command.OrNone(p.LargestFreePrefix)}, number(p.Used),
	}
	if wide {
		cells = append(cells, command.Texts(p.RoutingDomain, p.Phase, strconv.Itoa(p.Blocks))...)
		cells = append(cells, number(p.Retained), number(p.Cooling), number(p.Drained), command.Text("%d", p.Waiting), number(p.Total))
	}
	return cells
}

// number returns the cell of a decimal string for people; - if the number is not known.
func number(exact string) command.Cell {
	n, ok := space.ParseCount(exact)
	if !ok {
		return command.Cell{Text: "-"}
	}
	return command.Cell{Text: command.Readable(n)}
}

// barCells is the width of a bar.
const barCells = 10

// bar draws the share that is in use. The bar is full only at 100 percent, and empty only at 0
// percent.
func bar(percent int) string {
	full := percent * barCells / 100
	if full == 0 && percent > 0 {
		full = 1
	}
	return strings.Repeat("█", full) + strings.Repeat("░", barCells-full)
}

// fullness returns the style for a share in use, which warns if it is nearly full.
func fullness(percent int) command.Style {
	switch {
	case percent >= 100:
		return command.Bad
	case percent >= 80:
		return command.Warning
	default:
		return command.Good
	}
}
