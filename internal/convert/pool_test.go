package convert

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestPool(t *testing.T) {
	defaults := ipam.Pool{
		Key: ipam.PoolNamed("p"), CIDR: netip.MustParsePrefix("10.0.0.0/8"), Family: ipam.IPv4,
		Home: ipam.DomainNamed("default", ipam.IPv4), Length: 8, Lengths: ipam.Lengths{Min: 8, Max: 32},
		Strategy: ipam.StrategyFirstFit, OnExhaustion: ipam.OnExhaustionWait, Visibility: ipam.VisibilityShared,
	}
	root := func() *build.PoolBuilder { return build.Pool("p").CIDR("10.0.0.0/8") }
	with := func(edit func(*v1alpha1.IPPool)) *v1alpha1.IPPool {
		obj := root().Obj()
		edit(obj)
		return obj
	}
	above := func(s *v1alpha1.IPPoolSpec) { s.ParentRef = &v1alpha1.PoolReference{Name: "above"} }
	granted := func(pool string) *v1alpha1.IPPool {
		return with(func(p *v1alpha1.IPPool) {
			p.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: pool}
			above(&p.Spec)
		})
	}
	for name, tc := range map[string]struct {
		obj  *v1alpha1.IPPool
		want func(*ipam.Pool)
	}{
		"a root needs no more than its CIDR": {root().Obj(), func(*ipam.Pool) {}},
		"a root can state its family": {
			root().With(func(s *v1alpha1.IPPoolSpec) { s.IPFamily = v1alpha1.IPv4 }).Obj(), func(*ipam.Pool) {},
		},
		"a root of IPv6 hands out up to /128": {build.Pool("p").CIDR("2001:db8::/32").Obj(), func(p *ipam.Pool) {
			p.CIDR, p.Family, p.Length = netip.MustParsePrefix("2001:db8::/32"), ipam.IPv6, 32
			p.Home, p.Lengths = ipam.DomainNamed("default", ipam.IPv6), ipam.Lengths{Min: 32, Max: 128}
		}},
		"a root lives in the routing domain that it names": {root().Domain("vrf-1").Obj(), func(p *ipam.Pool) { p.Home.Name = "vrf-1" }},
		"a child lives in its parent, and has a length but no CIDR yet": {build.Pool("p").Child("above", 24).Obj(), func(p *ipam.Pool) {
			p.CIDR, p.Family, p.Home, p.Length = netip.Prefix{}, "", ipam.PoolNamed("above"), 24
			p.Lengths = ipam.Lengths{Min: 0, Max: 128}
		}},
		"a child can state its family, which bounds its lengths": {
			build.Pool("p").Child("above", 24).With(func(s *v1alpha1.IPPoolSpec) { s.IPFamily = v1alpha1.IPv4 }).Obj(), func(p *ipam.Pool) {
				p.CIDR, p.Home, p.Length, p.Lengths = netip.Prefix{}, ipam.PoolNamed("above"), 24, ipam.Lengths{Min: 0, Max: 32}
			},
		},
		"a pool can occupy its ranges alone": {build.Pool("p").CIDR("10.0.0.0/24").Occupies("10.0.0.8/29", "10.0.0.16").Obj(), func(p *ipam.Pool) {
			p.CIDR, p.Length, p.Lengths = netip.MustParsePrefix("10.0.0.0/24"), 24, ipam.Lengths{Min: 24, Max: 32}
			occupied := []space.Range{{From: netip.MustParseAddr("10.0.0.8"), To: netip.MustParseAddr("10.0.0.16")}}
			p.Occupied, p.Withheld = space.NewRanges(p.CIDR, occupied), space.NewRanges(p.CIDR, Outside(p.CIDR, occupied))
		}},
		"a child that is carved has both":    {root().Child("above", 8).Obj(), func(p *ipam.Pool) { p.Home = ipam.PoolNamed("above") }},
		"a child may ask for its CIDR alone": {root().With(above).Obj(), func(p *ipam.Pool) { p.Home = ipam.PoolNamed("above") }},
		"bounds, strategy and exhaustion are taken over": {
			root().Lengths(16, 28).Strategy(v1alpha1.StrategyBestFit).Rejects().Obj(), func(p *ipam.Pool) {
				p.Lengths, p.Strategy, p.OnExhaustion = ipam.Lengths{Min: 16, Max: 28}, ipam.StrategyBestFit, ipam.OnExhaustionReject
			},
		},
		"one bound leaves the other as it is": {
			root().With(func(s *v1alpha1.IPPoolSpec) { s.Allocation = &v1alpha1.PoolAllocation{MaxPrefixLength: new(int32(24))} }).Obj(),
			func(p *ipam.Pool) { p.Lengths.Max = 24 },
		},
		"ranges, reserved, gateway and edges are withheld together": {
			root().Ranges("10.0.0.0/9").Reserved("10.0.0.0", "10.1.0.0/16").Network(8, "10.0.0.1").Obj(), func(p *ipam.Pool) {
				p.Network = &ipam.Network{Length: 8, Gateway: netip.MustParseAddr("10.0.0.1")}
				p.Withheld = space.NewRanges(p.CIDR, []space.Range{
					{From: netip.MustParseAddr("10.0.0.0"), To: netip.MustParseAddr("10.0.0.1")},
					space.RangeOf(netip.MustParsePrefix("10.1.0.0/16")), space.RangeOf(netip.MustParsePrefix("10.128.0.0/9")),
				})
			},
		},
		"classes, labels, delay and tenancy are taken over": {
			root().Label("zone", "a").Classes("gold", "silver").With(func(s *v1alpha1.IPPoolSpec) {
				s.ReuseDelay, s.Visibility, s.Project = &metav1.Duration{Duration: time.Hour}, v1alpha1.VisibilityConsumer, "shop"
			}).Obj(), func(p *ipam.Pool) {
				p.Labels, p.Classes, p.ReuseDelay = map[string]string{"zone": "a"}, []string{"gold", "silver"}, time.Hour
				p.Visibility, p.Project = ipam.VisibilityConsumer, "shop"
			},
		},
		"a pool that is being deleted is terminating": {
			with(func(p *v1alpha1.IPPool) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), func(p *ipam.Pool) { p.Terminating = true },
		},
		"our annotation pauses a pool": {
			with(func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} }), func(p *ipam.Pool) { p.Paused = true },
		},
		"that of Cluster API pauses a pool": {
			with(func(p *v1alpha1.IPPool) {
				p.Annotations = map[string]string{v1alpha1.AnnotationClusterAPIPaused: "true"}
			}),
			func(p *ipam.Pool) { p.Paused = true },
		},
		"a grant is for the parent that it names": {
			granted("above"), func(p *ipam.Pool) { p.Home, p.ParentGrant = ipam.PoolNamed("above"), &ipam.Grant{} },
		},
		"a grant for another parent is none": {granted("elsewhere"), func(p *ipam.Pool) { p.Home = ipam.PoolNamed("above") }},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaults
			tc.want(&want)
			got, errs := Pool(tc.obj)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(want, got, comparing); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPoolLimits covers the limit of one project, and blocks as large as the pool and of one length
// alone.
func TestPoolLimits(t *testing.T) {
	got, errs := Pool(build.Pool("p").CIDR("10.0.0.0/8").Lengths(8, 8).With(func(s *v1alpha1.IPPoolSpec) {
		s.RetentionPeriod = &metav1.Duration{Duration: 1}
		s.Limits = &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Blocks: new(int64(0)), Addresses: new(intstr.FromString("340282366920938463463374607431768211456"))}}
	}).Obj())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	most := build.Count("340282366920938463463374607431768211456")
	want := ipam.Limit{Blocks: ipam.Maximum{Set: true}, Addresses: ipam.Maximum{Set: true, Count: most}}
	if got.Limit != want || got.Retention != 1 || got.Lengths != (ipam.Lengths{Min: 8, Max: 8}) {
		t.Errorf("got %+v, retention %v, lengths %+v", got.Limit, got.Retention, got.Lengths)
	}
}

// TestChangedPoolSpecIsReadAgain expects that a spec is read once; the fields beside
// the spec are read again.
func TestChangedPoolSpecIsReadAgain(t *testing.T) {
	obj := build.Pool("p").CIDR("10.0.0.0/8").Obj()
	obj.UID, obj.Generation = "1", 1
	before, errs := Pool(obj)
	if len(errs) > 0 || before.Spec != (ipam.Revision{UID: "1", Generation: 1}) {
		t.Fatal(errs, before.Spec)
	}
	before.OpenSince, before.ParentGrant = time.Unix(1, 0), &ipam.Grant{}
	obj.Spec.CIDR, obj.Labels, obj.Spec.Project = "10.0.0.0/9", map[string]string{"a": "b"}, "red"
	same, errs := PoolAfter(before, obj)
	if len(errs) > 0 || same.CIDR != before.CIDR || same.Labels["a"] != "b" || same.Project != "red" || !same.OpenSince.IsZero() || same.ParentGrant != nil {
		t.Errorf("the same generation: %+v, %v", same, errs)
	}
	obj.Generation = 2
	if changed, errs := PoolAfter(before, obj); len(errs) > 0 || changed.CIDR.Bits() != 9 || changed.Spec.Generation != 2 {
		t.Errorf("another generation: %+v, %v", changed, errs)
	}
	obj.UID, before.Spec = "", ipam.Revision{Generation: 2}
	if fresh, _ := PoolAfter(before, obj); fresh.CIDR.Bits() != 9 {
		t.Errorf("one that is not stored yet: %+v", fresh)
	}
}

// everyOther returns the first even addresses of 10.0.0.0/24.
func everyOther(n int) (addresses []string) {
	for i := range n {
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d", 2*i))
	}
	return addresses
}

func TestRecordHasRoomForBlocksOfRanges(t *testing.T) {
	pool, errs := Pool(build.Pool("p").CIDR("10.0.0.0/24").Occupies(everyOther(v1alpha1.MaxRecordBlocks)...).Obj())
	if len(errs) > 0 || len(pool.Blocks()) != v1alpha1.MaxRecordBlocks {
		t.Errorf("got %d blocks, %v", len(pool.Blocks()), errs)
	}
	if many, errs := Pool(build.Pool("p").CIDR("10.0.0.0/24").Ranges(everyOther(128)...).Obj()); len(errs) > 0 || many.Occupied != nil {
		t.Errorf("a pool that occupies its CIDR: %v", errs)
	}
}

func TestPoolRefuses(t *testing.T) {
	parent := &v1alpha1.PoolReference{Name: "above"}
	var rows []messages.Row
	for name, tc := range map[string]struct {
		spec v1alpha1.IPPoolSpec
		want []string
	}{
		"a pool of nothing": {
			v1alpha1.IPPoolSpec{},
			[]string{"spec.cidr: Required value: a root pool needs a cidr, a child pool a parentRef: set one of them"},
		},
		"a CIDR that is none": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.1/8"}},
			[]string{`spec.cidr: Invalid value: "10.0.0.1/8": has host bits set: did you mean "10.0.0.0/8"?`},
		},
		"a family that is not the CIDR's": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/8", IPFamily: v1alpha1.IPv6}},
			[]string{`spec.ipFamily: Invalid value: "IPv6": the CIDR is IPv4: remove ipFamily, it is derived`},
		},
		"ranges without subnet": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{ParentRef: parent, PrefixLength: new(int32(24)), Occupies: v1alpha1.OccupiesRanges}},
			[]string{
				"spec.cidr: Required value: a pool that occupies its ranges needs the subnet in which they lie: set cidr",
				"spec.ranges: Required value: a pool that occupies its ranges needs at least one: set ranges, or leave out occupies",
				"spec.prefixLength: Forbidden: is not for a pool that occupies its ranges: remove it, and set cidr",
			},
		},
		"what cannot be occupied": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/24", Occupies: "Some"}},
			[]string{`spec.occupies: Unsupported value: "Some": supported values: "CIDR", "Ranges"`},
		},
		"ranges of more blocks than a record can have": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/24", Occupies: v1alpha1.OccupiesRanges, Ranges: everyOther(65)}},
			[]string{"spec.ranges: Invalid value: 65: the entries make 65 CIDR blocks, and a pool that occupies its ranges can have 64: use larger CIDRs, or make several pools"},
		},
		"a child of no size": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{ParentRef: parent}},
			[]string{"spec.prefixLength: Required value: set it to the length of the pool's block of the parent"},
		},
		"a child in a routing domain": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{ParentRef: parent, PrefixLength: new(int32(24)), RoutingDomain: "vrf-1"}},
			[]string{"spec.routingDomain: Forbidden: is for root pools only, a child lives in its parent: remove it"},
		},
		"a root with a length": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/8", PrefixLength: new(int32(8))}},
			[]string{"spec.prefixLength: Forbidden: is for child pools only, a root pool has the length of its cidr: remove it, or set parentRef"},
		},
		"a child of another size than its CIDR": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/8", ParentRef: parent, PrefixLength: new(int32(9))}},
			[]string{"spec.prefixLength: Invalid value: 9: the CIDR is a /8: remove one of them"},
		},
		"a child of more bits than there are": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{ParentRef: parent, PrefixLength: new(int32(129))}},
			[]string{"spec.prefixLength: Invalid value: 129: must be between 0 and 128"},
		},
		"a child that is its own parent": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{ParentRef: &v1alpha1.PoolReference{Name: "p"}, PrefixLength: new(int32(24))}},
			[]string{`spec.parentRef.name: Invalid value: "p": is the pool itself: name the pool of which this one is a part`},
		},
		"all that is wrong with ranges, network and bounds at once": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{
				CIDR: "10.0.0.0/24", Ranges: []string{"10.0.1.0/24"}, Reserved: []string{"nothing"},
				Network:    &v1alpha1.PoolNetwork{PrefixLength: 28},
				Allocation: &v1alpha1.PoolAllocation{MinPrefixLength: new(int32(8)), MaxPrefixLength: new(int32(33))},
			}},
			[]string{
				"spec.network.prefixLength: Invalid value: 28: the pool is a /24, and lies within one subnet: write 24 or less",
				`spec.ranges[0]: Invalid value: "10.0.1.0/24": is not inside the pool's CIDR 10.0.0.0/24: remove it, or correct it`,
				`spec.reserved[0]: Invalid value: "nothing": is not an IP address: write one such as 10.0.0.1 or 2001:db8::1`,
				"spec.allocation.minPrefixLength: Invalid value: 8: a block cannot be larger than the pool, which is a /24: write 24 or more",
				"spec.allocation.maxPrefixLength: Invalid value: 33: must be between 0 and 32",
			},
		},
		"a delay of less than nothing": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/8", ReuseDelay: &metav1.Duration{Duration: -time.Minute}}},
			[]string{`spec.reuseDelay: Invalid value: "-1m0s": must not be negative: leave it out for none`},
		},
		"a retention of no time": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/8", RetentionPeriod: &metav1.Duration{}}},
			[]string{`spec.retentionPeriod: Invalid value: "0s": must be more than 0: leave it out for the default`},
		},
		"limits that are no numbers": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/8", Limits: &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{
				Blocks: new(int64(-1)), Addresses: new(intstr.FromString("many")),
			}}}},
			[]string{
				`spec.limits.perProject.blocks: Invalid value: "-1": must be a decimal number of 0 or more, of up to 39 digits`,
				`spec.limits.perProject.addresses: Invalid value: "many": must be a decimal number of 0 or more, of up to 39 digits`,
			},
		},
		"consumers of no project": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.0.0.0/8"}, Visibility: v1alpha1.VisibilityConsumer},
			[]string{"spec.project: Required value: visibility Consumer needs a project: set the one whose claims may use it"},
		},
		"bounds the wrong way round": {
			v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{
				CIDR: "10.0.0.0/8", Allocation: &v1alpha1.PoolAllocation{MinPrefixLength: new(int32(28)), MaxPrefixLength: new(int32(16))},
			}},
			[]string{"spec.allocation.minPrefixLength: Invalid value: 28: must not be greater than maxPrefixLength 16: swap them"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := Pool(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: tc.spec})
			rows = append(rows, rowsOf("IPPool", errs...)...)
			if diff := cmp.Diff(tc.want, messagesOf(errs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	messages.Golden(t, rows)
}

func TestBlocksOfPoolThatCannotBeReadAreUnknown(t *testing.T) {
	pool := &v1alpha1.IPPool{}
	pool.Spec.CIDR, pool.Spec.Occupies = "10.0.0.0/24", v1alpha1.OccupiesRanges
	for text, want := range map[string]int{"10.0.0.4-10.0.0.6": 2, "here": 0} {
		pool.Spec.Ranges = []string{text}
		if got := BlocksOf(pool); len(got) != want {
			t.Errorf("%s: got %v, want %d blocks", text, got, want)
		}
	}
}

func TestPoolReferenceInvertsPoolKey(t *testing.T) {
	for name, tc := range map[string]struct {
		ref  v1alpha1.PoolReference
		want ipam.PoolKey
	}{
		"a reference of the kind":  {v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "p"}, ipam.PoolNamed("p")},
		"a reference of no kind":   {v1alpha1.PoolReference{Name: "p"}, ipam.PoolNamed("p")},
		"one of the namespace":     {v1alpha1.PoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: "p"}, ipam.LocalPoolNamed("team", "p")},
		"a name with all its dots": {v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "a.b"}, ipam.PoolNamed("a.b")},
	} {
		t.Run(name, func(t *testing.T) {
			key := PoolKey("team", tc.ref)
			if key != tc.want {
				t.Errorf("PoolKey(%v) = %v, want %v", tc.ref, key, tc.want)
			}
			want := v1alpha1.PoolReference{Kind: v1alpha1.PoolKind(tc.want.Kind), Name: tc.ref.Name}
			if got := PoolReference(key); *got != want {
				t.Errorf("PoolReference(%v) = %v, want %v", key, *got, want)
			}
		})
	}
}

func TestCapacityFormatsCounts(t *testing.T) {
	all := space.CountOf(netip.MustParsePrefix("::/0"))
	one := space.CountOf(netip.MustParsePrefix("::/128"))
	got := Capacity(all, one, all.Sub(one), space.Count{}, space.Count{})
	want := &v1alpha1.Capacity{
		Total: "340282366920938463463374607431768211456", Allocated: "1", Available: "340282366920938463463374607431768211455",
		Withheld: "0", OutOfRange: "0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDuration(t *testing.T) {
	if got := duration(nil, -1); got != -1 {
		t.Errorf("duration(nil, -1) = %v, want the default", got)
	}
	if got := duration(&metav1.Duration{}, -1); got != 0 {
		t.Errorf("duration(0s, -1) = %v, want 0: it is stated", got)
	}
}
