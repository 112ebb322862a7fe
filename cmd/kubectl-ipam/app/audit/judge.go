package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Judge finds the objects in a snapshot that do not agree. A record that was written within the
// grace period may be under way: Judge counts it and does not judge it. The order of the findings
// does not depend on the order in which objects were read.
func Judge(s *Snapshot, grace time.Duration) (findings []Finding, underWay int) {
	j := newJudgement(s, grace)
	j.records()
	j.overlaps()
	j.claims()
	j.pools()
	j.addresses()
	j.gateways()
	j.networks()
	j.domains()
	sortFindings(j.findings)
	return j.findings, len(j.young)
}

// judgement holds an indexed snapshot, and the findings in it so far.
type judgement struct {
	*Snapshot
	grace    time.Duration
	findings []Finding
	// young holds the records that may be under way.
	young map[ipam.Name]bool

	recordsBy   map[ipam.Name]*Record
	holdersOf   map[ipam.Holder][]*Record
	claimsBy    map[ipam.Name]*Claim
	requestsBy  map[ipam.Name]*AddressClaim
	addressesBy map[ipam.Name]*Address
	poolsBy     map[ipam.PoolKey]*Pool
}

func newJudgement(s *Snapshot, grace time.Duration) *judgement {
	j := &judgement{
		Snapshot: s, grace: grace, young: map[ipam.Name]bool{},
		recordsBy:   make(map[ipam.Name]*Record, len(s.Records)),
		holdersOf:   make(map[ipam.Holder][]*Record, len(s.Records)),
		claimsBy:    make(map[ipam.Name]*Claim, len(s.Claims)),
		requestsBy:  make(map[ipam.Name]*AddressClaim, len(s.AddressClaims)),
		addressesBy: make(map[ipam.Name]*Address, len(s.Addresses)),
		poolsBy:     make(map[ipam.PoolKey]*Pool, len(s.Pools)),
	}
	for i := range s.Records {
		record := &s.Records[i]
		j.recordsBy[record.Name] = record
		j.holdersOf[record.Holder] = append(j.holdersOf[record.Holder], record)
	}
	for i := range s.Claims {
		j.claimsBy[s.Claims[i].Name] = &s.Claims[i]
	}
	for i := range s.AddressClaims {
		j.requestsBy[s.AddressClaims[i].Name] = &s.AddressClaims[i]
	}
	for i := range s.Addresses {
		j.addressesBy[s.Addresses[i].Name] = &s.Addresses[i]
	}
	for i := range s.Pools {
		j.poolsBy[s.Pools[i].Key] = &s.Pools[i]
	}
	return j
}

// add adds a finding about an object.
func (j *judgement) add(kind Kind, object Object, format string, args ...any) *Finding {
	j.findings = append(j.findings, Finding{Severity: kind.Severity(), Kind: kind, Object: object, Message: fmt.Sprintf(format, args...)})
	return &j.findings[len(j.findings)-1]
}

// isOver reports whether the grace period is over. It began at since, or with the leader if that
// is later.
func (j *judgement) isOver(since time.Time) bool {
	if since.Before(j.LeaderSince) {
		since = j.LeaderSince
	}
	return j.Now.Sub(since) >= j.grace
}

// records judges each record by itself: its holder, its pool, and its time.
func (j *judgement) records() {
	for i := range j.Snapshot.Records {
		record := &j.Snapshot.Records[i]
		j.holder(record)
		j.place(record)
		j.time(record)
	}
	for _, u := range j.Unreadable {
		f := j.add(RecordUnreadable, Object{Kind: kindRecord, Namespace: u.Name.Namespace, Name: u.Name.Name, UID: u.UID},
			"cannot be understood, and no pool hands out its block: %v: delete it", u.Err)
		f.Releasable = true
	}
}

func (j *judgement) holder(record *Record) {
	why := j.missing(record)
	switch {
	case why == "":
	case !j.isOver(record.Written):
		j.young[record.Name] = true
	default:
		f := j.add(RecordWithoutHolder, record.object(), "%s of %s is recorded for %s, %s: the operator releases it after its grace period; if it does not, see kubectl ipam doctor",
			record.Block, record.Pool, record.Holder, why)
		f.Block = record.Block.String()
	}
}

// missing returns the reason why a record that should have a holder has none; empty if it has
// one, or if that is not known. The operator's collector of orphans uses the same rule.
func (j *judgement) missing(record *Record) string {
	holder := record.Holder
	if record.State != ipam.StateBound && record.State != ipam.StateReleasing {
		return ""
	}
	switch {
	case holder.Kind == kindClaim:
		return j.missingClaim(record)
	case holder.IsPool():
		return j.missingPool(record)
	case holder.Kind == convert.AddressClaimKind:
		return j.missingAddress(record)
	}
	return ""
}

const (
	notThere     = "which does not exist"
	anotherOne   = "of which another one of that name exists since"
	namesAnother = "which names another IPAllocation"
)

func (j *judgement) missingClaim(record *Record) string {
	claim := j.claimsBy[ipam.Name{Namespace: record.Holder.Namespace, Name: record.Holder.Name}]
	switch {
	case claim == nil && !j.covers("ipclaims", record.Holder.Namespace):
		return ""
	case claim == nil:
		return notThere
	case !record.MayBeOf(claim.UID):
		return anotherOne
	case claim.Record == "":
		return "which names no IPAllocation"
	case claim.Record != record.Name.Name:
		return namesAnother + ", " + claim.Record
	}
	return ""
}

func (j *judgement) missingPool(record *Record) string {
	pool := j.poolsBy[convert.PoolOf(record.Holder)]
	switch {
	case pool == nil && !j.covers(resourceOf(convert.PoolOf(record.Holder)), record.Holder.Namespace):
		return ""
	case pool == nil:
		return notThere
	case !record.MayBeOf(pool.UID):
		return anotherOne
	case !pool.CIDR.IsValid():
		return "which has no CIDR"
	case pool.CIDR != record.Block:
		return "which has the CIDR " + pool.CIDR.String()
	}
	return ""
}

func (j *judgement) missingAddress(record *Record) string {
	name := ipam.Name{Namespace: record.Holder.Namespace, Name: record.Holder.Name}
	address, claim := j.addressesBy[name], j.requestsBy[name]
	switch {
	case address != nil && address.Addr == record.Block.Addr():
		return ""
	case address != nil:
		return "whose IPAddress is " + address.Addr.String()
	case !j.covers("ipaddresses", name.Namespace) || claim == nil && !j.covers("ipaddressclaims", name.Namespace):
		return ""
	case claim == nil:
		return notThere
	case !record.MayBeOf(claim.UID):
		return anotherOne
	}
	return ""
}

// place judges the pool of a record, and whether the record's block lies in it.
func (j *judgement) place(record *Record) {
	if !record.Pool.Kind.IsPool() || j.young[record.Name] {
		return
	}
	pool := j.poolsBy[record.Pool]
	switch {
	case pool == nil && record.PoolUnknown:
	case pool == nil && j.covers(resourceOf(record.Pool), record.Pool.Namespace):
		f := j.add(RecordWithoutPool, record.object(), "%s is recorded in %s, which does not exist: make the pool again with the CIDR that it had, or delete %s",
			record.Block, record.Pool, record.Holder)
		f.Block, f.Releasable = record.Block.String(), record.State == ipam.StateRetained
	case pool == nil || !pool.CIDR.IsValid():
	case !pool.CIDR.Contains(record.Block.Addr()) || pool.CIDR.Bits() > record.Block.Bits():
		f := j.add(BlockOutsidePool, record.object(), "%s of %s does not lie in %s, the pool's CIDR: delete %s and create it again",
			record.Block, record.Holder, pool.CIDR, record.Holder)
		f.Block = record.Block.String()
	}
}

// time judges records whose time is over.
func (j *judgement) time(record *Record) {
	if record.ReleaseAfter.IsZero() || !j.isOver(record.ReleaseAfter) || !j.isOver(record.Written) {
		return
	}
	due := record.ReleaseAfter.UTC().Format(time.RFC3339)
	switch record.State {
	case ipam.StateRetained:
		f := j.add(RetainedPastDue, record.object(), "%s of %s was retained for %s until %s: release it, and see kubectl ipam doctor for why the operator does not",
			record.Block, record.Pool, record.Holder, due)
		f.Block, f.Releasable = record.Block.String(), true
	case ipam.StateCooling:
		f := j.add(CoolingPastDue, record.object(), "%s of %s was to be free at %s: see kubectl ipam doctor for why the operator does not release it",
			record.Block, record.Pool, due)
		f.Block = record.Block.String()
	}
}

const (
	kindRecord = "IPAllocation"
	kindClaim  = "IPClaim"
)

func (r *Record) object() Object {
	return Object{Kind: kindRecord, Namespace: r.Name.Namespace, Name: r.Name.Name, UID: r.UID}
}

func resourceOf(pool ipam.PoolKey) string {
	if pool.Kind == ipam.PoolKindLocalIPPool {
		return "localippools"
	}
	return "ippools"
}

// Options holds the limits for operations that are under way.
type Options struct {
	// Grace is the longest time that a record may be without a holder, or past its time.
	Grace time.Duration
	// Settle is the time for which anything must stay wrong to be reported.
	Settle time.Duration
}

// Watch reads and judges snapshots until nothing is wrong any more, or something has been wrong
// for Options.Settle. It returns the last snapshot, the findings that are in all snapshots, and
// the notes on the last.
func Watch(ctx context.Context, read func(context.Context) (*Snapshot, error), o Options) (last *Snapshot, findings []Finding, underWay int, err error) {
	first := true
	var until time.Time
	var notes []Finding
	look := func(ctx context.Context) (done bool, err error) {
		if last, err = read(ctx); err != nil {
			return false, err
		}
		var found []Finding
		found, underWay = Judge(last, o.Grace)
		wrong := slices.IndexFunc(found, func(f Finding) bool { return f.IsNote() })
		if wrong < 0 {
			wrong = len(found)
		}
		found, notes = found[:wrong], found[wrong:] // the notes come last, and need not stay
		if first {
			first, findings, until = false, found, last.Now.Add(o.Settle)
		} else {
			findings = Both(found, findings)
		}
		return len(findings) == 0 || !last.Now.Before(until), nil
	}
	pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 100, Cap: 4 * time.Second}
	err = pause.DelayFunc().Until(ctx, true, true, look)
	return last, append(findings, notes...), underWay, err
}
