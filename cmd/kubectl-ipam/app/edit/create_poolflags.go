package edit

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// poolFlags holds the flags of a pool.
type poolFlags struct {
	policyFlags
	local                        bool
	cidr, parent, family, domain string
	length                       *int32
	classes, ranges, reserved    []string
	gateway                      string
	networkLength                *int32
	edges                        bool
	dnsServers, searchDomains    []string
	mtu, vlan                    int32
}

func (f *poolFlags) bind(e *command.Env, cmd *cobra.Command) {
	f.policyFlags.bind(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.local, "local", false, "make it the namespace's own, a LocalIPPool")
	flags.StringVar(&f.cidr, "cidr", "", "space of a root pool; of a child pool, the very block that it asks for")
	flags.StringVar(&f.parent, "parent", "", "pool of which it is a block: an IPPool; or, with --local, localippool/NAME")
	flags.Var(command.Length{Bits: &f.length}, "length", "size of a child pool: 20 for a /20")
	flags.StringVar(&f.family, "family", "", "address family: IPv4 or IPv6 (default: that of the CIDR or the parent)")
	flags.StringVar(&f.domain, "routing-domain", "", "name space in which root pools may not overlap (default \"default\")")
	flags.StringSliceVar(&f.classes, "class", nil, "class that the pool backs; may be repeated")
	flags.StringSliceVar(&f.ranges, "range", nil, "hand out only these: a range such as 10.0.0.10-10.0.0.20, a CIDR or an address; may be repeated")
	flags.StringSliceVar(&f.reserved, "reserved", nil, "never hand these out, written like --range; may be repeated")
	flags.StringVar(&f.gateway, "gateway", "", "gateway of the subnet; like all that follow, it makes this a pool of host addresses")
	flags.Var(command.Length{Bits: &f.networkLength}, "network-length", "length of the subnet as hosts are configured (default: that of the pool)")
	flags.BoolVar(&f.edges, "allocate-edge-addresses", false, "hand out the network and broadcast address of the subnet too")
	flags.StringSliceVar(&f.dnsServers, "dns", nil, "name server for the holders of addresses; may be repeated")
	flags.StringSliceVar(&f.searchDomains, "search-domain", nil, "search domain for the holders of addresses; may be repeated")
	flags.Int32Var(&f.mtu, "mtu", 0, "size of the largest packet on the link, in bytes")
	flags.Int32Var(&f.vlan, "vlan", 0, "VLAN of the link, 1 to 4094")
	command.Complete(cmd, "family", command.Families()...)
	command.CompleteWith(cmd, "parent", e.CompleteNames(&v1alpha1.IPPoolList{}))
	command.CompleteWith(cmd, "class", e.CompleteNames(&v1alpha1.IPClassList{}))
}

func (f *poolFlags) check() error {
	kind, _ := command.SplitKind(f.parent)
	switch {
	case f.local && (f.visibility != "" || f.project != ""):
		return command.Coded(command.ExitUsage, fmt.Errorf("--local excludes --visibility and --project: a namespace's own pool serves its claims alone"))
	case kind == "localippool" && !f.local:
		return command.Coded(command.ExitUsage, fmt.Errorf("--parent=%s: only the parent of a namespace's own pool is a LocalIPPool: add --local", f.parent))
	case kind != "" && kind != "localippool" && kind != "ippool":
		return command.Coded(command.ExitUsage, fmt.Errorf("--parent=%s: is no pool: write ippool/NAME or localippool/NAME", f.parent))
	case f.hasNetwork() && f.subnetLength() == nil:
		return command.Coded(command.ExitUsage, fmt.Errorf("--network-length is missing: say how long the prefix of the subnet is"))
	}
	return nil
}

// pool returns the pool that the flags describe.
func (f *poolFlags) pool(namespace, name string) v1alpha1.Pool {
	if f.local {
		pool := &v1alpha1.LocalIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: f.labels}}
		pool.Spec.PoolSpec = f.spec()
		return pool
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: f.labels}}
	pool.Spec = v1alpha1.IPPoolSpec{PoolSpec: f.spec(), Visibility: f.visibleTo(), Project: f.project}
	return pool
}

func (f *poolFlags) spec() v1alpha1.PoolSpec {
	spec := v1alpha1.PoolSpec{
		CIDR: f.cidr, PrefixLength: f.length, IPFamily: v1alpha1.IPFamily(f.family), RoutingDomain: f.domain,
		ClassNames: f.classes, Ranges: f.ranges, Reserved: f.reserved,
		OnExhaustion: v1alpha1.OnExhaustion(f.onExhaustion), ReuseDelay: f.duration("reuse-delay", f.reuseDelay),
		Limits: f.limits(), AllowRetain: f.allowRetain, RetentionPeriod: f.duration("retention-period", f.retention),
	}
	if f.parent != "" {
		kind, name := command.SplitKind(f.parent)
		spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: name}
		if kind == "localippool" {
			spec.ParentRef.Kind = v1alpha1.PoolKindLocalIPPool
		}
	}
	if f.hasNetwork() {
		spec.Network = &v1alpha1.PoolNetwork{
			PrefixLength: *f.subnetLength(), Gateway: f.gateway, AllocateEdgeAddresses: f.edges,
			HostSettings: v1alpha1.HostSettings{DNSServers: f.dnsServers, SearchDomains: f.searchDomains, MTU: f.mtu, VLAN: f.vlan},
		}
	}
	if f.minLength != nil || f.maxLength != nil || f.strategy != "" {
		spec.Allocation = &v1alpha1.PoolAllocation{MinPrefixLength: f.minLength, MaxPrefixLength: f.maxLength, Strategy: v1alpha1.Strategy(f.strategy)}
	}
	return spec
}

func (f *poolFlags) hasNetwork() bool {
	return f.gateway != "" || f.networkLength != nil || f.edges || len(f.dnsServers) > 0 || len(f.searchDomains) > 0 || f.mtu != 0 || f.vlan != 0
}

// subnetLength returns the length of the subnet: the length of the pool if no flag sets it. It
// returns nil if neither is known.
func (f *poolFlags) subnetLength() *int32 {
	if f.networkLength != nil {
		return f.networkLength
	}
	if f.length != nil {
		return f.length
	}
	if f.cidr == "" {
		return nil
	}
	cidr, err := netip.ParsePrefix(f.cidr)
	if err != nil {
		return new(int32(0)) // the API server reports the error in the CIDR
	}
	return new(int32(cidr.Bits())) //nolint:gosec // 0 to 128
}
