package edit

import (
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
	flags.StringVar(&f.onExhaustion, "on-exhaustion", "", "what becomes of claims for which there is no room: Wait or Reject")
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
