package cli

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/cli/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Waiter is a claim that waits for room in the same pools.
type Waiter struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`
	// Asked is whether it is the claim that is explained.
	Asked bool `json:"asked,omitempty"`
}

func (w Waiter) before(other Waiter) int {
	return cmp.Or(w.Since.Compare(other.Since), cmp.Compare(w.Namespace, other.Namespace), cmp.Compare(w.Name, other.Name))
}

// order is the claims that wait for room in the same pools, oldest first, as far as the
// caller may see them, with the one that is explained among them. A claim that waits for
// something else has no place in it: others are served before it.
func order(asked *question, known *knowledge, pools []Candidate) []Waiter {
	self := Waiter{Kind: asked.kind, Namespace: asked.obj.GetNamespace(), Name: asked.obj.GetName(), Since: asked.obj.GetCreationTimestamp().Time, Asked: true}
	waiters := []Waiter{self}
	add := func(kind string, request ipam.Request, created time.Time) {
		w := Waiter{Kind: kind, Namespace: request.Claim.Namespace, Name: request.Claim.Name, Since: created}
		isSelf := w.Kind == self.Kind && w.Namespace == self.Namespace && w.Name == self.Name
		if !isSelf && asksSame(asked.request, request, pools) {
			waiters = append(waiters, w)
		}
	}
	for i := range known.register.Waiting {
		claim := &known.register.Waiting[i]
		request, errs := adapt.Claim(claim)
		if len(errs) == 0 && claim.Status.Phase == v1alpha1.ClaimExhausted {
			add("IPClaim", request, claim.CreationTimestamp.Time)
		}
	}
	for i := range known.addressClaims {
		claim := &known.addressClaims[i]
		ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
		if claim.Status.AddressRef.Name != "" || ready == nil || ready.Reason != v1alpha1.ReasonPoolExhausted || !adapt.IsOurs(claim.Spec.PoolRef.APIGroup, claim.Spec.PoolRef.Kind) {
			continue
		}
		if request, err := addressRequest(claim); err == nil {
			add("IPAddressClaim", request, claim.CreationTimestamp.Time)
		}
	}
	slices.SortFunc(waiters, Waiter.before)
	return waiters
}

// asksSame reports whether another request may be served from one of the pools that could
// serve the first; where these are not known, whether it names the same.
func asksSame(first, other ipam.Request, pools []Candidate) bool {
	for _, c := range pools {
		if c.pool != nil && asksOf(other, c.pool) {
			return true
		}
	}
	switch {
	case first.Pool != (ipam.PoolKey{}):
		return other.Pool == first.Pool
	case first.Class != "":
		return other.Class == first.Class
	default:
		return first.Selector != "" && other.Selector == first.Selector
	}
}

func asksOf(request ipam.Request, pool *register.Pool) bool {
	return request.Pool == pool.Key || request.Class != "" && pool.Backs(request.Class) || request.Selects != nil && request.Selects(pool.Labels)
}

// ahead are those of the order that come before the claim that is explained.
func ahead(order []Waiter) []Waiter {
	at := slices.IndexFunc(order, func(w Waiter) bool { return w.Asked })
	return order[:max(at, 0)]
}
