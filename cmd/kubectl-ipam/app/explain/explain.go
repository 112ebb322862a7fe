package explain

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NewExplain returns the command explain.
func NewExplain(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain CLAIM",
		Short: "Explain why a claim waits and what would help, or where its block came from",
		Long: `Explain why a claim waits and what would help, or where its block came from: what each
pool that could serve it lacks, which claims come before it, and what to release or make.
NAME alone is an IPClaim of the namespace, else an IPAddressClaim.

Users who may list all pools and allocations get the whole answer. Others get the status of
the claim, and the objects that they may read in their own namespace.`,
		Example: `  kubectl ipam explain web
  kubectl ipam explain ipaddressclaim/machine-0
  kubectl ipam explain machine-0 --kind ipaddressclaim`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPClaimList{}, &ipamv1.IPAddressClaimList{}),
	}
	o := command.BindOutput(cmd)
	var kind string
	cmd.Flags().StringVarP(&kind, "kind", "k", "", "kind of the claim: ipclaim or ipaddressclaim")
	command.Complete(cmd, "kind", "ipclaim", "ipaddressclaim")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		argument := args[0]
		if kind != "" {
			argument = kind + "/" + argument
		}
		return explain(e, cmd, argument, o)
	}
	return cmd
}

func explain(e *command.Env, cmd *cobra.Command, argument string, o *command.Output) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	namespace, err := e.Namespace()
	if err != nil {
		return err
	}
	question, err := FindQuestion(cmd.Context(), c, namespace, argument)
	if err != nil {
		return err
	}
	r, err := e.ReadQuietly(cmd, register.Scope{})
	if err != nil {
		return err
	}
	knowledge := &Knowledge{Register: r, Namespace: namespace}
	if err := knowledge.Read(cmd.Context(), c); err != nil {
		return err
	}
	defer knowledge.Close()
	report := Explanation(cmd.Context(), question, knowledge)
	if report.PoolsUnread {
		e.Note("the reasons for each pool are left out, as they need the right to list ippools, localippools, ipallocations, ipclasses and namespaces: ask an administrator of the pools")
	}
	if format := *o.Flags.OutputFormat; (format == "" || format == "wide") && !o.Templated() {
		return report.write(e.Out, e.Painted(), e.Clock.Now())
	}
	return e.Print(o, report)
}

// Question holds the claim of either kind that the command explains.
type Question struct {
	kind, resource string
	Obj            client.Object
	request        ipam.Request
	// invalid is the reason why the claim cannot be understood.
	invalid error

	bound           bool
	phase           string
	reason, message string
	block           string
	pool            *v1alpha1.PoolReference
	record          string
	reclaim         v1alpha1.ReclaimPolicy
	// candidates are the entries for each pool in the status of the claim.
	candidates []v1alpha1.CandidatePool
}

// holder returns the claim as the holder of a block.
func (q *Question) holder() ipam.Holder {
	claim := ipam.Name{Namespace: q.Obj.GetNamespace(), Name: q.Obj.GetName()}
	if q.kind == convert.AddressClaimKind {
		return convert.HolderOfAddressClaim(claim)
	}
	return convert.HolderOfClaim(claim)
}

// FindQuestion reads the claim that the caller asks about.
func FindQuestion(ctx context.Context, c client.Client, namespace, argument string) (*Question, error) {
	kind, name := command.SplitKind(argument)
	key := metav1.ObjectMeta{Namespace: namespace, Name: name}
	claim, address := &v1alpha1.IPClaim{ObjectMeta: key}, &ipamv1.IPAddressClaim{ObjectMeta: key}
	switch kind {
	case "ipclaim":
		if err := command.Get(ctx, c, claim); err != nil {
			return nil, err
		}
		return aboutClaim(claim), nil
	case "ipaddressclaim":
		if err := command.Get(ctx, c, address); err != nil {
			return nil, err
		}
		return aboutAddressClaim(ctx, c, address), nil
	case "":
	default:
		return nil, command.Coded(command.ExitUsage, fmt.Errorf("%s: is no claim: write ipclaim/NAME or ipaddressclaim/NAME", argument))
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	if err == nil {
		return aboutClaim(claim), nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	if c.Get(ctx, client.ObjectKeyFromObject(address), address) == nil {
		return aboutAddressClaim(ctx, c, address), nil
	}
	return nil, command.Coded(command.ExitNotFound, fmt.Errorf("%s: there is no claim of that name in namespace %s that you may read: see kubectl get ipclaims -n %[2]s", name, namespace))
}

func aboutClaim(claim *v1alpha1.IPClaim) *Question {
	question := &Question{
		kind: "IPClaim", resource: "ipclaim", Obj: claim,
		bound: claim.Status.Phase == v1alpha1.ClaimBound, phase: string(claim.Status.Phase),
		block: claim.Status.AllocatedCIDR, pool: claim.Status.PoolRef, record: claim.Spec.AllocationName,
		reclaim: claim.Spec.ReclaimPolicy, candidates: claim.Status.Candidates,
	}
	request, errs := convert.Claim(claim)
	question.request, question.invalid = request, errs.ToAggregate()
	question.says(claim.Status.Conditions)
	return question
}

func aboutAddressClaim(ctx context.Context, c client.Client, claim *ipamv1.IPAddressClaim) *Question {
	question := &Question{kind: "IPAddressClaim", resource: "ipaddressclaim", Obj: claim, phase: "Pending", reclaim: v1alpha1.ReclaimDelete}
	request, errs := addressRequest(claim)
	question.request, question.invalid = request, errs
	question.says(claim.Status.Conditions)
	name := claim.Status.AddressRef.Name
	if name == "" {
		return question
	}
	question.bound, question.phase = true, "Bound"
	address := &ipamv1.IPAddress{}
	if c.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, address) == nil {
		question.block, question.record = command.AsBlock(address.Spec.Address), address.Annotations[v1alpha1.AnnotationAllocation]
		if pool := address.Labels[v1alpha1.LabelPool]; pool != "" {
			question.pool = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKind(address.Labels[v1alpha1.LabelPoolKind]), Name: pool}
		}
	}
	return question
}

func addressRequest(claim *ipamv1.IPAddressClaim) (ipam.Request, error) {
	ref := claim.Spec.PoolRef
	request, errs := convert.AddressRequest(convert.AddressClaim{
		Namespace: claim.Namespace, Name: claim.Name,
		PoolGroup: ref.APIGroup, PoolKind: ref.Kind, PoolName: ref.Name, Annotations: claim.Annotations,
	})
	return request, errs.ToAggregate()
}

// says takes over reason and message from the conditions of the claim.
func (q *Question) says(conditions []metav1.Condition) {
	q.reason, q.message = "NoAnswer", "no operator has answered it: see whether Cadastre runs"
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		q.reason, q.message = ready.Reason, ready.Message
	}
}
