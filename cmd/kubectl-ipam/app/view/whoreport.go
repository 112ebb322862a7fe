package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
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

	now  time.Time
	left int // the number of rows that it has room for
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
	// Network is the network of a Cluster that has the block.
	Network *command.ClusterNetwork `json:"network,omitempty"`
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

// AddOwners finds the owners of the claims that hold blocks, and the networks of Clusters.
func (r *WhoReport) AddOwners(ctx context.Context, found *command.Owners) {
	for i := range r.Places {
		for j := range r.Places[i].Blocks {
			if block := &r.Places[i].Blocks[j]; block.State != stateCarved {
				block.Owners = found.Above(ctx, block.Holder)
				block.Network = found.Networks[block.Holder]
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
		for _, row := range r.Places[i].rows(r.now) {
			t.Add(r.Places[i].cells(row, wide)...)
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
	first netip.Addr // the rows are ordered by it
	block string
	state command.Cell
	// held describes a block that is held: the holder and its user, the age, and the user who asked for it;
	// then its class, project and record.
	held [7]string
}

func (p *Place) rows(now time.Time) []whoRow {
	var rows []whoRow
	for i := range p.Blocks {
		b := &p.Blocks[i]
		held := [...]string{b.Holder.String(), cmp.Or(b.Network.String(), command.UserOf(b.Owners)), age(now, b.Since.Time), b.RequestedBy, b.Class, b.Project, b.Allocation}
		rows = append(rows, whoRow{first: b.first, block: b.CIDR, state: b.stateCell(now), held: held})
	}
	for _, w := range p.Withheld {
		rows = append(rows, whoRow{first: w.first, block: w.Range, state: command.Cell{Text: "Withheld: " + w.Reason, Style: command.Withheld}})
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

func (p *Place) cells(row whoRow, wide bool) []command.Cell {
	pool := ""
	if p.Pool != nil {
		pool = strings.Repeat("  ", p.depth) + p.Pool.PoolName()
	}
	cells := append(command.Texts(p.RoutingDomain, pool), command.Cell{Text: row.block}, row.state)
	cells = append(cells, command.Texts(row.held[:4]...)...)
	if wide {
		cells = slices.Concat(cells, command.Texts(p.PoolCIDR), command.Texts(row.held[4:]...))
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

// WhoHistory represents the history of the addresses.
type WhoHistory struct {
	// Since is the moment from which on the caller asked for it.
	Since *time.Time `json:"since,omitempty"`
	// Entries holds the last entries, the oldest first.
	Entries []history.Entry `json:"entries"`
	// Omitted is the number of earlier entries that are not listed.
	Omitted int `json:"omitted,omitempty"`
}

// historyOptions holds the history files that `who` reads, and the start of the period.
type historyOptions struct {
	files []string
	since string
}

// read reads the entries of the files about the addresses, and returns the last most of them,
// the oldest first; nil if no file is given.
func (o historyOptions) read(e *command.Env, asked netip.Prefix, most int) (*WhoHistory, error) {
	if len(o.files) == 0 {
		if o.since != "" {
			return nil, command.Coded(command.ExitUsage, errors.New("--since needs a history to read: give --history-file FILE, which the operator writes with the flag of the same name; - is the standard input"))
		}
		return nil, nil
	}
	from, err := o.from(e.Clock.Now())
	if err != nil {
		return nil, command.Coded(command.ExitUsage, err)
	}
	h := &WhoHistory{Entries: []history.Entry{}}
	if !from.IsZero() {
		h.Since = &from
	}
	for _, file := range o.files {
		if err := h.readFile(e, file, asked, from); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(h.Entries, func(a, b history.Entry) int { return a.Time.Compare(b.Time) })
	if more := len(h.Entries) - most; more > 0 {
		h.Omitted, h.Entries = more, h.Entries[more:]
	}
	return h, nil
}

// from returns the moment that --since denotes.
func (o historyOptions) from(now time.Time) (time.Time, error) {
	if o.since == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(o.since); err == nil && ago > 0 {
		return now.Add(-ago).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, o.since); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("--since=%s is neither a duration such as 24h, nor a time such as 2026-11-25T13:00:00Z or 2026-11-25", o.since)
}

func (h *WhoHistory) readFile(e *command.Env, path string, asked netip.Prefix, from time.Time) error {
	file := e.In
	if path != "-" {
		opened, err := os.Open(path) //nolint:gosec // the caller names it
		if err != nil {
			return command.Coded(command.ExitNotFound, err)
		}
		defer opened.Close() //nolint:errcheck // it was read
		file = opened
	}
	entries := 0
	unreadable, err := history.Read(file, func(entry history.Entry) error {
		entries++
		if slices.ContainsFunc(entry.Blocks(), asked.Overlaps) && !entry.Time.Before(from) {
			h.Entries = append(h.Entries, entry)
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", path, err)
	case entries == 0 && unreadable > 0:
		return command.Coded(command.ExitUsage, fmt.Errorf("%s is no history: give a file that the operator writes with --history-file, or its log with --logging-format=json", path))
	case unreadable > 0:
		fmt.Fprintf(e.ErrOut, "Passed over %d lines of %s that are no JSON.\n", unreadable, path)
	}
	return nil
}

// Table returns the table of the history, which follows the table of the present holders.
func (h *WhoHistory) Table(wide bool) *command.Table {
	t := &command.Table{Headers: []string{"WHEN", "WHAT", "BLOCK", "POOL", "HOLDER", "REQUESTED BY", "WHY"}, Empty: "The history has no entry about it."}
	if h.Since != nil {
		t.Empty = "The history has no entry about it since " + h.Since.Format(time.RFC3339) + "."
	}
	if wide {
		t.Headers = append(t.Headers, "CLASS", "PROJECT", "ALLOCATION", "REPLICA")
	}
	for i := range h.Entries {
		t.Add(historyCells(&h.Entries[i], wide)...)
	}
	if h.Omitted > 0 {
		t.Footer = fmt.Sprintf("%d earlier entries not shown: use --all.", h.Omitted)
	}
	return t
}

func historyCells(entry *history.Entry, wide bool) []command.Cell {
	holder := command.ObjectRef{Kind: entry.HolderKind, Namespace: entry.HolderNamespace, Name: cmp.Or(entry.Holder, "?")}
	pool := command.ObjectRef{Kind: entry.PoolKind, Namespace: entry.PoolNamespace, Name: entry.Pool}.PoolName()
	why := string(entry.Reason)
	switch {
	case entry.Message != "":
		why += ": " + entry.Message
	case !entry.Until.IsZero():
		why += ", until " + entry.Until.UTC().Format(time.RFC3339)
	}
	cells := append(command.Texts(entry.Time.UTC().Format(time.RFC3339)), whatCell(entry))
	cells = append(cells, command.Texts(blocksText(entry), pool, holder.String(), entry.RequestedBy, why)...)
	if wide {
		cells = append(cells, command.Texts(entry.Class, entry.Project, entry.Record, entry.Replica)...)
	}
	return cells
}

// blocksText returns the block of an entry, and the number of other blocks.
func blocksText(entry *history.Entry) string {
	if n := len(entry.AdditionalBlocks); n > 0 {
		return fmt.Sprintf("%s and %d more", entry.Block, n)
	}
	return entry.Block.String()
}

func whatCell(entry *history.Entry) command.Cell {
	c := command.Cell{Text: string(entry.Action)}
	switch entry.Action {
	case history.Granted:
		c.Style = command.InUse
	case history.Retained:
		c.Text, c.Style = cmp.Or(entry.State, c.Text), command.Warning
	case history.Released:
		c.Style = command.Good
	case history.Refused:
		c.Style = command.Bad
	}
	return c
}
