package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// PoolReport is what `pools` prints.
type PoolReport struct {
	metav1.TypeMeta `json:",inline"`
	Pools           []PoolUse `json:"pools"`
}

// PoolUse is how full a pool is. Counts are of addresses, as decimal strings: IPv6 pools
// have more than a JSON number can count. What is not known is left out.
type PoolUse struct {
	Kind          string `json:"kind"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name"`
	CIDR          string `json:"cidr,omitempty"`
	RoutingDomain string `json:"routingDomain,omitempty"`
	Parent        string `json:"parent,omitempty"`
	Phase         string `json:"phase,omitempty"`

	// Source is where the figures are from: Status, Records, or, for a pool that may not
	// be read, DryRun. Of the last one Held is what the caller may see.
	Source string `json:"source"`

	// Total = Held + Carved + Withheld + Free, where no blocks overlap.
	Total string `json:"total,omitempty"`
	// Held are blocks of claims, or of claims that are gone: Retained and Cooling, which
	// are known where the source is Records.
	Held     string `json:"held,omitempty"`
	Retained string `json:"retained,omitempty"`
	Cooling  string `json:"cooling,omitempty"`
	// Carved are blocks of child pools.
	Carved   string `json:"carved,omitempty"`
	Withheld string `json:"withheld,omitempty"`
	Free     string `json:"free,omitempty"`
	// Drained is what of Held and Carved would not be handed out any more, because it has
	// been reserved, or is outside of the ranges.
	Drained string `json:"drained,omitempty"`
	// Used is what is held of the pool and of all pools below it.
	Used string `json:"used,omitempty"`
	// Blocks is how many blocks of the pool are recorded.
	Blocks int `json:"blocks"`
	// Waiting is how many IPClaims wait for a block that could be of this pool.
	Waiting int `json:"waiting"`
	// LargestFreePrefix as in /20; empty where nothing is free.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// UtilizationPercent is how much of what can be handed out is held or carved: 0 only
	// where nothing is, and 100 only where nothing is free.
	UtilizationPercent int `json:"utilizationPercent"`
	// Message is what the operator says of a pool that may not be read.
	Message string `json:"message,omitempty"`

	depth    int
	percent  string
	readable bool
}

// The sources of figures.
const (
	sourceStatus  = "Status"
	sourceRecords = "Records"
	sourceDryRun  = "DryRun"
)

// reportOfPools is about all pools of the register, and those of which the operator tells
// in answers to dry runs.
func reportOfPools(r *register.Register, told map[ipam.PoolKey]candidate) *PoolReport {
	report := &PoolReport{TypeMeta: command.ReportType("PoolReport"), Pools: []PoolUse{}}
	for _, pool := range r.Pools {
		use := poolUse(pool, r.RecordsRead)
		if c, ok := told[pool.Key]; ok && !pool.IsKnown() {
			use.tell(c)
		}
		report.Pools = append(report.Pools, use)
	}
	others := slices.DeleteFunc(slices.Collect(maps.Keys(told)), func(key ipam.PoolKey) bool { return r.Pool(key) != nil })
	slices.SortFunc(others, func(a, b ipam.PoolKey) int { return cmp.Compare(a.Name, b.Name) })
	for _, key := range others {
		use := PoolUse{Kind: string(key.Kind), Namespace: key.Namespace, Name: key.Name}
		use.tell(told[key])
		report.Pools = append(report.Pools, use)
	}
	return report
}

func (p *PoolUse) key() ipam.PoolKey {
	return ipam.PoolKey{Kind: ipam.PoolKind(p.Kind), Namespace: p.Namespace, Name: p.Name}
}

func poolUse(pool *register.Pool, counted bool) PoolUse {
	usage, known := pool.UsageOfStatus()
	use := PoolUse{
		Kind: string(pool.Key.Kind), Namespace: pool.Key.Namespace, Name: pool.Key.Name,
		RoutingDomain: pool.Domain.Name(), Source: sourceStatus, Waiting: len(pool.Waiting),
		depth: pool.Depth(), percent: "0%", readable: pool.IsKnown(),
	}
	if counted {
		usage, known = pool.Usage()
		use.Source = sourceRecords
	}
	use.Held, use.Blocks = usage.Held.String(), usage.Blocks
	if known {
		use.CIDR = pool.CIDR.String()
		use.fill(&usage, counted)
	}
	if pool.IsKnown() {
		use.Phase = string(pool.Object.PoolStatus().Phase)
		if pool.IsChild() {
			use.Parent = pool.Home.Name
		}
	}
	return use
}

func (p *PoolUse) fill(u *register.Usage, counted bool) {
	p.Total, p.Carved, p.Withheld, p.Free = u.Total.String(), u.Carved.String(), u.Withheld.String(), u.Free.String()
	p.Drained, p.Used = u.Drained.String(), u.Used.String()
	if counted {
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

// tell fills in what the operator tells of a pool that may not be read.
func (p *PoolUse) tell(c candidate) {
	p.Source, p.Free, p.LargestFreePrefix, p.Message = sourceDryRun, c.available, c.largestFreePrefix, c.message
}

// Names implements command.Report.
func (r *PoolReport) Names() []string {
	var names []string
	for i := range r.Pools {
		names = append(names, strings.ToLower(r.Pools[i].Kind)+"/"+r.Pools[i].Name)
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
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + p.Name
	}
	use, share := command.Cell{Text: bar(p.UtilizationPercent), Style: fullness(p.UtilizationPercent)}, p.percent
	switch {
	case !p.readable:
		use, share = command.Cell{Text: "not readable", Style: command.Faint}, ""
	case p.CIDR == "":
		use, share = command.Cell{Text: "no CIDR yet", Style: command.Faint}, ""
	}
	cells := []command.Cell{
		command.Text("%s%s", strings.Repeat("  ", p.depth), name), command.Text("%s", command.OrNone(p.CIDR)), use, command.Text("%s", share),
		number(p.Held), number(p.Carved), number(p.Free), number(p.Withheld), command.Text("%s", command.OrNone(p.LargestFreePrefix)), number(p.Used),
	}
	if wide {
		cells = append(cells, command.Text("%s", command.OrNone(p.RoutingDomain)), command.Text("%s", command.OrNone(p.Phase)), command.Text("%d", p.Blocks),
			number(p.Retained), number(p.Cooling), number(p.Drained), command.Text("%d", p.Waiting), number(p.Total))
	}
	return cells
}

// number is a decimal string for people; - where it is not known.
func number(exact string) command.Cell {
	n, ok := space.ParseCount(exact)
	if !ok {
		return command.Text("-")
	}
	return command.Text("%s", command.Readable(n))
}

// barCells is how wide a bar is.
const barCells = 10

// bar draws how much of something is in use. Only what is full has a full bar, and only
// what is empty an empty one.
func bar(percent int) string {
	full := percent * barCells / 100
	if full == 0 && percent > 0 {
		full = 1
	}
	return strings.Repeat("█", full) + strings.Repeat("░", barCells-full)
}

// fullness warns of what is nearly full.
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
