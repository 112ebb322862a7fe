package inventory

import (
	"fmt"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// possible returns those of the pools that have a block of the length when nothing is
// in use, and the others. One that has no CIDR yet may come to have one. Where there is
// none, nothing that is released would help: the error is a *ipam.PolicyError where the
// request is not to wait for room, and otherwise a *ipam.MissingError, as a pool may be
// edited.
func possible(terms ipam.Terms, pools []ipam.Pool) (fit []ipam.Pool, tooSmall []ipam.PoolResult, err error) {
	if terms.Length == ipam.NoLength || terms.Block.IsValid() {
		return pools, nil, nil
	}
	for _, pool := range pools {
		if !pool.CIDR.IsValid() || hasEver(pool, terms.Length) {
			fit = append(fit, pool)
			continue
		}
		tooSmall = append(tooSmall, ipam.PoolResult{Pool: pool.Key, Err: cannotFit(terms, []ipam.Pool{pool})})
	}
	if len(fit) > 0 || len(pools) == 0 {
		return fit, tooSmall, nil
	}
	if terms.WhenExhausted(pools) == ipam.OnExhaustionReject {
		return nil, tooSmall, &ipam.PolicyError{Field: "spec.prefixLength", Value: terms.Length, Remedy: tooLarge(pools), Verdict: ipam.CannotFit}
	}
	return nil, tooSmall, cannotFit(terms, pools)
}

func cannotFit(terms ipam.Terms, pools []ipam.Pool) error {
	err := missing(v1alpha1.ReasonCannotFit, "no /%d can be handed out: %s", terms.Length, tooLarge(pools))
	err.Verdict = ipam.CannotFit
	return err
}

func hasEver(pool ipam.Pool, length int) bool {
	largest := pool.LargestBlock()
	return largest != ipam.NoLength && largest <= length
}

// tooLarge names the pool whose largest block is the largest.
func tooLarge(pools []ipam.Pool) string {
	best := pools[0]
	for _, pool := range pools[1:] {
		if largest := pool.LargestBlock(); largest != ipam.NoLength && !hasEver(best, largest) {
			best = pool
		}
	}
	if best.LargestBlock() == ipam.NoLength {
		return fmt.Sprintf("%s (%s) withholds all of its addresses: change its ranges or reserved", best.Key, best.CIDR)
	}
	return fmt.Sprintf("the ranges and reserved addresses of %s (%s) leave a /%d at most, even when it is empty: ask for a smaller block, or change them",
		best.Key, best.CIDR, best.LargestBlock())
}
