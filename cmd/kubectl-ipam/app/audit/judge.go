// Package audit compares records, holders and pools with each other, and finds those that do
// not agree.
//
// [Judge] decides from one [Snapshot]. The lists from which a snapshot is read are not of one
// moment, and the operator works while they are read, so Judge could report operations that
// are under way in a healthy cluster as errors. Three rules prevent that:
//
//   - Records are read first and their holders second, as the operator does. A claim that
//     was stored between the two is seen, and its record does not count as one without holder.
//   - A record without holder that was written within the grace period is not judged: its
//     claim may still be on its way, or its leader may not have had time to collect it.
//   - The snapshot is read again, with growing pauses, and only the findings that each
//     snapshot has, with the same UIDs, are reported: see [Watch].
package audit

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
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
		recordsBy:   indexBy(s.Records, func(r *Record) ipam.Name { return r.Name }),
		holdersOf:   make(map[ipam.Holder][]*Record, len(s.Records)),
		claimsBy:    indexBy(s.Claims, func(c *Claim) ipam.Name { return c.Name }),
		requestsBy:  indexBy(s.AddressClaims, func(c *AddressClaim) ipam.Name { return c.Name }),
		addressesBy: indexBy(s.Addresses, func(a *Address) ipam.Name { return a.Name }),
		poolsBy:     indexBy(s.Pools, func(p *Pool) ipam.PoolKey { return p.Key }),
	}
	for i := range s.Records {
		record := &s.Records[i]
		j.holdersOf[record.Holder] = append(j.holdersOf[record.Holder], record)
	}
	return j
}

func indexBy[T any, K comparable](items []T, key func(*T) K) map[K]*T {
	index := make(map[K]*T, len(items))
	for i := range items {
		index[key(&items[i])] = &items[i]
	}
	return index
}

// add adds a finding about an object and a block, which is empty if there is none.
func (j *judgement) add(kind Kind, object Object, block, format string, args ...any) *Finding {
	j.findings = append(j.findings, Finding{
		Severity: kind.Severity(), Kind: kind, Object: object, Block: block, Message: fmt.Sprintf(format, args...),
	})
	return &j.findings[len(j.findings)-1]
}

// addRecord adds a finding about a record, which a person can delete if it is releasable.
func (j *judgement) addRecord(kind Kind, record *Record, isReleasable bool, format string, args ...any) {
	j.add(kind, record.object(), record.Block.String(), format, args...).Releasable = isReleasable
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
		j.add(RecordUnreadable, objectNamed(kindRecord, u.Name, u.UID), "", "cannot be understood, and no pool hands out its block: %v: delete it", u.Err).Releasable = true
	}
}

func (j *judgement) holder(record *Record) {
	why := j.missing(record)
	switch {
	case why == "":
	case !j.isOver(record.Written):
		j.young[record.Name] = true
	default:
		j.addRecord(RecordWithoutHolder, record, false, "%s of %s is recorded for %s, %s: the operator releases it after its grace period; if it does not, see kubectl ipam doctor",
			record.Block, record.Pool, record.Holder, why)
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
	case pool == nil && !j.covers(register.ResourceOf(convert.PoolOf(record.Holder)), record.Holder.Namespace):
		return ""
	case pool == nil:
		return notThere
	case !record.MayBeOf(pool.UID):
		return anotherOne
	case !pool.CIDR.IsValid():
		return "which has no CIDR"
	case pool.hasRecord(record):
		return ""
	case pool.Occupied != nil:
		return "which occupies other ranges"
	}
	return "which has the CIDR " + pool.CIDR.String()
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
	case pool == nil && j.covers(register.ResourceOf(record.Pool), record.Pool.Namespace):
		j.addRecord(RecordWithoutPool, record, record.State == ipam.StateRetained, "%s is recorded in %s, which does not exist: make the pool again with the CIDR that it had, or delete %s",
			record.Block, record.Pool, record.Holder)
	case pool == nil || !pool.CIDR.IsValid():
	default:
		j.outside(pool, record)
	}
}

// outside judges whether the blocks of a record lie in its pool.
func (j *judgement) outside(pool *Pool, record *Record) {
	for _, block := range record.Blocks() {
		switch {
		case pool.Has(block) || j.isInOwnRecord(pool, block):
		case pool.Occupied != nil:
			j.addRecord(BlockOutsidePool, record, false, "%s of %s does not lie in the ranges that the pool occupies: delete %s and create it again, or add the block to the ranges",
				block, record.Holder, record.Holder)
			return
		default:
			j.addRecord(BlockOutsidePool, record, false, "%s of %s does not lie in %s, the pool's CIDR: delete %s and create it again",
				block, record.Holder, pool.CIDR, record.Holder)
			return
		}
	}
}

// isInOwnRecord reports whether a pool that occupies its ranges has a block by one of its records: one
// that was made before the ranges were edited stays until the blocks in it are released.
func (j *judgement) isInOwnRecord(pool *Pool, block netip.Prefix) bool {
	if pool.Occupied == nil {
		return false
	}
	return slices.ContainsFunc(j.holdersOf[convert.HolderOfPool(pool.Key)], func(own *Record) bool {
		covers := func(outer netip.Prefix) bool { return ipam.Covers(outer, block) }
		return own.Purpose == ipam.PurposePool && own.Pool == pool.Home && own.MayBeOf(pool.UID) && slices.ContainsFunc(own.Blocks(), covers)
	})
}

// time judges records whose time is over.
func (j *judgement) time(record *Record) {
	if record.ReleaseAfter.IsZero() || !j.isOver(record.ReleaseAfter) || !j.isOver(record.Written) {
		return
	}
	due := record.ReleaseAfter.UTC().Format(time.RFC3339)
	switch record.State {
	case ipam.StateRetained:
		j.addRecord(RetainedPastDue, record, true, "%s of %s was retained for %s until %s: release it, and see kubectl ipam doctor for why the operator does not",
			record.Block, record.Pool, record.Holder, due)
	case ipam.StateCooling:
		j.addRecord(CoolingPastDue, record, false, "%s of %s was to be free at %s: see kubectl ipam doctor for why the operator does not release it",
			record.Block, record.Pool, due)
	}
}

const (
	kindRecord = "IPAllocation"
	kindClaim  = "IPClaim"
)

func objectNamed(kind string, name ipam.Name, uid string) Object {
	return Object{Kind: kind, Namespace: name.Namespace, Name: name.Name, UID: uid}
}

func (r *Record) object() Object { return objectNamed(kindRecord, r.Name, r.UID) }

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
		wrong := 0
		for wrong < len(found) && !found[wrong].IsNote() {
			wrong++
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

// KindDomain is the kind of a routing domain, which has no object.
const KindDomain = "RoutingDomain"

// domainOf returns the routing domain in which a pool lies; false if that is not known.
func (j *judgement) domainOf(key ipam.PoolKey) (ipam.PoolKey, bool) {
	for range len(j.Pools) + 1 {
		pool := j.poolsBy[key]
		if pool == nil {
			return ipam.PoolKey{}, false
		}
		if key = pool.Home; key.Kind == ipam.PoolKindRoutingDomain {
			return key, true
		}
	}
	return ipam.PoolKey{}, false
}

// domains notes that blocks of claims are handed out in more than one routing domain. It adds one
// note for any number of blocks.
func (j *judgement) domains() {
	var held []register.Held
	for i := range j.Records {
		record := &j.Records[i].Record
		if record.State != ipam.StateBound || record.Holder.IsPool() || j.young[record.Name] {
			continue
		}
		if domain, ok := j.domainOf(record.Pool); ok {
			held = append(held, register.Held{Record: record, Domain: domain})
		}
	}
	pairs := register.Shared(held)
	if len(pairs) == 0 {
		return
	}
	examples := ipam.FormatList(pairs, mostExamples, func(p register.Pair) string {
		return fmt.Sprintf("%s of %s in %s with %s of %s in %s",
			p.Inner.Block, p.Inner.Holder, p.Inner.Domain.FullName(), p.Outer.Block, p.Outer.Holder, p.Outer.Domain.FullName())
	}, "; ")
	f := j.add(BlockInSeveralDomains, domainObject(pairs[0].Outer.Domain), pairs[0].Inner.Block.String(),
		"%s with a block of another routing domain: %s: that is as it should be if these networks are never connected; otherwise give their pools one routing domain, or other CIDRs",
		ipam.FormatNumber(len(pairs), "block overlaps", "blocks overlap"), examples)
	f.Other = new(domainObject(pairs[0].Inner.Domain))
}

func domainObject(key ipam.PoolKey) Object {
	return Object{Kind: KindDomain, Namespace: key.Namespace, Name: key.Name}
}

// mostExamples limits the blocks that a finding about many blocks names.
const mostExamples = 3
