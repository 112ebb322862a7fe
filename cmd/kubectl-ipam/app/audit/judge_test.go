package audit

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

const grace = time.Minute

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// healthy returns a small address space in which everything agrees: pool p 10.0.0.0/8 in domain
// default with the child c 10.1.0.0/16, v6 2001:db8::/32, a claim a with 10.0.0.0/24, b with
// 10.1.0.1/32, six with 2001:db8::/128, and Cluster API's claim m with 10.1.0.2.
func healthy() *Snapshot {
	root := func(name, cidr string) Pool {
		block := netip.MustParsePrefix(cidr)
		return Pool{Pool: ipam.Pool{Key: ipam.PoolNamed(name), CIDR: block, Home: ipam.DomainNamed("default", ipam.FamilyOf(block))}, UID: "uid-" + name, Recorded: cidr}
	}
	child := root("c", "10.1.0.0/16")
	child.Home = ipam.PoolNamed("p")
	s := &Snapshot{
		Now:           now,
		Pools:         []Pool{root("p", "10.0.0.0/8"), child, root("v6", "2001:db8::/32")},
		AddressClaims: []AddressClaim{{Name: ipam.Name{Namespace: "team", Name: "m"}, UID: "uid-m", Address: "m"}},
		Addresses:     []Address{{Name: ipam.Name{Namespace: "team", Name: "m"}, UID: "uid-m-address", Claim: "m", Addr: netip.MustParseAddr("10.1.0.2")}},
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		record := recordOf("ippool."+p.Key.Name, p.Recorded, p.Home, convert.HolderOfPool(p.Key))
		record.Purpose, record.Name.Namespace, record.HolderUID = ipam.PurposePool, "cadastre-system", p.UID
		s.Records = append(s.Records, record)
	}
	s.hold("p", "a", "10.0.0.0/24")
	s.hold("c", "b", "10.1.0.1/32")
	s.hold("v6", "six", "2001:db8::/128")
	s.Records = append(s.Records, recordOf("m-record", "10.1.0.2/32", ipam.PoolNamed("c"), convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "m"})))
	return s
}

func recordOf(name, block string, pool ipam.PoolKey, holder ipam.Holder) Record {
	return Record{
		Record: ipam.Record{
			Name: ipam.Name{Namespace: "team", Name: name}, UID: "uid-" + name, Block: netip.MustParsePrefix(block),
			Pool: pool, Holder: holder, Purpose: ipam.PurposeClaim, State: ipam.StateBound,
		},
		Written: now.Add(-time.Hour),
	}
}

func (s *Snapshot) record(name string) *Record {
	return &s.Records[slices.IndexFunc(s.Records, func(r Record) bool { return r.Name.Name == name })]
}

func (s *Snapshot) without(name string) {
	s.Records = slices.DeleteFunc(s.Records, func(r Record) bool { return r.Name.Name == name })
}

// occupying adds the child o of p, which occupies 10.4.0.10-10.4.0.19 of 10.4.0.0/24, and then changes
// the snapshot.
func occupying(changes ...func(*Snapshot)) func(*Snapshot) {
	return func(s *Snapshot) {
		pool := Pool{Pool: ipam.Pool{Key: ipam.PoolNamed("o"), CIDR: netip.MustParsePrefix("10.4.0.0/24"), Home: ipam.PoolNamed("p")}, UID: "uid-o", Recorded: "10.4.0.0/24"}
		pool.Occupied = space.NewRanges(pool.CIDR, []space.Range{{From: netip.MustParseAddr("10.4.0.10"), To: netip.MustParseAddr("10.4.0.19")}})
		s.Pools = append(s.Pools, pool)
		record := recordOf("ippool.o", "10.4.0.10/31", pool.Home, convert.HolderOfPool(pool.Key))
		record.Purpose, record.Name.Namespace, record.HolderUID = ipam.PurposePool, "cadastre-system", pool.UID
		record.AdditionalBlocks = pool.Blocks()[1:]
		s.Records = append(s.Records, record)
		for _, change := range changes {
			change(s)
		}
	}
}

// edited adds a record of the pool o with blocks from before an edit.
func (s *Snapshot) edited(blocks ...string) *Record {
	record := *s.record("ippool.o")
	record.Name.Name, record.UID, record.Block, record.AdditionalBlocks = "ippool-edit.o", "uid-edit", netip.MustParsePrefix(blocks[0]), nil
	for _, block := range blocks[1:] {
		record.AdditionalBlocks = append(record.AdditionalBlocks, netip.MustParsePrefix(block))
	}
	s.Records = append(s.Records, record)
	return &s.Records[len(s.Records)-1]
}

func TestJudge(t *testing.T) {
	claimA := convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "a"})
	retained := func(state ipam.State, due time.Time) func(*Snapshot) {
		return func(s *Snapshot) {
			r := s.record("a-record")
			r.State, r.ReleaseAfter = state, due
			s.Claims = s.Claims[1:]
		}
	}
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   []string
	}{
		"everything agrees": {func(*Snapshot) {}, nil},
		"a block in another": {func(s *Snapshot) {
			s.hold("p", "x", "10.0.0.128/25").Pool = ipam.PoolKey{} // of an earlier version
		}, []string{"BlocksOverlap IPAllocation team/x-record"}},
		"one block twice in IPv6": {func(s *Snapshot) {
			s.hold("v6", "x", "2001:db8::/128")
		}, []string{"BlocksOverlap IPAllocation team/x-record"}},
		"one block in two pools is none of its business": {func(s *Snapshot) {
			s.Records = append(s.Records, recordOf("x-record", "10.1.0.1/32", ipam.PoolNamed("elsewhere"), convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "x"})))
			s.Claims = append(s.Claims, Claim{Name: ipam.Name{Namespace: "team", Name: "x"}, Record: "x-record"})
			s.Pools = append(s.Pools, Pool{Pool: ipam.Pool{Key: ipam.PoolNamed("elsewhere"), CIDR: netip.MustParsePrefix("10.1.0.0/24")}})
		}, nil},
		"root pools of a domain overlap": {func(s *Snapshot) {
			r := recordOf("ippool.q", "10.2.0.0/16", ipam.DomainNamed("default", ipam.IPv4), convert.HolderOfPool(ipam.PoolNamed("q")))
			r.Purpose = ipam.PurposePool
			s.Records = append(s.Records, r)
			s.Pools = append(s.Pools, Pool{Pool: ipam.Pool{Key: ipam.PoolNamed("q"), CIDR: r.Block, Home: r.Pool}, Recorded: "10.2.0.0/16"})
		}, []string{"BlocksOverlap IPAllocation team/ippool.q"}},
		"a block outside its pool": {func(s *Snapshot) {
			s.record("b-record").Block = netip.MustParsePrefix("10.2.0.1/32")
			s.Claims[1].Block = "10.2.0.1/32"
		}, []string{"BlockOutsidePool IPAllocation team/b-record"}},
		"a block larger than its pool": {func(s *Snapshot) {
			s.record("six-record").Block = netip.MustParsePrefix("::/0")
			s.Claims[2].Block = "::/0"
		}, []string{"BlockOutsidePool IPAllocation team/six-record"}},
		"no pool": {func(s *Snapshot) {
			s.Pools = s.Pools[:2]
			s.without("ippool.v6")
		}, []string{"RecordWithoutPool IPAllocation team/six-record"}},
		"no claim": {func(s *Snapshot) { s.Claims = s.Claims[1:] }, []string{"RecordWithoutHolder IPAllocation team/a-record"}},
		"no claim yet": {func(s *Snapshot) {
			s.Claims = s.Claims[1:]
			s.record("a-record").Written = now.Add(-grace + time.Second)
		}, nil},
		"no claim since a leader that is as young": {func(s *Snapshot) {
			s.Claims = s.Claims[1:]
			s.LeaderSince = now.Add(-grace + time.Second)
		}, nil},
		"the loser of a race overlaps for a moment": {func(s *Snapshot) {
			r := recordOf("x-record", "10.0.0.0/25", ipam.PoolNamed("p"), claimA)
			r.Written = now
			s.Records = append(s.Records, r)
		}, nil},
		"a claim made again under the name": {func(s *Snapshot) {
			s.record("a-record").HolderUID = "another"
		}, []string{"HolderDiffersFromRecord IPClaim team/a", "RecordWithoutHolder IPAllocation team/a-record"}},
		"a claim that names another record": {func(s *Snapshot) {
			s.Claims[0].Record = "other"
		}, []string{"HolderWithoutRecord IPClaim team/a", "RecordWithoutHolder IPAllocation team/a-record"}},
		"a claim that waits names no record": {func(s *Snapshot) {
			s.Claims[0].Record, s.Claims[0].Bound = "", false
		}, []string{"RecordWithoutHolder IPAllocation team/a-record"}},
		"a claim without record": {func(s *Snapshot) { s.without("a-record") }, []string{"HolderWithoutRecord IPClaim team/a"}},
		"a claim states another block": {func(s *Snapshot) {
			s.Claims[0].Block = "10.0.1.0/24"
		}, []string{"HolderDiffersFromRecord IPClaim team/a"}},
		"a claim states another pool": {func(s *Snapshot) {
			s.Claims[0].Pool = ipam.PoolNamed("c")
		}, []string{"HolderDiffersFromRecord IPClaim team/a"}},
		"a claim names another holder's record": {func(s *Snapshot) {
			s.without("a-record")
			s.Claims[0].Record = "b-record"
		}, []string{"HolderDiffersFromRecord IPClaim team/a"}},
		"a pool without record": {func(s *Snapshot) { s.without("ippool.c") }, []string{"HolderWithoutRecord IPPool c"}},
		"a pool that is not recorded yet": {func(s *Snapshot) {
			s.without("ippool.c")
			s.Pools[1].Recorded = ""
		}, nil},
		"the record of a pool states another block": {func(s *Snapshot) {
			s.record("ippool.c").Block = netip.MustParsePrefix("10.3.0.0/16")
		}, []string{"HolderDiffersFromRecord IPPool c", "RecordWithoutHolder IPAllocation cadastre-system/ippool.c"}},
		"a pool whose record is about to go": {func(s *Snapshot) {
			s.record("ippool.c").State = ipam.StateReleasing
		}, []string{"HolderDiffersFromRecord IPPool c"}},
		"a pool that goes": {func(s *Snapshot) {
			s.record("ippool.c").State = ipam.StateReleasing
			s.Pools[1].Terminating = true
		}, nil},
		"a pool that occupies ranges": {occupying(), nil},
		"an additional block overlaps a claim": {occupying(func(s *Snapshot) {
			s.hold("p", "x", "10.4.0.13/32")
		}), []string{"BlocksOverlap IPAllocation team/x-record"}},
		"two pools occupy two blocks of the same addresses": {occupying(func(s *Snapshot) {
			other := *s.record("ippool.o")
			other.Name.Name, other.UID, other.Holder, other.HolderUID = "ippool.z", "uid-z-record", convert.HolderOfPool(ipam.PoolNamed("z")), "uid-z"
			pool := s.Pools[len(s.Pools)-1]
			pool.Key, pool.UID = ipam.PoolNamed("z"), "uid-z"
			s.Records, s.Pools = append(s.Records, other), append(s.Pools, pool)
		}), []string{"BlocksOverlap IPAllocation cadastre-system/ippool.z"}},
		"a pool has a record from before its ranges were edited": {occupying(func(s *Snapshot) {
			s.edited("10.4.0.8/29", "10.4.0.16/29", "10.4.0.24/30")
			s.hold("o", "x", "10.4.0.24/32") // outside the ranges since then
		}), nil},
		"a pool has a record from before alone": {occupying(func(s *Snapshot) {
			s.edited("10.4.0.12/31")
			s.without("ippool.o")
		}), nil},
		"a record from before of another pool of that name": {occupying(func(s *Snapshot) {
			s.edited("10.4.0.24/29").HolderUID = "another"
			s.hold("o", "x", "10.4.0.24/32")
		}), []string{"BlockOutsidePool IPAllocation team/x-record", "RecordWithoutHolder IPAllocation cadastre-system/ippool-edit.o"}},
		"two records of a pool that name no UID overlap": {occupying(func(s *Snapshot) {
			s.edited("10.4.0.8/29").HolderUID = ""
			s.record("ippool.o").HolderUID = ""
		}), []string{"BlocksOverlap IPAllocation cadastre-system/ippool.o", "RecordWithoutHolder IPAllocation cadastre-system/ippool-edit.o"}},
		"the only record is of another pool of that name": {occupying(func(s *Snapshot) {
			s.edited("10.4.0.24/29").HolderUID = "another"
			s.without("ippool.o")
		}), []string{"HolderDiffersFromRecord IPPool o", "RecordWithoutHolder IPAllocation cadastre-system/ippool-edit.o"}},
		"records of a pool that occupies its CIDR overlap": {func(s *Snapshot) {
			r := *s.record("ippool.c")
			r.Name.Name, r.UID, r.Block, r.HolderUID = "ippool-edit.c", "uid-edit", netip.MustParsePrefix("10.1.0.0/24"), ""
			s.Records = append(s.Records, r)
		}, []string{"BlocksOverlap IPAllocation cadastre-system/ippool-edit.c", "RecordWithoutHolder IPAllocation cadastre-system/ippool-edit.c"}},
		"a block outside the ranges": {occupying(func(s *Snapshot) {
			s.hold("o", "x", "10.4.0.9/32")
		}), []string{"BlockOutsidePool IPAllocation team/x-record"}},
		"an additional block outside the parent": {occupying(func(s *Snapshot) {
			s.record("ippool.o").AdditionalBlocks[1] = netip.MustParsePrefix("11.0.0.0/30")
		}), []string{"BlockOutsidePool IPAllocation cadastre-system/ippool.o"}},
		"a record lacks a block of a pool that is not its": {occupying(func(s *Snapshot) {
			s.record("ippool.o").AdditionalBlocks = nil
			s.record("ippool.o").HolderUID = ""
		}), []string{"HolderDiffersFromRecord IPPool o", "RecordWithoutHolder IPAllocation cadastre-system/ippool.o"}},
		"retained":                {retained(ipam.StateRetained, now.Add(time.Hour)), nil},
		"retained past due":       {retained(ipam.StateRetained, now.Add(-time.Hour)), []string{"RetainedPastDue IPAllocation team/a-record"}},
		"retained, just due":      {retained(ipam.StateRetained, now.Add(-grace+time.Second)), nil},
		"retained, never due":     {retained(ipam.StateRetained, time.Time{}), nil},
		"cooling past due":        {retained(ipam.StateCooling, now.Add(-time.Hour)), []string{"CoolingPastDue IPAllocation team/a-record"}},
		"an address and no claim": {func(s *Snapshot) { s.AddressClaims = nil }, []string{"AddressWithoutClaim IPAddress team/m"}},
		"a claim and no address":  {func(s *Snapshot) { s.Addresses = nil }, []string{"ClaimWithoutAddress IPAddressClaim team/m"}},
		"neither address nor claim": {func(s *Snapshot) {
			s.Addresses, s.AddressClaims = nil, nil
		}, []string{"RecordWithoutHolder IPAllocation team/m-record"}},
		"an address without record": {func(s *Snapshot) { s.without("m-record") }, []string{"HolderWithoutRecord IPAddress team/m"}},
		"an address that goes": {func(s *Snapshot) {
			s.without("m-record")
			s.Addresses[0].Terminating, s.AddressClaims[0].Terminating = true, true
		}, nil},
		"unreadable": {func(s *Snapshot) {
			s.Unreadable = []Unreadable{{Name: ipam.Name{Namespace: "team", Name: "x"}, Err: field.Required(field.NewPath("spec", "poolRef"), "set it")}}
		}, []string{"RecordUnreadable IPAllocation team/x"}},
		"an unreadable kind is not missed": {func(s *Snapshot) {
			s.Claims, s.Pools, s.Addresses, s.AddressClaims = nil, nil, nil, nil
			for _, resource := range []string{"ipclaims", "ippools", "ipaddressclaims", "ipaddresses"} {
				s.Unread = append(s.Unread, register.Unread{Resource: resource, Namespace: "other"})
			}
		}, nil},
		"nor are records": {func(s *Snapshot) { s.Records, s.Unread = nil, []register.Unread{{Resource: "ipallocations"}} }, nil},
		"a kind that is readable in one namespace is missed there": {func(s *Snapshot) {
			s.without("a-record")
			s.Unread = []register.Unread{{Resource: "ipallocations", Namespace: "team"}, {Resource: "ipclaims", Namespace: "team"}}
		}, []string{"HolderWithoutRecord IPClaim team/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			c.change(s)
			s.expect(t, c.want, func(f *Finding) string { return string(f.Kind) + " " + f.Object.String() })
		})
	}
}

// expect judges the snapshot, with its objects in two orders.
func (s *Snapshot) expect(t *testing.T, want []string, text func(*Finding) string) {
	t.Helper()
	findings, _ := Judge(s, grace)
	var got []string
	for i := range findings {
		got = append(got, text(&findings[i]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	slices.Reverse(s.Records)
	slices.Reverse(s.Claims)
	again, _ := Judge(s, grace)
	if diff := cmp.Diff(findings, again); diff != "" {
		t.Errorf("in another order:\n%s", diff)
	}
}

// TestWatchReportsOnlyLastingProblems shows one snapshot after the other. Notes stand as they are,
// and need not stay.
func TestWatchReportsOnlyLastingProblems(t *testing.T) {
	lost := func(name string, at time.Duration) *Snapshot {
		s := healthy()
		s.Now = now.Add(at)
		s.without(name)
		return s
	}
	another := lost("a-record", time.Second)
	another.Claims[0].UID = "another claim of that name"
	gateway := &ipam.Network{Length: 16, Gateway: netip.MustParseAddr("10.1.0.3")}
	noted, broken, brokenAndNoted := hosts(1, gateway), hosts(0, gateway), hosts(1, gateway)
	broken.without("a-record")
	brokenAndNoted.without("a-record")
	for name, c := range map[string]struct {
		snapshots []*Snapshot
		settle    time.Duration
		want      []Kind
	}{
		"wrong at one look":                     {[]*Snapshot{lost("a-record", 0)}, 0, []Kind{HolderWithoutRecord}},
		"wrong at all looks":                    {[]*Snapshot{lost("a-record", 0), lost("a-record", time.Second)}, time.Second, []Kind{HolderWithoutRecord}},
		"right at the second":                   {[]*Snapshot{lost("a-record", 0), healthy()}, time.Minute, nil},
		"something else is wrong at the second": {[]*Snapshot{lost("a-record", 0), lost("b-record", time.Second)}, time.Minute, nil},
		"another of that name":                  {[]*Snapshot{lost("a-record", 0), another}, time.Minute, nil},
		"notes alone":                           {[]*Snapshot{noted}, time.Hour, []Kind{NetworkDiffersFromPool}},
		"notes beside a finding that goes":      {[]*Snapshot{brokenAndNoted, noted}, time.Hour, []Kind{NetworkDiffersFromPool}},
		"notes that are in the last one only":   {[]*Snapshot{broken, noted}, time.Hour, []Kind{NetworkDiffersFromPool}},
	} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			_, findings, _, err := Watch(t.Context(), func(context.Context) (*Snapshot, error) {
				looks++
				return c.snapshots[looks-1], nil
			}, Options{Grace: grace, Settle: c.settle})
			var got []Kind
			for i := range findings {
				got = append(got, findings[i].Kind)
			}
			if err != nil || looks != len(c.snapshots) || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v after %d looks; want %v after %d", got, err, looks, c.want, len(c.snapshots))
			}
		})
	}
}
