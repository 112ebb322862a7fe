package explain

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func aboutClaim(claim *v1alpha1.IPClaim) *Question {
	asked := &Question{
		kind: "IPClaim", resource: "ipclaim", Obj: claim,
		bound: claim.Status.Phase == v1alpha1.ClaimBound, phase: string(claim.Status.Phase),
		block: claim.Status.AllocatedCIDR, pool: claim.Status.PoolRef, record: claim.Spec.AllocationName,
		reclaim: claim.Spec.ReclaimPolicy, candidates: claim.Status.Candidates,
	}
	request, errs := convert.Claim(claim)
	asked.request, asked.invalid = request, errs.ToAggregate()
	asked.says(claim.Status.Conditions)
	return asked
}

func aboutAddressClaim(ctx context.Context, c client.Client, claim *ipamv1.IPAddressClaim) *Question {
	asked := &Question{kind: "IPAddressClaim", resource: "ipaddressclaim", Obj: claim, phase: "Pending", reclaim: v1alpha1.ReclaimDelete}
	request, errs := addressRequest(claim)
	asked.request, asked.invalid = request, errs
	asked.says(claim.Status.Conditions)
	name := claim.Status.AddressRef.Name
	if name == "" {
		return asked
	}
	asked.bound, asked.phase = true, "Bound"
	address := &ipamv1.IPAddress{}
	if c.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, address) == nil {
		asked.block, asked.record = command.AsBlock(address.Spec.Address), address.Annotations[v1alpha1.AnnotationAllocation]
		if pool := address.Labels[v1alpha1.LabelPool]; pool != "" {
			asked.pool = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKind(address.Labels[v1alpha1.LabelPoolKind]), Name: pool}
		}
	}
	return asked
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
