package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// NewCreate returns the command create.
func NewCreate(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a pool or a class, or write its manifest",
		Args:  cobra.NoArgs,
		Long:  `Make a pool or a class, or with --dry-run=client -o yaml write its manifest.`,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCreateClass(e), newCreatePool(e))
	return cmd
}

// policyFlags holds the flags that pools and classes have in common.
type policyFlags struct {
	cmd *cobra.Command

	strategy                v1alpha1.Strategy
	onExhaustion            v1alpha1.OnExhaustion
	visibility              v1alpha1.Visibility
	project, limitAddresses string
	limitBlocks             int64
	reuseDelay, retention   metav1.Duration
	allowRetain             bool
	lengths                 v1alpha1.PrefixLengthBounds
	labels                  map[string]string
}

func (f *policyFlags) bind(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.Var(command.Length{Bits: &f.lengths.Min}, "min-length", "largest block that is handed out, such as /20")
	flags.Var(command.Length{Bits: &f.lengths.Max}, "max-length", "smallest block that is handed out, such as /28")
	flags.StringVar((*string)(&f.strategy), "strategy", "", "which free block is handed out: FirstFit, BestFit, WorstFit or Random")
	flags.StringVar((*string)(&f.onExhaustion), "on-exhaustion", "", "handling of claims for which there is no room: Wait or Reject")
	flags.DurationVar(&f.reuseDelay.Duration, "reuse-delay", 0, "how long a released block is not handed out again, such as 1h")
	flags.BoolVar(&f.allowRetain, "allow-retain", false, "let claims ask for their block to be retained")
	flags.DurationVar(&f.retention.Duration, "retention-period", 0, "how long a retained block is kept at most, such as 720h")
	flags.StringVar(&f.limitAddresses, "limit-addresses", "", "how many addresses one project may hold")
	flags.Int64Var(&f.limitBlocks, "limit-blocks", 0, "how many blocks one project may hold")
	flags.StringVar((*string)(&f.visibility), "visibility", "", "whose claims may use it: Shared, Consumer (those of --project alone) or Platform (default Shared; with --project Consumer)")
	flags.StringVar(&f.project, "project", "", "project to which it belongs")
	flags.StringToStringVar(&f.labels, "labels", nil, "labels, such as site=a,rack=7")
	command.Complete(cmd, "strategy", string(v1alpha1.StrategyFirstFit), string(v1alpha1.StrategyBestFit), string(v1alpha1.StrategyWorstFit), string(v1alpha1.StrategyRandom))
	command.Complete(cmd, "on-exhaustion", string(v1alpha1.OnExhaustionWait), string(v1alpha1.OnExhaustionReject))
	command.Complete(cmd, "visibility", string(v1alpha1.VisibilityShared), string(v1alpha1.VisibilityConsumer), string(v1alpha1.VisibilityPlatform))
}

// ifSet returns the value of a flag; nil if the flag is not set.
func ifSet[T any](f *policyFlags, flag string, value *T) *T {
	if !f.cmd.Flags().Changed(flag) {
		return nil
	}
	return value
}

// limits returns the limits on the holdings of one project; nil if no flag sets them.
func (f *policyFlags) limits() *v1alpha1.Limits {
	limits := &v1alpha1.ProjectLimits{Blocks: ifSet(f, "limit-blocks", &f.limitBlocks)}
	if f.limitAddresses != "" {
		limits.Addresses = new(intstr.Parse(f.limitAddresses))
	}
	if *limits == (v1alpha1.ProjectLimits{}) {
		return nil
	}
	return &v1alpha1.Limits{PerProject: limits}
}

// visibleTo returns the visibility. An object of a project is for that project alone, unless the
// caller asks for another visibility.
func (f *policyFlags) visibleTo() v1alpha1.Visibility {
	if f.visibility == "" && f.project != "" {
		return v1alpha1.VisibilityConsumer
	}
	return f.visibility
}

func newCreateClass(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "class NAME",
		Short: "Make a class, the policy for a kind of address space",
		Long: `Make a class, the policy for a kind of address space. It serves claims once a pool backs
it: kubectl ipam create pool --class NAME.`,
		Example: `  # Blocks of /24, claims may ask for /20 to /28
  kubectl ipam create class subnets --length 24 --min-length 20 --max-length 28

  # The manifest
  kubectl ipam create class subnets --length 24 --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
	}
	f := &classFlags{}
	f.bind(cmd)
	edits := bindEditing(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		class := f.class(args[0])
		if edits.dryRun != command.DryRunClient {
			c, err := e.Client()
			if err != nil {
				return err
			}
			if err := c.Create(cmd.Context(), class, edits.createOptions()); err != nil {
				return err
			}
		}
		return edits.sayCreated(class)
	}
	return cmd
}

// classFlags holds the flags of a class.
type classFlags struct {
	policyFlags
	spec      v1alpha1.IPClassSpec
	isDefault bool
}

func (f *classFlags) bind(cmd *cobra.Command) {
	f.policyFlags.bind(cmd)
	flags, spec := cmd.Flags(), &f.spec
	flags.StringVar((*string)(&spec.IPFamily), "family", string(v1alpha1.IPv4), "address family: IPv4 or IPv6")
	flags.Var(command.Length{Bits: &spec.DefaultPrefixLength}, "length", "size of the blocks of claims that set no length: 24 for a /24")
	flags.StringVar((*string)(&spec.PoolSelection), "pool-selection", "", "which pool serves a claim: FirstFit (by name), LeastUtilized or MostUtilized")
	flags.StringVar((*string)(&spec.ReclaimPolicy), "reclaim-policy", "", "what becomes of the blocks of released claims that set no policy: Delete or Retain")
	flags.StringVar(&spec.Provisioner, "provisioner", "", "program that makes its pools when claims wait for one (default none)")
	flags.StringToStringVar(&spec.Parameters, "parameters", nil, "parameters of the provisioner, such as a=b,c=d")
	flags.BoolVar(&f.isDefault, "default", false, "make it the default class of its family, if there is none; to switch from another one: kubectl ipam default-class")
	flags.BoolVar(&spec.AllowLocalPools, "allow-local-pools", false, "let LocalIPPools back it, with addresses that each namespace chooses itself")
	command.Complete(cmd, "family", command.Families()...)
	command.Complete(cmd, "pool-selection", string(v1alpha1.SelectFirstFit), string(v1alpha1.SelectLeastUtilized), string(v1alpha1.SelectMostUtilized))
	command.Complete(cmd, "reclaim-policy", string(v1alpha1.ReclaimDelete), string(v1alpha1.ReclaimRetain))
}

// class returns the class that the flags describe.
func (f *classFlags) class(name string) *v1alpha1.IPClass {
	class := &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: f.labels}, Spec: f.spec}
	if f.isDefault {
		class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
	}
	spec := &class.Spec
	spec.Strategy, spec.OnExhaustion, spec.Visibility, spec.Project = f.strategy, f.onExhaustion, f.visibleTo(), f.project
	spec.AllowRetain, spec.Limits = ifSet(&f.policyFlags, "allow-retain", &f.allowRetain), f.limits()
	spec.RetentionPeriod = ifSet(&f.policyFlags, "retention-period", &f.retention)
	spec.ReuseDelay = ifSet(&f.policyFlags, "reuse-delay", &f.reuseDelay)
	if f.lengths != (v1alpha1.PrefixLengthBounds{}) {
		spec.AllowedPrefixLengths = &f.lengths
	}
	return class
}

func newCreatePool(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool NAME",
		Short: "Make a pool, and print its CIDR",
		Long: `Make a pool, and print its CIDR: a root pool with --cidr, or a child pool with --parent and
--length, which is given a block of its parent. With --local it is the namespace's own, a
LocalIPPool: only claims of the namespace are served from it. With --occupies Ranges the pool
holds only its ranges of the CIDR, and other pools can have the rest.`,
		Example: `  # Give team-a a LocalIPPool with a /20 of core
  kubectl ipam create pool team-a --parent core --length 20 --local -n team-a

  # The same as a pool of the platform, which claims of the project team-a alone may use
  kubectl ipam create pool team-a --parent core --length 20 --project team-a

  # A root pool of host addresses
  kubectl ipam create pool rack-7 --cidr 192.0.2.0/24 --gateway 192.0.2.1 --dns 192.0.2.53 --class nodes

  # A pool that holds only a range of a subnet
  kubectl ipam create pool rack-8 --cidr 192.0.2.0/24 --occupies Ranges --range 192.0.2.128-192.0.2.159 --gateway 192.0.2.1

  # The manifest
  kubectl ipam create pool team-a --parent core --length 20 --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
	}
	p := &poolMaking{editing: bindEditing(e, cmd)}
	p.bind(cmd)
	command.BindWait(cmd, &p.wait, "the pool is ready")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.check(); err != nil {
			return err
		}
		return p.run(cmd.Context(), args[0])
	}
	return cmd
}

// poolMaking represents one run of the command, with its flags.
type poolMaking struct {
	*editing
	policyFlags
	spec          v1alpha1.PoolSpec
	network       v1alpha1.PoolNetwork
	networkLength *int32
	local         bool
	parent        string
	wait          time.Duration
}

func (p *poolMaking) run(ctx context.Context, name string) error {
	namespace, err := p.Namespace()
	if err != nil {
		return err
	}
	pool := p.pool(namespace, name)
	if p.dryRun == command.DryRunClient {
		return p.sayCreated(pool)
	}
	if p.client, err = p.Client(); err != nil {
		return err
	}
	if err := p.client.Create(ctx, pool, p.createOptions()); err != nil {
		return err
	}
	if p.wait > 0 && p.dryRun == command.DryRunNone {
		if pool, err = p.await(ctx, pool); err != nil {
			return err
		}
	}
	if err := p.Print(p.output, &command.Object{Object: pool, Rows: func(bool) *command.Table { return p.table(pool) }}); err != nil {
		return err
	}
	if pool.PoolSpec().CIDR == "" && p.dryRun == command.DryRunNone {
		return command.Coded(command.ExitExhausted, fmt.Errorf("the pool %s is stored and waits for a block of %s: %s", name, pool.PoolSpec().ParentRef.Name, giveUp(pool)))
	}
	return nil
}

// table shows the pool, with the CIDR that it has.
func (p *poolMaking) table(pool v1alpha1.Pool) *command.Table {
	parent := ""
	if ref := pool.PoolSpec().ParentRef; ref != nil {
		parent = ref.Name
	}
	cells := texts(pool.GetName(), pool.PoolSpec().CIDR, parent, cmp.Or(string(pool.PoolStatus().Phase), p.dryRun.Done("created")))
	cells[1].Style = command.Strong
	return &command.Table{Headers: []string{"POOL", "CIDR", "PARENT", "PHASE"}, Rows: [][]command.Cell{cells}}
}

// await watches a pool until it is ready. The pool stays in every case.
func (p *poolMaking) await(ctx context.Context, pool v1alpha1.Pool) (v1alpha1.Pool, error) {
	last, err := command.Await(ctx, p.client, pool, p.wait, func(seen v1alpha1.Pool) bool {
		return meta.IsStatusConditionTrue(seen.PoolStatus().Conditions, v1alpha1.ConditionReady)
	})
	switch {
	case errors.Is(err, command.ErrDeleted):
		err = command.Coded(command.ExitNotFound, fmt.Errorf("%s %s was deleted before it was ready: run the command again to make another", pool.PoolKind(), pool.GetName()))
	case errors.Is(err, context.DeadlineExceeded):
		err = command.Coded(command.ExitTimedOut, fmt.Errorf("%s\nthe pool stays and waits, still after %s: %s", notReady(last), p.wait, giveUp(pool)))
	case errors.Is(err, command.ErrInterrupted):
		err = fmt.Errorf("interrupted: %s; the pool stays and waits", notReady(last))
	}
	return last, err
}

func giveUp(pool v1alpha1.Pool) string {
	return fmt.Sprintf("to give it up: kubectl delete %s %s%s", strings.ToLower(string(pool.PoolKind())), pool.GetName(), command.InNamespace(pool))
}

func notReady(pool v1alpha1.Pool) string {
	reason, why := readyOf(pool.PoolStatus().Conditions)
	if reason != noAnswer {
		why = reason + ": " + why
	}
	return fmt.Sprintf("%s %s is not ready: %s", pool.PoolKind(), pool.GetName(), why)
}

func (p *poolMaking) bind(cmd *cobra.Command) {
	p.policyFlags.bind(cmd)
	flags, spec, network := cmd.Flags(), &p.spec, &p.network
	flags.BoolVar(&p.local, "local", false, "make it the namespace's own, a LocalIPPool")
	flags.StringVar(&spec.CIDR, "cidr", "", "space of a root pool; of a child pool, the exact block that it asks for")
	flags.StringVar(&p.parent, "parent", "", "pool of which it is a block: an IPPool; or, with --local, localippool/NAME")
	flags.Var(command.Length{Bits: &spec.PrefixLength}, "length", "size of a child pool: 20 for a /20")
	flags.StringVar((*string)(&spec.IPFamily), "family", "", "address family: IPv4 or IPv6 (default: that of the CIDR or the parent)")
	flags.StringVar(&spec.RoutingDomain, "routing-domain", "", "name space in which root pools may not overlap (default \"default\")")
	flags.StringSliceVar(&spec.ClassNames, "class", nil, "class that the pool backs; may be repeated")
	flags.StringSliceVar(&spec.Ranges, "range", nil, "hand out only these: a range such as 10.0.0.10-10.0.0.20, a CIDR or an address; may be repeated")
	flags.StringVar((*string)(&spec.Occupies), "occupies", "", "what it holds of its parent or routing domain: CIDR, or only the Ranges of --range, so that other pools can have the rest of --cidr (default CIDR)")
	flags.StringSliceVar(&spec.Reserved, "reserved", nil, "never hand these out, written like --range; may be repeated")
	flags.StringVar(&network.Gateway, "gateway", "", "gateway of the subnet; like all that follow, it makes this a pool of host addresses")
	flags.Var(command.Length{Bits: &p.networkLength}, "network-length", "length of the subnet as hosts are configured (default: that of the pool)")
	flags.BoolVar(&network.AllocateEdgeAddresses, "allocate-edge-addresses", false, "hand out the network and broadcast address of the subnet too")
	flags.StringSliceVar(&network.DNSServers, "dns", nil, "name server for the holders of addresses; may be repeated")
	flags.StringSliceVar(&network.SearchDomains, "search-domain", nil, "search domain for the holders of addresses; may be repeated")
	flags.Int32Var(&network.MTU, "mtu", 0, "size of the largest packet on the link, in bytes")
	flags.Int32Var(&network.VLAN, "vlan", 0, "VLAN of the link, 1 to 4094")
	command.Complete(cmd, "family", command.Families()...)
	command.Complete(cmd, "occupies", string(v1alpha1.OccupiesCIDR), string(v1alpha1.OccupiesRanges))
	command.CompleteWith(cmd, "parent", p.CompleteNames(&v1alpha1.IPPoolList{}))
	command.CompleteWith(cmd, "class", p.CompleteNames(&v1alpha1.IPClassList{}))
}

func (p *poolMaking) check() error {
	parent, err := command.PoolOf(p.parent)
	switch {
	case p.local && (p.visibility != "" || p.project != ""):
		return command.Coded(command.ExitUsage, fmt.Errorf("--local excludes --visibility and --project: a namespace's own pool serves its claims alone"))
	case parent.Kind == v1alpha1.PoolKindLocalIPPool && !p.local:
		return command.Coded(command.ExitUsage, fmt.Errorf("--parent=%s: only the parent of a namespace's own pool is a LocalIPPool: add --local", p.parent))
	case err != nil:
		return fmt.Errorf("--parent=%w", err)
	case p.spec.Occupies == v1alpha1.OccupiesRanges && (p.spec.CIDR == "" || len(p.spec.Ranges) == 0):
		return command.Coded(command.ExitUsage, fmt.Errorf("--occupies=Ranges needs the subnet and the ranges of it that the pool holds: set --cidr and --range"))
	case p.hasNetwork() && p.subnetLength() == nil:
		return command.Coded(command.ExitUsage, fmt.Errorf("--network-length is missing: set it to the length of the subnet's prefix"))
	}
	return nil
}

// pool returns the pool that the flags describe.
func (p *poolMaking) pool(namespace, name string) v1alpha1.Pool {
	p.fill()
	meta := metav1.ObjectMeta{Name: name, Labels: p.labels}
	if p.local {
		meta.Namespace = namespace
		return &v1alpha1.LocalIPPool{ObjectMeta: meta, Spec: v1alpha1.LocalIPPoolSpec{PoolSpec: p.spec}}
	}
	return &v1alpha1.IPPool{ObjectMeta: meta, Spec: v1alpha1.IPPoolSpec{PoolSpec: p.spec, Visibility: p.visibleTo(), Project: p.project}}
}

// fill sets the fields of the spec that flags do not set directly.
func (p *poolMaking) fill() {
	spec := &p.spec
	spec.OnExhaustion, spec.AllowRetain, spec.Limits = p.onExhaustion, p.allowRetain, p.limits()
	spec.RetentionPeriod = ifSet(&p.policyFlags, "retention-period", &p.retention)
	spec.ReuseDelay = ifSet(&p.policyFlags, "reuse-delay", &p.reuseDelay)
	if p.parent != "" {
		parent, _ := command.PoolOf(p.parent) // it has been checked
		parent.Kind = cmp.Or(parent.Kind, v1alpha1.PoolKindIPPool)
		spec.ParentRef = &parent
	}
	if p.hasNetwork() {
		p.network.PrefixLength = *p.subnetLength()
		spec.Network = &p.network
	}
	if p.lengths != (v1alpha1.PrefixLengthBounds{}) || p.strategy != "" {
		spec.Allocation = &v1alpha1.PoolAllocation{MinPrefixLength: p.lengths.Min, MaxPrefixLength: p.lengths.Max, Strategy: p.strategy}
	}
}

func (p *poolMaking) hasNetwork() bool {
	return p.networkLength != nil || !apiequality.Semantic.DeepEqual(p.network, v1alpha1.PoolNetwork{})
}

// subnetLength returns the length of the subnet: the length of the pool if no flag sets it. It
// returns nil if neither is known.
func (p *poolMaking) subnetLength() *int32 {
	if length := cmp.Or(p.networkLength, p.spec.PrefixLength); length != nil || p.spec.CIDR == "" {
		return length
	}
	cidr, err := netip.ParsePrefix(p.spec.CIDR)
	if err != nil {
		return new(int32(0)) // the API server reports the error in the CIDR
	}
	return new(int32(cidr.Bits())) //nolint:gosec // 0 to 128
}
