package convert

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// claimRecord returns the record of a claim.
func claimRecord() ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: "c-12345678"}, UID: "1-2-3", Version: "42",
		Block: netip.MustParsePrefix("10.0.0.0/24"), Pool: ipam.PoolNamed("p"), Class: "gold",
		Holder:    ipam.Holder{Group: "ipam.cadastre.dev", Kind: "IPClaim", Namespace: "team", Name: "c"},
		HolderUID: "4-5-6", Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, RequestedBy: "jane",
	}
}

func TestRecordRoundTrips(t *testing.T) {
	local := func(r *ipam.Record) {
		r.Name, r.Purpose = ipam.Name{Namespace: "cadastre-system", Name: "localippool.team.q"}, ipam.PurposePool
		r.Holder = ipam.Holder{Group: "ipam.cadastre.dev", Kind: "LocalIPPool", Namespace: "team", Name: "q"}
	}
	for name, edit := range map[string]func(*ipam.Record){
		"of a claim":                     func(*ipam.Record) {},
		"of a claim that has no UID yet": func(r *ipam.Record) { r.HolderUID = "" },
		"of a claim past classes":        func(r *ipam.Record) { r.Class = "" },
		"of a single IPv6 address":       func(r *ipam.Record) { r.Block = netip.MustParsePrefix("2001:db8::1/128") },
		"of an address with its gateway": func(r *ipam.Record) {
			r.Block, r.Gateway = netip.MustParsePrefix("10.0.0.9/32"), netip.MustParseAddr("10.0.0.1")
		},
		"that was taken over":                     func(r *ipam.Record) { r.Adopted = true },
		"that was made before its pool":           func(r *ipam.Record) { r.PoolUnknown = true },
		"that is to be retained":                  func(r *ipam.Record) { r.Reclaim = ipam.ReclaimRetain },
		"that is retained until a person ends it": func(r *ipam.Record) { r.Reclaim, r.State = ipam.ReclaimRetain, ipam.StateRetained },
		"that is retained for a time":             func(r *ipam.Record) { r.State, r.ReleaseAfter = ipam.StateRetained, time.Unix(1700000000, 0) },
		"that is cooling":                         func(r *ipam.Record) { r.State, r.ReleaseAfter = ipam.StateCooling, time.Unix(1700000000, 0) },
		"of a child pool, which has no namespace": func(r *ipam.Record) {
			r.Name = ipam.Name{Namespace: "cadastre-system", Name: "ippool.q"}
			r.Purpose, r.Holder = ipam.PurposePool, ipam.Holder{Group: "ipam.cadastre.dev", Kind: "IPPool", Name: "q"}
		},
		"of a root pool, which lies in a routing domain": func(r *ipam.Record) {
			r.Purpose, r.Holder = ipam.PurposePool, ipam.Holder{Group: "ipam.cadastre.dev", Kind: "IPPool", Name: "q"}
			r.Pool = ipam.DomainNamed("default", ipam.IPv4)
		},
		"of an IPv6 root pool, which lies in the other half of it": func(r *ipam.Record) {
			r.Purpose, r.Holder = ipam.PurposePool, ipam.Holder{Group: "ipam.cadastre.dev", Kind: "IPPool", Name: "q"}
			r.Block, r.Pool = netip.MustParsePrefix("2001:db8::/32"), ipam.DomainNamed("vrf-1", ipam.IPv6)
		},
		"of a pool of ranges": func(r *ipam.Record) {
			local(r)
			r.AdditionalBlocks = []netip.Prefix{netip.MustParsePrefix("10.0.1.0/31"), netip.MustParsePrefix("10.0.2.2/32")}
		},
		"of a claim in its namespace's own pool": func(r *ipam.Record) { r.Pool = ipam.LocalPoolNamed("team", "p") },
		"of a local root pool, in a domain of its namespace's own": func(r *ipam.Record) {
			local(r)
			r.Pool = ipam.LocalDomainNamed("team", "default", ipam.IPv4)
		},
		"of a local pool in one beside it": func(r *ipam.Record) {
			local(r)
			r.Pool = ipam.LocalPoolNamed("team", "above")
		},
		"of a local pool in an IPPool": local,
	} {
		t.Run(name, func(t *testing.T) {
			want := claimRecord()
			edit(&want)
			got, err := Record(Allocation(want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, comparing); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllocation(t *testing.T) {
	got := Allocation(claimRecord())
	want := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c-12345678", UID: "1-2-3", ResourceVersion: "42", Finalizers: []string{v1alpha1.FinalizerHeld}},
		Spec: v1alpha1.IPAllocationSpec{
			CIDR: "10.0.0.0/24", IPFamily: v1alpha1.IPv4, PoolRef: &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "p"}, ClassName: "gold",
			ClaimRef: v1alpha1.ClaimReference{APIGroup: "ipam.cadastre.dev", Kind: "IPClaim", Name: "c", UID: "4-5-6"},
			Purpose:  v1alpha1.PurposeClaim, ReclaimPolicy: v1alpha1.ReclaimDelete, State: v1alpha1.AllocationBound, RequestedBy: "jane",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// unreadableOf returns a function that leaves of a record only the fields that are read if its pool
// is not known.
func unreadableOf(block netip.Prefix) func(*ipam.Record) {
	return func(r *ipam.Record) { *r = ipam.Record{Name: r.Name, UID: r.UID, Version: r.Version, Block: block} }
}

func TestRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(*v1alpha1.IPAllocation)
		want    func(*ipam.Record) // nil: unreadable, with its block
		refused string
	}{
		"reclaim policy and state have defaults": {
			edit: func(a *v1alpha1.IPAllocation) { a.Spec.ReclaimPolicy, a.Spec.State = "", "" },
			want: func(*ipam.Record) {},
		},
		"one that is being deleted still holds its block": {
			edit: func(a *v1alpha1.IPAllocation) { a.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
			want: func(r *ipam.Record) { r.Terminating = true },
		},
		"one without a block is named": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.CIDR = "" },
			want:    unreadableOf(netip.Prefix{}),
			refused: `spec.cidr: Invalid value: "": is not a CIDR: write an address and a prefix length, such as 10.0.0.0/24 or 2001:db8::/64`,
		},
		"one with host bits is named": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.CIDR = "10.0.0.1/24" },
			refused: `spec.cidr: Invalid value: "10.0.0.1/24": has host bits set: did you mean "10.0.0.0/24"?`,
		},
		"one with an IPv4-mapped block is named": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.CIDR = "::ffff:10.0.0.0/120" },
			refused: `spec.cidr: Invalid value: "::ffff:10.0.0.0/120": is an IPv4-mapped IPv6 block: write it as IPv4`,
		},
		"one with all IPv4-mapped addresses holds all of IPv4": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.CIDR = "::ffff:10.0.0.0/96" },
			want:    unreadableOf(netip.MustParsePrefix("0.0.0.0/0")),
			refused: `spec.cidr: Invalid value: "::ffff:10.0.0.0/96": is an IPv4-mapped IPv6 block: write it as IPv4`,
		},
		"one with more than the IPv4-mapped addresses holds all": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.CIDR = "::ffff:10.0.0.0/80" },
			want:    unreadableOf(netip.MustParsePrefix("::/80")),
			refused: `spec.cidr: Invalid value: "::ffff:10.0.0.0/80": is an IPv4-mapped IPv6 block: write it as IPv4`,
		},
		"one with host bits of IPv6 is named": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.CIDR = "2001:db8::1/120" },
			want:    unreadableOf(netip.MustParsePrefix("2001:db8::/120")),
			refused: `spec.cidr: Invalid value: "2001:db8::1/120": has host bits set: did you mean "2001:db8::/120"?`,
		},
		"one with an additional block that cannot be read holds the others": {
			edit: func(a *v1alpha1.IPAllocation) { a.Spec.AdditionalCIDRs = []string{"10.0.1.0/31", "x", "10.0.2.9/31"} },
			want: func(r *ipam.Record) {
				unreadableOf(r.Block)(r)
				r.AdditionalBlocks = []netip.Prefix{netip.MustParsePrefix("10.0.1.0/31"), netip.MustParsePrefix("10.0.2.8/31")}
			},
			refused: `spec.additionalCIDRs[1]: Invalid value: "x": is not a CIDR: write an address and a prefix length, such as 10.0.0.0/24 or 2001:db8::/64`,
		},
		"one whose first block cannot be read holds the others": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.CIDR, a.Spec.AdditionalCIDRs = "x", []string{"10.0.1.0/31"} },
			want:    unreadableOf(netip.MustParsePrefix("10.0.1.0/31")),
			refused: `spec.cidr: Invalid value: "x": is not a CIDR: write an address and a prefix length, such as 10.0.0.0/24 or 2001:db8::/64`,
		},
		"one with blocks that overlap is named": {
			edit: func(a *v1alpha1.IPAllocation) { a.Spec.AdditionalCIDRs = []string{"10.0.1.0/24", "10.0.1.9/32"} },
			want: func(r *ipam.Record) {
				unreadableOf(r.Block)(r)
				r.AdditionalBlocks = []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("10.0.1.9/32")}
			},
			refused: `spec.additionalCIDRs[1]: Invalid value: "10.0.1.9/32": overlaps another block of the record: remove it`,
		},
		"one with a block of the other family is named": {
			edit: func(a *v1alpha1.IPAllocation) { a.Spec.AdditionalCIDRs = []string{"2001:db8::/64"} },
			want: func(r *ipam.Record) {
				unreadableOf(r.Block)(r)
				r.AdditionalBlocks = []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}
			},
			refused: `spec.additionalCIDRs[0]: Invalid value: "2001:db8::/64": is not of the family of 10.0.0.0/24: remove it`,
		},
		"one that lies nowhere is named": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.PoolRef = nil },
			refused: "spec.poolRef: Required value: set it or spec.routingDomain, to locate the block",
		},
		"one in a pool of another kind is named": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.PoolRef.Kind = "Pool" },
			refused: `spec.poolRef.kind: Unsupported value: "Pool": supported values: "IPPool", "LocalIPPool", "GlobalInClusterIPPool", "InClusterIPPool"`,
		},
		"one in a pool without name is named": {
			edit:    func(a *v1alpha1.IPAllocation) { a.Spec.PoolRef.Name = "" },
			refused: "spec.poolRef.name: Required value: set it, to locate the block",
		},
		"one in a LocalIPPool of no namespace is named": {
			edit: func(a *v1alpha1.IPAllocation) {
				a.Spec.Purpose, a.Spec.PoolRef.Kind = v1alpha1.PurposePool, v1alpha1.PoolKindLocalIPPool
			},
			refused: "spec.claimRef.namespace: Required value: set it to the namespace of the LocalIPPool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := Allocation(claimRecord())
			tc.edit(obj)
			got, err := Record(obj)
			want := claimRecord()
			if tc.want == nil {
				tc.want = unreadableOf(want.Block)
			}
			tc.want(&want)
			if messageOf(err) != tc.refused {
				t.Errorf("got the error %q, want %q", messageOf(err), tc.refused)
			}
			if diff := cmp.Diff(want, got, comparing); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecordOf(t *testing.T) {
	if got, err := RecordOf(Allocation(claimRecord())); err != nil || !reflect.DeepEqual(got, claimRecord()) {
		t.Errorf("RecordOf an IPAllocation = %v, %v; want its record", got, err)
	}
	if got, err := RecordOf(&v1alpha1.IPClaim{}); err == nil || !strings.Contains(err.Error(), "IPClaim is not an IPAllocation") {
		t.Errorf("RecordOf an IPClaim = %v, %v; want that it is no IPAllocation", got, err)
	}
	unreadable := Allocation(claimRecord())
	unreadable.Spec.CIDR = "here"
	got, err := RecordOf(unreadable)
	if err == nil || !reflect.DeepEqual(got, ipam.Record{Name: claimRecord().Name, UID: "1-2-3", Version: "42"}) {
		t.Errorf("RecordOf an unreadable one = %v, %v; want its name, UID and version, and why", got, err)
	}
}

func TestAddress(t *testing.T) {
	for block, want := range map[string]string{
		"10.0.0.9/32": "10.0.0.9", "2001:db8::9/128": "2001:db8::9", "10.0.0.8/31": "", "2001:db8::/64": "", "0.0.0.0/0": "",
	} {
		if got := Address(netip.MustParsePrefix(block)); got != want {
			t.Errorf("Address(%s) = %q, want %q", block, got, want)
		}
	}
}

func TestRecordTruncatesUserName(t *testing.T) {
	for _, letter := range []string{"x", "ü", "\U0001F310"} {
		for length, want := range map[int]int{0: 0, 1: 1, 1023: 1023, 1024: 1024, 1025: 1024, 5000: 1024} {
			record := claimRecord()
			record.RequestedBy = strings.Repeat(letter, length)
			if got := Allocation(record).Spec.RequestedBy; got != strings.Repeat(letter, want) {
				t.Errorf("of %d times %s it keeps %d bytes, want %d times %[2]s", length, letter, len(got), want)
			}
		}
	}
}
