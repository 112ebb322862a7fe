package security

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// unclaimedLimit is the highest number of records of a namespace without a claim or a pool.
const unclaimedLimit = 10

// unboundIsBounded sends claims of a namespace that another policy refuses when each has its block
// already: the namespace is stopped before it has taken all blocks, and no other namespace is.
func (w *world) unboundIsBounded() {
	w.Namespace("greedy")
	w.Namespace("modest")
	w.Pools(build.Pool("bounded").CIDR("10.10.0.0/20").Obj())
	greedy := w.Client(cluster.NoRetry(w.Config()))
	refused := func(name string) *v1alpha1.IPClaim {
		claim := build.Claim("greedy", name).Pool("bounded").Length(28).Obj()
		claim.Labels = map[string]string{"refuse": "me"}
		return claim
	}
	w.refuseLabeled()
	w.Await("the policy is in force", func(ctx context.Context) bool {
		return isRefusedByPolicy(greedy.Create(ctx, refused("rehearsed"), client.DryRunAll))
	})

	var err error
	made := 0
	for ; made <= 10*unclaimedLimit && !apierrors.IsTooManyRequests(err); made++ {
		if err = greedy.Create(w.Context(), refused(fmt.Sprint("refused-", made))); err == nil {
			w.Fatal("the policy lets it pass")
		}
	}
	if made <= unclaimedLimit || !apierrors.IsTooManyRequests(err) {
		w.Errorf("after %d claims that were not stored: %v, want that it is too many, after more than %d", made, err, unclaimedLimit)
	}
	modest := build.Claim("modest", "served").Pool("bounded").Length(28).Obj()
	w.Created(modest)
	if modest.Spec.CIDR == "" {
		w.Error("another namespace is not served in that time")
	}
	w.Await("the namespace is served again, as its records are collected", func(ctx context.Context) bool {
		claim := build.Claim("greedy", "served").Pool("bounded").Length(28).Obj()
		return greedy.Create(ctx, claim) == nil && claim.Spec.CIDR != ""
	})
}

func isRefusedByPolicy(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "refuse-labeled")
}

// refuseLabeled installs a policy, which is asked after the webhooks that fill in
// blocks.
func (w *world) refuseLabeled() {
	w.Created(
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "refuse-labeled"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"ipclaims"}},
					},
				}}},
				Validations: []admissionregistrationv1.Validation{{Expression: "!has(object.metadata.labels) || !('refuse' in object.metadata.labels)"}},
			},
		},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "refuse-labeled"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: "refuse-labeled", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		})
}
