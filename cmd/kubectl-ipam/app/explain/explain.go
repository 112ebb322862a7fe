// Package explain implements the command that explains why a claim waits, or what networks a
// Cluster got: it reads the same objects as the operator, and judges by the operator's own code.
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
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NewExplain returns the command explain.
func NewExplain(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain CLAIM|cluster/NAME",
		Short: "Explain why a claim waits and what would help, or where its block came from",
		Long: `Explain why a claim waits and what would help, or where its block came from: what each
pool that could serve it lacks, which claims come before it, and what to release or make.
NAME alone is an IPClaim of the namespace, else an IPAddressClaim.

Of a Cluster of Cluster API it shows the networks that were filled in when it was created, or
that its annotations and those of its Namespace ask for: the class and the claim of each, and
why it is not bound.

Users who may list all pools and allocations get the whole answer. Others get the status of
the claim, and the objects that they may read in their own namespace.`,
		Example: `  kubectl ipam explain web
  kubectl ipam explain ipaddressclaim/machine-0
  kubectl ipam explain machine-0 --kind ipaddressclaim

  # The networks of a Cluster
  kubectl ipam explain cluster/prod`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPClaimList{}, &ipamv1.IPAddressClaimList{}),
	}
	var kind string
	cmd.Flags().StringVarP(&kind, "kind", "k", "", "kind of the object: ipclaim, ipaddressclaim or cluster")
	command.Complete(cmd, "kind", "ipclaim", "ipaddressclaim", "cluster")
	e.RunReport(cmd, func(cmd *cobra.Command, args []string) (command.Report, error) {
		argument := args[0]
		if kind != "" {
			argument = kind + "/" + argument
		}
		return explain(e, cmd, argument)
	})
	return cmd
}

func explain(e *command.Env, cmd *cobra.Command, argument string) (command.Report, error) {
	c, namespace, err := e.ClientAndNamespace()
	if err != nil {
		return nil, err
	}
	if kind, name := command.SplitKind(argument); kind == "cluster" {
		return explainCluster(e, cmd, c, ipam.Name{Namespace: namespace, Name: name})
	}
	question, err := FindQuestion(cmd.Context(), c, namespace, argument)
	if err != nil {
		return nil, err
	}
	knowledge, err := readKnowledge(e, cmd, c, namespace)
	if err != nil {
		return nil, err
	}
	defer knowledge.Close()
	report := Explanation(cmd.Context(), question, knowledge)
	notePools(e, report)
	return report, nil
}

// explainCluster explains the networks of a Cluster.
func explainCluster(e *command.Env, cmd *cobra.Command, c client.Client, name ipam.Name) (command.Report, error) {
	question, err := findCluster(cmd.Context(), e, c, name)
	if err != nil {
		return nil, err
	}
	knowledge, err := readKnowledge(e, cmd, c, name.Namespace)
	if err != nil {
		return nil, err
	}
	defer knowledge.Close()
	report, err := clusterExplanation(cmd.Context(), c, question, knowledge)
	if err != nil {
		return nil, err
	}
	var reports []*Report
	for i := range report.Networks {
		if waits := report.Networks[i].Waits; waits != nil {
			reports = append(reports, waits)
		}
	}
	notePools(e, reports...)
	return report, nil
}

// readKnowledge reads the objects that the caller can read. The caller closes it.
func readKnowledge(e *command.Env, cmd *cobra.Command, c client.Client, namespace string) (*Knowledge, error) {
	r, err := e.ReadQuietly(cmd, nil)
	if err != nil {
		return nil, err
	}
	knowledge := &Knowledge{Register: r, Namespace: namespace}
	return knowledge, knowledge.Read(cmd.Context(), c)
}

// notePools sets the time of reports about claims, and notes that the pools could not be judged.
func notePools(e *command.Env, reports ...*Report) {
	isUnread := false
	for _, report := range reports {
		report.now = e.Clock.Now()
		isUnread = isUnread || report.PoolsUnread
	}
	if isUnread {
		e.Note("the reasons for each pool are left out, as they need the right to list ippools, localippools, ipallocations, ipclasses and namespaces: ask an administrator of the pools")
	}
}

// Question holds the claim of either kind that the command explains.
type Question struct {
	Obj     client.Object
	request ipam.Request
	// invalid is the reason why the claim cannot be understood.
	invalid error
	// pool is the pool of its block, and reclaim the policy for the block.
	pool    *v1alpha1.PoolReference
	reclaim v1alpha1.ReclaimPolicy
	// candidates are the entries for each pool in the status of the claim.
	candidates []v1alpha1.CandidatePool
	// report is the part of the report that the claim itself states.
	report Report
}

func newQuestion(kind string, obj client.Object, phase v1alpha1.ClaimPhase, conditions []metav1.Condition) *Question {
	report := Report{
		TypeMeta: command.ReportType("ExplainReport"), Object: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Created: obj.GetCreationTimestamp(), Phase: string(phase), Network: command.NetworkOf(obj),
		Reason: "NoAnswer", Message: "no operator has answered it: see whether Cadastre runs",
	}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		report.Reason, report.Message = ready.Reason, ready.Message
	}
	return &Question{Obj: obj, report: report}
}

// holder returns the claim as the holder of a block.
func (q *Question) holder() ipam.Holder {
	claim := ipam.Name{Namespace: q.Obj.GetNamespace(), Name: q.Obj.GetName()}
	if q.report.Object == convert.AddressClaimKind {
		return convert.HolderOfAddressClaim(claim)
	}
	return convert.HolderOfClaim(claim)
}

// FindQuestion reads the claim that the caller asks about.
func FindQuestion(ctx context.Context, c client.Client, namespace, argument string) (*Question, error) {
	kind, name := command.SplitKind(argument)
	key := metav1.ObjectMeta{Namespace: namespace, Name: name}
	claim, address := &v1alpha1.IPClaim{ObjectMeta: key}, &ipamv1.IPAddressClaim{ObjectMeta: key}
	var err error
	switch kind {
	case "ipclaim":
		err = command.Get(ctx, c, claim)
	case "ipaddressclaim":
		err = command.Get(ctx, c, address)
	case "":
		err = c.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		if apierrors.IsNotFound(err) {
			kind, err = "ipaddressclaim", c.Get(ctx, client.ObjectKeyFromObject(address), address)
			if err != nil {
				err = command.Coded(command.ExitNotFound, fmt.Errorf("%s: there is no claim of that name in namespace %s that you may read: see kubectl get ipclaims -n %[2]s", name, namespace))
			}
		}
	default:
		err = command.Coded(command.ExitUsage, fmt.Errorf("%s: is no claim and no Cluster: write ipclaim/NAME, ipaddressclaim/NAME or cluster/NAME", argument))
	}
	switch {
	case err != nil:
		return nil, err
	case kind == "ipaddressclaim":
		return aboutAddressClaim(ctx, c, address), nil
	default:
		return aboutClaim(claim), nil
	}
}

func aboutClaim(claim *v1alpha1.IPClaim) *Question {
	q := newQuestion("IPClaim", claim, claim.Status.Phase, claim.Status.Conditions)
	request, errs := convert.Claim(claim)
	q.request, q.invalid = request, errs.ToAggregate()
	q.pool, q.reclaim, q.candidates = claim.Status.PoolRef, claim.Spec.ReclaimPolicy, claim.Status.Candidates
	if claim.Status.Phase == v1alpha1.ClaimBound {
		q.report.Block, q.report.Record = claim.Status.AllocatedCIDR, claim.Spec.AllocationName
	}
	return q
}

func aboutAddressClaim(ctx context.Context, c client.Client, claim *ipamv1.IPAddressClaim) *Question {
	name, phase := claim.Status.AddressRef.Name, v1alpha1.ClaimPending
	if name != "" {
		phase = v1alpha1.ClaimBound
	}
	q := newQuestion(convert.AddressClaimKind, claim, phase, claim.Status.Conditions)
	q.request, q.invalid = addressRequest(claim)
	q.reclaim = v1alpha1.ReclaimDelete
	address := &ipamv1.IPAddress{}
	if name != "" && c.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, address) == nil {
		q.report.Block, q.report.Record = command.AsBlock(address.Spec.Address), address.Annotations[v1alpha1.AnnotationAllocation]
		ref := address.Spec.PoolRef
		if convert.IsInCluster(ref.APIGroup, ref.Kind) { // such an IPAddress has no labels, and no annotation that names its record
			q.pool = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKind(ref.Kind), Name: ref.Name}
		}
		if pool := address.Labels[v1alpha1.LabelPool]; pool != "" {
			q.pool = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKind(address.Labels[v1alpha1.LabelPoolKind]), Name: pool}
		}
	}
	return q
}

func addressRequest(claim *ipamv1.IPAddressClaim) (ipam.Request, error) {
	ref := claim.Spec.PoolRef
	request, errs := convert.AddressRequest(convert.AddressClaim{
		Namespace: claim.Namespace, Name: claim.Name,
		PoolGroup: ref.APIGroup, PoolKind: ref.Kind, PoolName: ref.Name, Annotations: claim.Annotations,
	})
	return request, errs.ToAggregate()
}
