package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

func newCreatePool(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool NAME",
		Short: "Make a pool, and print its CIDR",
		Long: `Make a pool, and print its CIDR: a root pool with --cidr, or a child pool with --parent and
--length, which is given a block of its parent. With --local it is the namespace's own, a
LocalIPPool: only claims of the namespace are served from it.`,
		Example: `  # Give team-a a LocalIPPool with a /20 of core
  kubectl ipam create pool team-a --parent core --length 20 --local -n team-a

  # The same as a pool of the platform, which claims of the project team-a alone may use
  kubectl ipam create pool team-a --parent core --length 20 --project team-a

  # A root pool of host addresses
  kubectl ipam create pool rack-7 --cidr 192.0.2.0/24 --gateway 192.0.2.1 --dns 192.0.2.53 --class nodes

  # The manifest
  kubectl ipam create pool team-a --parent core --length 20 --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
	}
	p := &poolMaking{Env: e, flags: &poolFlags{}}
	p.flags.bind(e, cmd)
	p.dryRun, p.wait, p.output = command.BindDryRun(cmd), command.BindWait(cmd, "the pool is ready"), command.BindOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(p.dryRun.Check(), p.flags.check()); err != nil {
			return err
		}
		return p.run(cmd.Context(), args[0])
	}
	return cmd
}

// poolMaking represents one run of the command.
type poolMaking struct {
	*command.Env
	flags  *poolFlags
	dryRun *command.DryRun
	wait   *command.Waiting
	output *command.Output
}

func (p *poolMaking) run(ctx context.Context, name string) error {
	namespace, err := p.Namespace()
	if err != nil {
		return err
	}
	pool := p.flags.pool(namespace, name)
	if *p.dryRun == command.DryRunClient {
		return p.show(pool)
	}
	c, err := p.Client()
	if err != nil {
		return err
	}
	if err := c.Create(ctx, pool, p.dryRun); err != nil {
		return err
	}
	if p.wait.AtMost > 0 && *p.dryRun == command.DryRunNone {
		if pool, err = p.await(ctx, c, pool); err != nil {
			return err
		}
	}
	if err := p.show(pool); err != nil {
		return err
	}
	if pool.PoolSpec().CIDR == "" && *p.dryRun == command.DryRunNone {
		return command.Coded(command.ExitExhausted, fmt.Errorf("the pool %s is stored and waits for a block of %s: to give it up: kubectl delete %s %[1]s%[4]s",
			name, pool.PoolSpec().ParentRef.Name, lower(string(pool.PoolKind())), command.InNamespace(pool)))
	}
	return nil
}

// show prints the pool, with the CIDR that it has.
func (p *poolMaking) show(pool v1alpha1.Pool) error {
	printed, err := command.Outcome(pool, p.dryRun.Done("created"))
	if err != nil {
		return err
	}
	printed.AsManifest = *p.dryRun == command.DryRunClient
	if *p.dryRun != command.DryRunClient {
		printed.Rows = func(bool) *command.Table {
			t := &command.Table{Headers: []string{"POOL", "CIDR", "PARENT", "PHASE"}}
			parent := ""
			if ref := pool.PoolSpec().ParentRef; ref != nil {
				parent = ref.Name
			}
			phase := cmp.Or(string(pool.PoolStatus().Phase), p.dryRun.Done("created"))
			t.Add(command.Text("%s", pool.GetName()), command.Cell{Text: command.OrNone(pool.PoolSpec().CIDR), Style: command.Strong}, command.Text("%s", command.OrNone(parent)), command.Text("%s", phase))
			return t
		}
	}
	return p.Print(p.output, printed)
}

// await watches a pool until it is ready. The pool stays in every case.
func (p *poolMaking) await(ctx context.Context, c client.WithWatch, pool v1alpha1.Pool) (v1alpha1.Pool, error) {
	last := pool
	watched := &command.Awaited[v1alpha1.Pool]{
		Client: c, Named: pool.DeepCopyObject().(v1alpha1.Pool), List: listOf(pool),
		Until: func(seen v1alpha1.Pool) (bool, error) {
			last = seen.DeepCopyObject().(v1alpha1.Pool)
			return meta.IsStatusConditionTrue(seen.PoolStatus().Conditions, v1alpha1.ConditionReady), nil
		},
		Gone: func() error {
			return command.Coded(command.ExitNotFound, fmt.Errorf("%s %s was deleted before it was ready: run the command again to make another", pool.PoolKind(), pool.GetName()))
		},
	}
	err := watched.Wait(ctx, p.wait.AtMost)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return last, command.Coded(command.ExitTimedOut, fmt.Errorf("%s\nthe pool stays and waits, still after %s: to give it up: kubectl delete %s %s%s", notReady(last), p.wait.AtMost, lower(string(pool.PoolKind())), pool.GetName(), command.InNamespace(pool)))
	case errors.Is(err, command.ErrInterrupted):
		return last, fmt.Errorf("interrupted: %s; the pool stays and waits", notReady(last))
	}
	return last, err
}

func listOf(pool v1alpha1.Pool) client.ObjectList {
	if pool.PoolKind() == v1alpha1.PoolKindLocalIPPool {
		return &v1alpha1.LocalIPPoolList{}
	}
	return &v1alpha1.IPPoolList{}
}

func notReady(pool v1alpha1.Pool) string {
	why := "no operator has answered it: see whether Cadastre runs"
	if ready := meta.FindStatusCondition(pool.PoolStatus().Conditions, v1alpha1.ConditionReady); ready != nil {
		why = fmt.Sprintf("%s: %s", ready.Reason, ready.Message)
	}
	return fmt.Sprintf("%s %s is not ready: %s", pool.PoolKind(), pool.GetName(), why)
}

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
	flags.StringVar(&f.cidr, "cidr", "", "space of a root pool; of a child pool, the exact block that it asks for")
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
		return command.Coded(command.ExitUsage, fmt.Errorf("--network-length is missing: set it to the length of the subnet's prefix"))
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
