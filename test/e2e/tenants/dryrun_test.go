package tenants

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// dryRun asks which block it would get, and which blocks are free in which pools. An answer with
// information about other tenants is a defect.
func (h *hostile) dryRun(ctx context.Context) error {
	b := build.Claim(hostileNamespace, h.name())
	switch h.random.IntN(3) {
	case 0:
		b.Class("scarce")
	case 1:
		b.Pool(poolOwn).Length(32) // of the honest tenant
	default:
		b.Class("hosts")
	}
	claim := b.Obj()
	err := h.client.Create(ctx, claim, client.DryRunAll)
	if err == nil && (strings.Contains(fmt.Sprint(claim.Status), confidential) || slices.ContainsFunc(claim.Status.Candidates, isOfOthers)) {
		return fmt.Errorf("a dry run has information about others: %v", claim.Status)
	}
	return err
}

// isOfOthers reports whether a candidate is a pool that the hostile tenant may not use.
func isOfOthers(c v1alpha1.CandidatePool) bool {
	return slices.Contains([]string{poolOwn, poolOthers, poolInner}, c.PoolRef.Name)
}
