package view

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// WhoReport represents the output of `who`.
type WhoReport struct {
	metav1.TypeMeta `json:",inline"`
	// Asked is the address or the CIDR.
	Asked string `json:"asked"`
	// Places holds the pools that contain it or lie in it, by routing domain and address.
	Places []Place `json:"places"`
	// Omitted is the number of blocks and withheld ranges that are not listed.
	Omitted int `json:"omitted,omitempty"`
	// SharedBy names the routing domains in which claims hold the same addresses, if there is
	// more than one.
	SharedBy []string `json:"sharedBy,omitempty"`
	// History holds the entries of the history files; missing if no file was given.
	History *WhoHistory `json:"history,omitempty"`

	now time.Time
}

// WhoHistory represents the history of the addresses.
type WhoHistory struct {
	// Since is the moment from which on the caller asked for it.
	Since *time.Time `json:"since,omitempty"`
	// Entries holds the last entries, the oldest first.
	Entries []history.Entry `json:"entries"`
	// Omitted is the number of earlier entries that are not listed.
	Omitted int `json:"omitted,omitempty"`
}

// Place represents a pool's view of the requested addresses.
type Place struct {
	RoutingDomain string `json:"routingDomain,omitempty"`
	// Pool is missing if only a routing domain has a record.
	Pool *command.ObjectRef `json:"pool,omitempty"`
	// PoolCIDR is empty if the caller cannot read the pool.
	PoolCIDR string `json:"poolCIDR,omitempty"`
	// PoolPhase is the phase of a pool that hands out nothing, such as Paused.
	PoolPhase string `json:"poolPhase,omitempty"`
	// Blocks holds the held blocks.
	Blocks []HeldBlock `json:"blocks,omitempty"`
	// Withheld holds the ranges that are never handed out.
	Withheld []WithheldRange `json:"withheld,omitempty"`
	// Free is the number of these addresses that are free, a decimal string; empty if it is not
	// known.
	Free string `json:"free,omitempty"`

	depth    int
	freeText string
}

// HeldBlock represents a block that is held.
type HeldBlock struct {
	CIDR string `json:"cidr"`
	// State is Bound, Retained, Cooling or Releasing, or Carved: held by a pool.
	State  string            `json:"state"`
	Holder command.ObjectRef `json:"holder"`
	// Owners own the holder, the nearest first.
	Owners []command.ObjectRef `json:"owners,omitempty"`
	// Drained reports that the block would not be handed out any more: it is reserved, or
	// outside of the pool's ranges.
	Drained bool `json:"drained,omitempty"`
	// Terminating reports that the record is being deleted.
	Terminating bool `json:"terminating,omitempty"`
	// Since is the time at which the block was recorded, and ReleaseAfter the time at which a
	// retained or cooling block becomes free.
	Since        metav1.Time  `json:"since"`
	ReleaseAfter *metav1.Time `json:"releaseAfter,omitempty"`
	RequestedBy  string       `json:"requestedBy,omitempty"`
	Class        string       `json:"class,omitempty"`
	Project      string       `json:"project,omitempty"`
	// Allocation is the record: namespace/name.
	Allocation string `json:"allocation"`

	first netip.Addr
}

// WithheldRange represents a range that is never handed out.
type WithheldRange struct {
	// Range is a single address, a CIDR, or two addresses: a-b.
	Range  string `json:"range"`
	Reason string `json:"reason"`

	first netip.Addr
}

// stateCarved is the state of a block that is the space of a pool.
const stateCarved = "Carved"

// AddOwners finds the owners of the claims that hold blocks.
func (r *WhoReport) AddOwners(ctx context.Context, found *command.Owners) {
	for i := range r.Places {
		for j := range r.Places[i].Blocks {
			if block := &r.Places[i].Blocks[j]; block.State != stateCarved {
				block.Owners = found.Above(ctx, block.Holder)
			}
		}
	}
}

// Names implements command.Report.
func (r *WhoReport) Names() []string {
	var names []string
	for i := range r.Places {
		for j := range r.Places[i].Blocks {
			names = append(names, "ipallocation/"+r.Places[i].Blocks[j].Allocation)
		}
	}
	return names
}

// Table implements command.Report.
func (r *WhoReport) Table(wide bool) *command.Table {
	t := &command.Table{Headers: []string{"DOMAIN", "POOL", "BLOCK", "STATE", "HOLDER", "USED BY", "SINCE", "REQUESTED BY"}}
	if wide {
		t.Headers = append(t.Headers, "POOL CIDR", "CLASS", "PROJECT", "ALLOCATION")
	}
	for i := range r.Places {
		place := &r.Places[i]
		for _, row := range place.rows(r.now) {
			t.Add(row.cells(place, wide)...)
		}
	}
	var footer []string
	if r.Omitted > 0 {
		footer = append(footer, ipam.FormatCount(r.Omitted, "more row")+" not shown: use --all.")
	}
	if len(r.SharedBy) > 0 {
		footer = append(footer, "Claims hold the same addresses in the routing domains "+strings.Join(r.SharedBy, ", ")+".")
	}
	t.Footer = strings.Join(footer, "\n")
	if r.History != nil {
		t.Empty, t.Next = "It lies in no pool that you may read.", r.History.Table(wide)
	}
	return t
}

// whoRow represents one row of the table: a block that is held, withheld or free.
type whoRow struct {
	block string
	state command.Cell
	of    HeldBlock
	user  string
	age   string

	first netip.Addr // the rows are ordered by it
}

func (p *Place) rows(now time.Time) []whoRow {
	var rows []whoRow
	for i := range p.Blocks {
		b := &p.Blocks[i]
		rows = append(rows, whoRow{block: b.CIDR, state: b.stateCell(now), of: *b, user: command.UserOf(b.Owners), age: age(now, b.Since.Time), first: b.first})
	}
	for _, w := range p.Withheld {
		rows = append(rows, whoRow{block: w.Range, state: command.Cell{Text: "Withheld: " + w.Reason, Style: command.Withheld}, first: w.first})
	}
	slices.SortStableFunc(rows, func(a, b whoRow) int { return a.first.Compare(b.first) })
	if p.freeText != "" {
		state := command.Cell{Text: "Free", Style: command.Good}
		if p.PoolPhase != "" {
			state = command.Cell{Text: "Free, but the pool is " + p.PoolPhase, Style: command.Warning}
		}
		rows = append(rows, whoRow{block: p.freeText, state: state})
	}
	return rows
}

func (row *whoRow) cells(p *Place, wide bool) []command.Cell {
	pool, holder := "", ""
	if p.Pool != nil {
		pool = strings.Repeat("  ", p.depth) + p.Pool.FullName()
	}
	if row.of.CIDR != "" {
		holder = row.of.Holder.String()
	}
	values := []string{holder, row.user, row.age, row.of.RequestedBy}
	if wide {
		values = append(values, p.PoolCIDR, row.of.Class, row.of.Project, row.of.Allocation)
	}
	cells := []command.Cell{command.Text("%s", command.OrNone(p.RoutingDomain)), command.Text("%s", command.OrNone(pool)), command.Text("%s", row.block), row.state}
	for _, value := range values {
		cells = append(cells, command.Text("%s", command.OrNone(value)))
	}
	return cells
}

// stateCell returns the state with the details that a person needs beside it.
func (b *HeldBlock) stateCell(now time.Time) command.Cell {
	c := command.Cell{Text: b.State, Style: styleOfState(b.State)}
	if b.ReleaseAfter != nil && (b.State == string(ipam.StateRetained) || b.State == string(ipam.StateCooling)) {
		c.Text += ", " + left(now, b.ReleaseAfter.Time)
	}
	if b.Drained {
		c.Text += ", drained"
	}
	if b.Terminating {
		c.Text += ", terminating"
	}
	return c
}

func styleOfState(state string) command.Style {
	switch state {
	case string(ipam.StateBound):
		return command.InUse
	case stateCarved:
		return command.Plain
	default:
		return command.Warning
	}
}

// age returns the time that has passed since then; empty if then is zero.
func age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(then))
}

// left returns the time until then, or that it is due.
func left(now, then time.Time) string {
	if !now.Before(then) {
		return "due"
	}
	return duration.HumanDuration(then.Sub(now)) + " left"
}
