package edit

import (
	"context"
	"time"

	"github.com/spf13/cobra"
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

	strategy, onExhaustion, limitAddresses, visibility, project string
	limitBlocks                                                 int64
	reuseDelay, retention                                       time.Duration
	allowRetain                                                 bool
	minLength, maxLength                                        *int32
	labels                                                      map[string]string
}

func (f *policyFlags) bind(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.Var(command.Length{Bits: &f.minLength}, "min-length", "largest block that is handed out, such as /20")
	flags.Var(command.Length{Bits: &f.maxLength}, "max-length", "smallest block that is handed out, such as /28")
	flags.StringVar(&f.strategy, "strategy", "", "which free block is handed out: FirstFit, BestFit, WorstFit or Random")
	flags.StringVar(&f.onExhaustion, "on-exhaustion", "", "handling of claims for which there is no room: Wait or Reject")
	flags.DurationVar(&f.reuseDelay, "reuse-delay", 0, "how long a released block is not handed out again, such as 1h")
	flags.BoolVar(&f.allowRetain, "allow-retain", false, "let claims ask for their block to be retained")
	flags.DurationVar(&f.retention, "retention-period", 0, "how long a retained block is kept at most, such as 720h")
	flags.StringVar(&f.limitAddresses, "limit-addresses", "", "how many addresses one project may hold")
	flags.Int64Var(&f.limitBlocks, "limit-blocks", 0, "how many blocks one project may hold")
	flags.StringVar(&f.visibility, "visibility", "", "whose claims may use it: Shared, Consumer (those of --project alone) or Platform (default Shared; with --project Consumer)")
	flags.StringVar(&f.project, "project", "", "project to which it belongs")
	flags.StringToStringVar(&f.labels, "labels", nil, "labels, such as site=a,rack=7")
	command.Complete(cmd, "strategy", string(v1alpha1.StrategyFirstFit), string(v1alpha1.StrategyBestFit), string(v1alpha1.StrategyWorstFit), string(v1alpha1.StrategyRandom))
	command.Complete(cmd, "on-exhaustion", string(v1alpha1.OnExhaustionWait), string(v1alpha1.OnExhaustionReject))
	command.Complete(cmd, "visibility", string(v1alpha1.VisibilityShared), string(v1alpha1.VisibilityConsumer), string(v1alpha1.VisibilityPlatform))
}

func (f *policyFlags) changed(flag string) bool { return f.cmd.Flags().Changed(flag) }

// duration returns the value of a flag; nil if it is not set.
func (f *policyFlags) duration(flag string, value time.Duration) *metav1.Duration {
	if !f.changed(flag) {
		return nil
	}
	return &metav1.Duration{Duration: value}
}

// limits returns the limits on the holdings of one project; nil if no flag sets them.
func (f *policyFlags) limits() *v1alpha1.Limits {
	limits := &v1alpha1.ProjectLimits{}
	if f.limitAddresses != "" {
		limits.Addresses = new(intstr.Parse(f.limitAddresses))
	}
	if f.changed("limit-blocks") {
		limits.Blocks = &f.limitBlocks
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
	return v1alpha1.Visibility(f.visibility)
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
	dry, o := command.BindDryRun(cmd), command.BindOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := dry.Check(); err != nil {
			return err
		}
		return createClass(cmd.Context(), e, f.class(args[0]), *dry, o)
	}
	return cmd
}

func createClass(ctx context.Context, e *command.Env, class *v1alpha1.IPClass, dry command.DryRun, o *command.Output) error {
	if dry != command.DryRunClient {
		c, err := e.Client()
		if err != nil {
			return err
		}
		if err := c.Create(ctx, class, dry); err != nil {
			return err
		}
	}
	printed, err := command.Outcome(class, dry.Done("created"))
	if err != nil {
		return err
	}
	printed.AsManifest = dry == command.DryRunClient
	return e.Print(o, printed)
}

// classFlags holds the flags of a class.
type classFlags struct {
	policyFlags
	family, poolSelection, reclaim, provisioner string
	length                                      *int32
	parameters                                  map[string]string
	isDefault, allowLocalPools                  bool
}

func (f *classFlags) bind(cmd *cobra.Command) {
	f.policyFlags.bind(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.family, "family", string(v1alpha1.IPv4), "address family: IPv4 or IPv6")
	flags.Var(command.Length{Bits: &f.length}, "length", "size of the blocks of claims that set no length: 24 for a /24")
	flags.StringVar(&f.poolSelection, "pool-selection", "", "which pool serves a claim: FirstFit (by name), LeastUtilized or MostUtilized")
	flags.StringVar(&f.reclaim, "reclaim-policy", "", "what becomes of the blocks of released claims that set no policy: Delete or Retain")
	flags.StringVar(&f.provisioner, "provisioner", "", "provisioner that serves its claims, if it is not Cadastre")
	flags.StringToStringVar(&f.parameters, "parameters", nil, "parameters of another provisioner, such as a=b,c=d")
	flags.BoolVar(&f.isDefault, "default", false, "make it the default class of its family, if there is none; to switch from another one: kubectl ipam default-class")
	flags.BoolVar(&f.allowLocalPools, "allow-local-pools", false, "let LocalIPPools back it, with addresses that each namespace chooses itself")
	command.Complete(cmd, "family", command.Families()...)
	command.Complete(cmd, "pool-selection", string(v1alpha1.SelectFirstFit), string(v1alpha1.SelectLeastUtilized), string(v1alpha1.SelectMostUtilized))
	command.Complete(cmd, "reclaim-policy", string(v1alpha1.ReclaimDelete), string(v1alpha1.ReclaimRetain))
}

// class returns the class that the flags describe.
func (f *classFlags) class(name string) *v1alpha1.IPClass {
	class := &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: f.labels}}
	if f.isDefault {
		class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
	}
	class.Spec = v1alpha1.IPClassSpec{
		Provisioner: f.provisioner, Parameters: f.parameters, IPFamily: v1alpha1.IPFamily(f.family),
		PoolSelection: v1alpha1.PoolSelection(f.poolSelection), Strategy: v1alpha1.Strategy(f.strategy),
		DefaultPrefixLength: f.length, ReclaimPolicy: v1alpha1.ReclaimPolicy(f.reclaim),
		RetentionPeriod: f.duration("retention-period", f.retention), ReuseDelay: f.duration("reuse-delay", f.reuseDelay),
		OnExhaustion: v1alpha1.OnExhaustion(f.onExhaustion), Limits: f.limits(), AllowLocalPools: f.allowLocalPools, Visibility: f.visibleTo(), Project: f.project,
	}
	if f.minLength != nil || f.maxLength != nil {
		class.Spec.AllowedPrefixLengths = &v1alpha1.PrefixLengthBounds{Min: f.minLength, Max: f.maxLength}
	}
	if f.changed("allow-retain") {
		class.Spec.AllowRetain = &f.allowRetain
	}
	return class
}
