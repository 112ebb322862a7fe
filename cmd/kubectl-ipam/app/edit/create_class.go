package edit

import (
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

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
	flags.Var(command.Length{Bits: &f.length}, "length", "size of the blocks of claims that do not say: 24 for a /24")
	flags.StringVar(&f.poolSelection, "pool-selection", "", "which pool serves a claim: FirstFit (by name), LeastUtilized or MostUtilized")
	flags.StringVar(&f.reclaim, "reclaim-policy", "", "what becomes of the blocks of released claims that do not say: Delete or Retain")
	flags.StringVar(&f.provisioner, "provisioner", "", "who serves its claims, where that is not Cadastre")
	flags.StringToStringVar(&f.parameters, "parameters", nil, "parameters of another provisioner, such as a=b,c=d")
	flags.BoolVar(&f.isDefault, "default", false, "make it the default class of its family, where there is none; to switch from another one: kubectl ipam default-class")
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
