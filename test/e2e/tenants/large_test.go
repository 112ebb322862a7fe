package tenants

import (
	"context"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// oneNameAtOnce sends several creates of which all but one are refused after each had a block
// recorded.
func (h *hostile) oneNameAtOnce(ctx context.Context, report func(error)) {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	h.claims = append(h.claims, claim)
	var creating sync.WaitGroup
	for range 4 {
		creating.Go(func() { report(h.client.Create(ctx, claim.DeepCopy())) })
	}
	creating.Wait()
}

// manyLabels is the number of labels of a large object.
const manyLabels = 13_000

// large makes a claim that is large by its labels, its annotations or its selector, or sends its
// dry run.
func (h *hostile) large(ctx context.Context) error {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	switch h.random.IntN(4) {
	case 0:
		claim.Annotations = map[string]string{"example.com/note": strings.Repeat("x", 200<<10)}
	case 1:
		claim.Labels = map[string]string{}
		for i := range manyLabels {
			claim.Labels[fmt.Sprintf("example.com/label-%d", i)] = "value"
		}
	case 2:
		claim.Labels = map[string]string{}
		for i := range manyLabels {
			claim.Labels[fmt.Sprintf("not a label %d", i)] = "not a value!"
		}
	default:
		values := make([]v1alpha1.LabelValue, manyLabels)
		for i := range values {
			values[i] = v1alpha1.LabelValue(fmt.Sprintf("value-%d", i))
		}
		claim.Spec = v1alpha1.IPClaimSpec{PoolSelector: &v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{
			{Key: "example.com/key", Operator: metav1.LabelSelectorOpIn, Values: values},
		}}}
	}
	if h.random.IntN(2) == 0 {
		return h.client.Create(ctx, claim, client.DryRunAll)
	}
	return h.create(ctx, claim)
}

// largest sends the largest objects that the API server lets pass, and the largest that admission
// does.
func (h *hostile) largest(ctx context.Context, report func(error)) {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	switch h.random.IntN(4) {
	case 0:
		claim.Labels = map[string]string{}
		for n := range 20_000 {
			claim.Labels[fmt.Sprint("-", n)] = "/"
		}
		report(h.client.Create(ctx, claim, client.DryRunAll))
	case 1:
		claim.Labels = map[string]string{}
		for n := range 13_000 {
			claim.Labels[fmt.Sprintf("%060d", n)] = "x"
		}
		report(h.client.Create(ctx, claim))
	case 2:
		claim.Spec.CIDR = strings.Repeat("x", 1<<20)
		report(h.client.Create(ctx, claim))
	default:
		report(h.client.Create(ctx, selectingMuch(build.Claim(crowdNamespace, h.name()).Length(32).Obj())))
		// The selection by its labels is evaluated for each claim that waits.
		pool := build.Pool(fmt.Sprintf("labeled-%d", h.random.IntN(quotaLocalPools))).CIDR("10.81.0.0/24").In(crowdNamespace)
		report(h.client.Create(ctx, pool))
		patch := fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, h.random.Uint64())
		report(h.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
}

// selectingMuch gives a claim the largest selector that it may have.
func selectingMuch(claim *v1alpha1.IPClaim) *v1alpha1.IPClaim {
	by := &v1alpha1.PoolSelector{}
	for term := range v1alpha1.MaxSelectorTerms {
		e := v1alpha1.PoolSelectorExpression{Key: fmt.Sprint("key-", term), Operator: metav1.LabelSelectorOpIn}
		for value := range v1alpha1.MaxSelectorValues {
			e.Values = append(e.Values, v1alpha1.LabelValue(fmt.Sprintf("%063d", value)))
		}
		by.MatchExpressions = append(by.MatchExpressions, e)
	}
	claim.Spec.ClassName, claim.Spec.PoolRef, claim.Spec.PoolSelector = "", nil, by
	return claim
}
