package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Waiter represents a claim, or a child pool, that waits for room in the same pools.
type Waiter struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`
	// Asked marks the explained claim.
	Asked bool `json:"asked,omitempty"`
}

func (w Waiter) before(other Waiter) int {
	return cmp.Or(w.Since.Compare(other.Since), cmp.Compare(w.Namespace, other.Namespace), cmp.Compare(w.Name, other.Name))
}

// order returns the claims and child pools that wait for room in the same pools, oldest first, as
// far as the caller can see them, and the explained claim among them. A claim that waits for
// anything else has no position there: others are served before it.
func order(asked *Question, known *Knowledge) []Waiter {
	self := asked.holder()
	waiters := []Waiter{{Kind: self.Kind, Namespace: self.Namespace, Name: self.Name, Since: asked.Obj.GetCreationTimestamp().Time, Asked: true}}
	waitsToo := known.waitsForSame(asked.request)
	for _, w := range slices.Concat(known.claimWaiters(), known.addressWaiters(), known.poolWaiters()) {
		if w.Holder != self && waitsToo(w.Request) {
			waiters = append(waiters, Waiter{Kind: w.Holder.Kind, Namespace: w.Holder.Namespace, Name: w.Holder.Name, Since: w.Since})
		}
	}
	slices.SortFunc(waiters, Waiter.before)
	return waiters
}

// claimWaiters returns the IPClaims that wait for room.
func (k *Knowledge) claimWaiters() []queue.Waiter {
	var all []queue.Waiter
	for i := range k.Register.Waiting {
		claim := &k.Register.Waiting[i]
		if request, errs := convert.Claim(claim); len(errs) == 0 && claim.Status.Phase == v1alpha1.ClaimExhausted {
			all = append(all, queue.Waiter{Since: claim.CreationTimestamp.Time, Holder: convert.HolderOfClaim(request.Claim), Request: request})
		}
	}
	return all
}

// poolWaiters returns the child pools that wait for their parents.
func (k *Knowledge) poolWaiters() []queue.Waiter {
	var all []queue.Waiter
	for _, pool := range k.Register.Pools {
		if pool.IsKnown() && pool.IsChild() && !pool.CIDR.IsValid() && !pool.Terminating {
			all = append(all, queue.WaiterOfPool(pool.Pool, pool.Object.GetCreationTimestamp().Time))
		}
	}
	return all
}

// waitsForSame returns a function that reports whether a pool that can serve the first request can
// also serve another request. If the pools are not known, it reports whether both name the same.
func (k *Knowledge) waitsForSame(first ipam.Request) func(ipam.Request) bool {
	shares := func(ipam.Request) bool { return false }
	if k.operator != nil {
		pools, shared := k.operator.Catalogue.Wants(first).Pools, k.operator.Catalogue.Shared()
		shares = func(other ipam.Request) bool {
			return slices.ContainsFunc(shared.Wants(other).Pools, func(p ipam.PoolKey) bool { return slices.Contains(pools, p) })
		}
	}
	return func(other ipam.Request) bool {
		switch {
		case shares(other):
			return true
		case first.Pool != (ipam.PoolKey{}):
			return other.Pool == first.Pool
		case first.Class != "":
			return other.Class == first.Class
		default:
			return first.Selector != "" && other.Selector == first.Selector
		}
	}
}

// ahead returns the waiters that come before the explained claim.
func ahead(order []Waiter) []Waiter {
	at := slices.IndexFunc(order, func(w Waiter) bool { return w.Asked })
	return order[:max(at, 0)]
}
