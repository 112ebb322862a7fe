// Package history records the changes of each block: every grant, retention and release of a
// block, and every refusal of a request, is an Entry, which a Recorder hands to its sinks: the
// log, a file, an OTLP endpoint (package export).
//
// The register (the IPAllocations) shows the present holder of a block; the history shows its
// former holders. The replica that changes a block writes the entry after the change: a replica
// that dies between the two leaves the entry out. No decision depends on the history.
package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// Action represents the action that an Entry records.
type Action string

// These are the actions on a block, or on a request for one.
const (
	// Granted blocks were recorded for a holder.
	Granted Action = "Granted"
	// Retained blocks are kept although their holder is gone.
	Retained Action = "Retained"
	// Released blocks are free.
	Released Action = "Released"
	// Refused requests changed nothing.
	Refused Action = "Refused"
)

// Reason represents the reason why a block was granted, retained or released. The reason of a
// refusal is the reason of the Status that the client got (metav1.StatusReason).
type Reason string

// These are the reasons why blocks are granted.
const (
	// Allocated: the block was free.
	Allocated Reason = "Allocated"
	// TakenOver: the block was retained for the holder, or for its sticky key.
	TakenOver Reason = "TakenOver"
	// Existing: the holder had the block already, by an import, a restore or by hand.
	Existing Reason = "Existing"
	// Adopted: an earlier attempt, or another replica, had recorded it for the holder.
	Adopted Reason = "Adopted"
)

// These are the reasons why blocks are retained or released.
const (
	HolderDeleted    Reason = "HolderDeleted"
	RetentionExpired Reason = "RetentionExpired"
	ReuseDelayOver   Reason = "ReuseDelayOver"
	// Deleted: a person deleted the record of a retained block.
	Deleted Reason = "Deleted"
	// Orphaned: no holder was found: its claim was never stored, or was deleted while no
	// leader watched.
	Orphaned Reason = "Orphaned"
	// Unused: the request for which the block was granted ended before it was answered.
	Unused Reason = "Unused"
	// GivenUp: the record was not its holder's, or its holder may not have as much.
	GivenUp Reason = "GivenUp"
	// NotAllowed: the holder may not use the pool. This was not known when the block was
	// recorded.
	NotAllowed Reason = "NotAllowed"
	// Edited: the ranges of the pool were edited, and another record has them.
	Edited Reason = "Edited"
)

// Explained holds a reason, its actions and its meaning.
type Explained struct {
	Reason  Reason
	Of      []Action
	Meaning string
}

// Reasons returns all reasons except the reasons of refusals.
func Reasons() []Explained {
	granted, ended := []Action{Granted}, []Action{Retained, Released}
	released := ended[1:]
	return []Explained{
		{Allocated, granted, "The block was free, and was found or asked for."},
		{TakenOver, granted, "The block was retained for a claim of this name, or of its sticky key."},
		{Existing, granted, "The holder had it already: by an import, after a restore, or because its IPAddress was made by another client."},
		{Adopted, granted, "An earlier attempt or another replica had recorded it for the holder, and may have answered with it."},
		{HolderDeleted, ended, "The claim or the pool was deleted."},
		{Orphaned, ended, "No holder was found: the claim was never stored, as another webhook or policy refused it, or it was deleted while no leader watched."},
		{RetentionExpired, ended, "The retention of a retained block is over. It may cool down then."},
		{Deleted, ended, "A person deleted the record of a retained block. It may cool down then."},
		{ReuseDelayOver, released, "The reuse delay is over."},
		{Unused, released, "The request for which it was granted was over before it was answered."},
		{GivenUp, released, "The record was not its holder's: the holder has another block, may not have as much, or a former pool had left it behind."},
		{NotAllowed, released, "The holder may not use the pool, which was not known when the block was recorded."},
		{Edited, released, "The ranges of a pool were edited, and another IPAllocation has what the pool holds now."},
	}
}

// ReasonOf returns the reason for a release that the controllers count by a metric's reason.
func ReasonOf(reason metrics.ReleaseReason) Reason {
	return cmp.Or(map[metrics.ReleaseReason]Reason{
		metrics.HolderDeleted: HolderDeleted, metrics.RetentionExpired: RetentionExpired, metrics.ReuseDelayOver: ReuseDelayOver,
		metrics.Deleted: Deleted,
	}[reason], Orphaned)
}

// Entry represents one action. Its JSON is one line of a history file. Later versions can add
// fields to it; they change the meaning of no field, and remove none.
type Entry struct {
	Time    time.Time `json:"time"`
	Action  Action    `json:"action"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`

	Block netip.Prefix `json:"block,omitzero"`
	// AdditionalBlocks are granted, retained or released together with Block.
	AdditionalBlocks BlockList `json:"additionalBlocks,omitempty"`

	PoolKind      string    `json:"poolKind,omitempty"`
	PoolNamespace string    `json:"poolNamespace,omitempty"`
	Pool          string    `json:"pool,omitempty"`
	Class         string    `json:"class,omitempty"`
	Project       string    `json:"project,omitempty"`
	State         string    `json:"state,omitempty"`
	Until         time.Time `json:"until,omitzero"`

	HolderKind      string `json:"holderKind,omitempty"`
	HolderNamespace string `json:"holderNamespace,omitempty"`
	Holder          string `json:"holder,omitempty"`
	HolderUID       string `json:"holderUID,omitempty"`
	RequestedBy     string `json:"requestedBy,omitempty"`

	Operation string `json:"operation,omitempty"`
	Code      int32  `json:"code,omitempty"`
	LeftOut   int    `json:"leftOut,omitempty"`

	Record    string `json:"record,omitempty"`
	RecordUID string `json:"recordUID,omitempty"`
	Replica   string `json:"replica,omitempty"`
}

// Field holds one field of an Entry: its name in JSON, in the log and in OTLP, its meaning, and
// its value: a string or an int64, or nil if the entry does not have it.
type Field struct {
	Name, Meaning string
	Value         func(*Entry) any
}

// Fields returns all fields, in the order of the JSON.
func Fields() []Field {
	return []Field{
		{"time", "When it was done: RFC 3339, UTC.", func(e *Entry) any { return moment(e.Time) }},
		{"action", "The action: Granted, Retained, Released or Refused.", func(e *Entry) any { return string(e.Action) }},
		{"reason", "Why: one of the reasons below; for a refusal the reason of the Status that the client was answered.", func(e *Entry) any { return string(e.Reason) }},
		{"message", "The answer to the client, if it was refused; at most 1,024 bytes.", func(e *Entry) any { return valueOrNil(e.Message) }},
		{"block", "The CIDR. Of a refusal the one that was asked for; missing where none was.", blockOf},
		{"additionalBlocks", "Further CIDRs of the same record, with spaces between them: a pool that occupies its ranges has several.", func(e *Entry) any { return valueOrNil(e.AdditionalBlocks.String()) }},
		{"poolKind", "From where: IPPool, LocalIPPool, InClusterIPPool, GlobalInClusterIPPool or, for the CIDR of a root pool, RoutingDomain.", func(e *Entry) any { return valueOrNil(e.PoolKind) }},
		{"poolNamespace", "Namespace of a LocalIPPool or InClusterIPPool, or of a namespace's own routing domain.", func(e *Entry) any { return valueOrNil(e.PoolNamespace) }},
		{"pool", "Name of the pool, or of the routing domain.", func(e *Entry) any { return valueOrNil(e.Pool) }},
		{"class", "The IPClass, if there is one.", func(e *Entry) any { return valueOrNil(e.Class) }},
		{"project", "The project for whose limits the block counts.", func(e *Entry) any { return valueOrNil(e.Project) }},
		{"state", "How a block is kept: Retained, or Cooling while the reuse delay lasts.", func(e *Entry) any { return valueOrNil(e.State) }},
		{"until", "When a kept block becomes free, unless a claim takes it before.", func(e *Entry) any { return moment(e.Until) }},
		{"holderKind", "Kind of the object that has it, had it or asked for it: IPClaim, IPAddressClaim, IPPool or LocalIPPool. Of a refusal the kind of the object that was refused.", func(e *Entry) any { return valueOrNil(e.HolderKind) }},
		{"holderNamespace", "Namespace of the holder.", func(e *Entry) any { return valueOrNil(e.HolderNamespace) }},
		{"holder", "Name of the holder. Missing where the request was refused before its name was generated.", func(e *Entry) any { return valueOrNil(e.Holder) }},
		{"holderUID", "UID of the holder, where it existed when the block was recorded.", func(e *Entry) any { return valueOrNil(e.HolderUID) }},
		{"requestedBy", "The user who created the holder, or whose request was refused.", func(e *Entry) any { return valueOrNil(e.RequestedBy) }},
		{"operation", "Of a refusal: CREATE, UPDATE or DELETE.", func(e *Entry) any { return valueOrNil(e.Operation) }},
		{"code", "Of a refusal: the HTTP status.", func(e *Entry) any { return number(int64(e.Code)) }},
		{"leftOut", "Of a refusal: how many refusals in the same namespace were left out since the last one that was not.", func(e *Entry) any { return number(int64(e.LeftOut)) }},
		{"record", "The IPAllocation, as namespace/name.", func(e *Entry) any { return valueOrNil(e.Record) }},
		{"recordUID", "UID of the IPAllocation.", func(e *Entry) any { return valueOrNil(e.RecordUID) }},
		{"replica", "The replica that did it: the name of its pod.", func(e *Entry) any { return valueOrNil(e.Replica) }},
	}
}

func valueOrNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func number(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func blockOf(e *Entry) any {
	if !e.Block.IsValid() {
		return nil
	}
	return e.Block.String()
}

// BlockList holds blocks. Its text, in JSON too, has spaces between them, as the log has it.
type BlockList []netip.Prefix

// String returns the blocks with spaces between them.
func (l BlockList) String() string {
	texts := make([]string, len(l))
	for i, block := range l {
		texts[i] = block.String()
	}
	return strings.Join(texts, " ")
}

// MarshalText implements encoding.TextMarshaler.
func (l BlockList) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *BlockList) UnmarshalText(text []byte) error {
	*l = nil
	for field := range strings.FieldsSeq(string(text)) {
		block, err := netip.ParsePrefix(field)
		if err != nil {
			return fmt.Errorf("reading blocks: %w", err)
		}
		*l = append(*l, block)
	}
	return nil
}

// Blocks returns all blocks of the entry; none if it names no block.
func (e *Entry) Blocks() []netip.Prefix {
	if !e.Block.IsValid() {
		return nil
	}
	return append([]netip.Prefix{e.Block}, e.AdditionalBlocks...)
}

// Read calls take for each entry of a history file, or of a log in JSON, in the order of the
// lines. It skips lines that are not entries; unreadable is the number of lines that are not even
// JSON, such as a line that a crash cut off. An error of the reader or of take ends Read, which
// returns it.
func Read(from io.Reader, take func(Entry) error) (unreadable int, err error) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, end := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			e := Entry{}
			switch err := json.Unmarshal(line, &e); {
			case err != nil && !json.Valid(line):
				unreadable++
			case err != nil || e.Action == "" || e.Time.IsZero(): // another JSON line
			default:
				if err := take(e); err != nil {
					return unreadable, err
				}
			}
		}
		switch {
		case errors.Is(end, io.EOF):
			return unreadable, nil
		case end != nil:
			return unreadable, end
		}
	}
}
