package view

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

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
		if entry.Block.IsValid() && entry.Block.Overlaps(asked) && !entry.Time.Before(from) {
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
	pool := entry.Pool
	if entry.PoolNamespace != "" {
		pool = entry.PoolNamespace + "/" + pool
	}
	why := string(entry.Reason)
	switch {
	case entry.Message != "":
		why += ": " + entry.Message
	case !entry.Until.IsZero():
		why += ", until " + entry.Until.UTC().Format(time.RFC3339)
	}
	values := []string{entry.Block.String(), pool, holder.String(), entry.RequestedBy, why}
	if wide {
		values = append(values, entry.Class, entry.Project, entry.Record, entry.Replica)
	}
	cells := []command.Cell{command.Text("%s", entry.Time.UTC().Format(time.RFC3339)), whatCell(entry)}
	for _, value := range values {
		cells = append(cells, command.Text("%s", command.OrNone(value)))
	}
	return cells
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
