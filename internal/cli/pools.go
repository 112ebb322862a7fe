package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/cli/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

func newPools(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools [NAME]",
		Short: "Show how full the pools are",
		Long: `Show how full the pools are, in the order of their addresses: how much claims hold,
how much is carved into child pools, how much is never handed out, what is free, and the
largest free block. USED is what claims hold of a pool and of all pools below it.`,
		Example: `  # All pools
  kubectl ipam pools

  # One pool, a LocalIPPool of the namespace before an IPPool
  kubectl ipam pools nodes -o yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.first(&v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}),
	}
	o := bindOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := e.read(cmd)
		if err != nil {
			return err
		}
		pools := r.Pools
		if len(args) > 0 {
			pool, err := e.findPool(r, args[0])
			if err != nil {
				return err
			}
			pools = []*register.Pool{pool}
		}
		return e.print(o, reportOfPools(pools))
	}
	return cmd
}

// findPool finds a pool by its name: a LocalIPPool of the namespace, else an IPPool.
func (e *env) findPool(r *register.Register, name string) (*register.Pool, error) {
	namespace, err := e.namespace()
	if err != nil {
		return nil, err
	}
	if pool := r.Pool(ipam.LocalPoolNamed(namespace, name)); pool != nil {
		return pool, nil
	}
	if pool := r.Pool(ipam.PoolNamed(name)); pool != nil {
		return pool, nil
	}
	return nil, coded(ExitNotFound, fmt.Errorf("pool %s: there is no LocalIPPool of namespace %s and no IPPool of that name that you may read: see kubectl ipam pools", name, namespace))
}

// PoolReport is what `pools` prints.
type PoolReport struct {
	metav1.TypeMeta `json:",inline"`
	Pools           []PoolUse `json:"pools"`
}

// PoolUse is how full a pool is. Counts are of addresses, as decimal strings: IPv6 pools
// have more than a JSON number can count.
type PoolUse struct {
	Kind          string `json:"kind"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name"`
	CIDR          string `json:"cidr,omitempty"`
	RoutingDomain string `json:"routingDomain,omitempty"`
	Parent        string `json:"parent,omitempty"`
	Phase         string `json:"phase,omitempty"`

	// Total = Claims + Carved + Retained + Cooling + Withheld + Free, where no blocks overlap.
	Total    string `json:"total"`
	Claims   string `json:"claims"`
	Carved   string `json:"carved"`
	Retained string `json:"retained"`
	Cooling  string `json:"cooling"`
	Withheld string `json:"withheld"`
	Free     string `json:"free"`
	// Used is what claims hold of the pool and of all pools below it.
	Used string `json:"used"`
	// Blocks is how many blocks of the pool are recorded.
	Blocks int `json:"blocks"`
	// Waiting is how many IPClaims name the pool and hold no block.
	Waiting int `json:"waiting"`
	// LargestFreePrefix as in /20; empty where nothing is free.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// UtilizationPercent is how much of what can be handed out is held.
	UtilizationPercent int `json:"utilizationPercent"`

	depth int
}

func reportOfPools(pools []*register.Pool) *PoolReport {
	report := &PoolReport{TypeMeta: reportType("PoolReport"), Pools: []PoolUse{}}
	for _, pool := range pools {
		report.Pools = append(report.Pools, poolUse(pool))
	}
	return report
}

func poolUse(pool *register.Pool) PoolUse {
	usage, known := pool.Usage()
	use := PoolUse{
		Kind: string(pool.Key.Kind), Namespace: pool.Key.Namespace, Name: pool.Key.Name,
		Total: usage.Total.String(), Claims: usage.Claims.String(), Carved: usage.Carved.String(),
		Retained: usage.Retained.String(), Cooling: usage.Cooling.String(),
		Withheld: usage.Withheld.String(), Free: usage.Free.String(), Used: usage.Used.String(),
		Blocks: len(pool.Records), Waiting: pool.Waiting,
	}
	if known {
		use.CIDR = pool.CIDR.String()
		usable := usage.Total.Sub(usage.Withheld)
		use.UtilizationPercent = usable.Sub(usage.Free).Percent(usable)
	}
	if usage.LargestFree != ipam.NoLength {
		use.LargestFreePrefix = fmt.Sprintf("/%d", usage.LargestFree)
	}
	if pool.Domain != nil {
		use.RoutingDomain = pool.Domain.Key.Name
	}
	if pool.IsKnown() {
		use.Phase = string(pool.Object.PoolStatus().Phase)
	}
	if pool.IsKnown() && pool.IsChild() {
		use.Parent = pool.Home.Name
	}
	for parent := pool.Parent; parent != nil; parent = parent.Parent {
		use.depth++
	}
	return use
}

func (r *PoolReport) names() []string {
	var names []string
	for i := range r.Pools {
		names = append(names, strings.ToLower(r.Pools[i].Kind)+"/"+r.Pools[i].Name)
	}
	return names
}

func (r *PoolReport) table(wide bool) *table {
	t := &table{
		headers: []string{"POOL", "CIDR", "USE", "", "HELD", "CARVED", "FREE", "WITHHELD", "LARGEST FREE", "USED"},
		empty:   "There are no pools that you may read.",
	}
	if wide {
		t.headers = append(t.headers, "DOMAIN", "PHASE", "BLOCKS", "RETAINED", "COOLING", "WAITING", "TOTAL")
	}
	for i := range r.Pools {
		t.add(r.Pools[i].row(wide)...)
	}
	return t
}

func (p *PoolUse) row(wide bool) []cell {
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + p.Name
	}
	held := p.heldWithoutChildren()
	cells := []cell{
		text("%s%s", strings.Repeat("  ", p.depth), name), text("%s", orNone(p.CIDR)),
		{text: bar(p.UtilizationPercent), style: fullness(p.UtilizationPercent)}, text("%d%%", p.UtilizationPercent),
		text("%s", held), text("%s", p.Carved), text("%s", p.Free), text("%s", p.Withheld),
		text("%s", orNone(p.LargestFreePrefix)), text("%s", p.Used),
	}
	if wide {
		cells = append(cells, text("%s", orNone(p.RoutingDomain)), text("%s", orNone(p.Phase)), text("%d", p.Blocks),
			text("%s", p.Retained), text("%s", p.Cooling), text("%d", p.Waiting), text("%s", p.Total))
	}
	return cells
}

// heldWithoutChildren is what is held of the pool other than as the space of a child.
func (p *PoolUse) heldWithoutChildren() string {
	var sum space.Count
	for _, part := range []string{p.Claims, p.Retained, p.Cooling} {
		if n, ok := space.ParseCount(part); ok {
			sum = sum.Add(n)
		}
	}
	return sum.String()
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
func fullness(percent int) style {
	switch {
	case percent >= 100:
		return bad
	case percent >= 80:
		return warning
	default:
		return good
	}
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
