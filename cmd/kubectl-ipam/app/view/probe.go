package view

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// mostProbes limits the claims that one command tries in dry runs.
const mostProbes = 20

// candidate represents the operator's report about a pool that a claim may use.
type candidate struct {
	pool    ipam.PoolKey
	message string
	// available is a number of addresses, and largestFreePrefix is as in /20; empty if the
	// operator does not report it.
	available, largestFreePrefix string
}

// probe creates a claim in a dry run, which records nothing, and returns the claim as the API
// server answers it, with the block that it would get.
func probe(ctx context.Context, c client.Client, claim *v1alpha1.IPClaim) (*v1alpha1.IPClaim, error) {
	claim.GenerateName = "kubectl-ipam-"
	err := c.Create(ctx, claim, client.DryRunAll)
	return claim, err
}

// candidatesOf returns the pools that the answer to a dry run names as candidates, else the pool
// from which the block would come.
func candidatesOf(claim *v1alpha1.IPClaim) []candidate {
	var all []candidate
	for _, entry := range claim.Status.Candidates {
		all = append(all, candidate{
			pool: convert.PoolKey(claim.Namespace, entry.PoolRef), message: entry.Message,
			available: entry.Available, largestFreePrefix: entry.LargestFreePrefix,
		})
	}
	if len(all) == 0 && claim.Status.PoolRef != nil {
		all = append(all, candidate{pool: convert.PoolKey(claim.Namespace, *claim.Status.PoolRef)})
	}
	return all
}

// candidatesFor asks for the blocks that claims of the namespace could get from pools that the
// caller cannot list: by each class, and from each pool of which the namespace has a block.
func candidatesFor(e *command.Env, cmd *cobra.Command, r *register.Register) map[ipam.PoolKey]candidate {
	candidates := map[ipam.PoolKey]candidate{}
	if !r.Lacks("ippools") {
		return candidates
	}
	c, err := e.Client()
	if err != nil {
		return candidates
	}
	namespace, err := e.Namespace()
	if err != nil {
		return candidates
	}
	for i, claim := range probes(cmd.Context(), c, r) {
		if i == mostProbes {
			e.Note("free blocks of further pools were not asked for: name a pool to ask for it alone")
			break
		}
		claim.Namespace = namespace
		answer, err := probe(cmd.Context(), c, claim)
		switch {
		case apierrors.IsForbidden(err):
			e.Note("you may not create ipclaims in namespace %s, so the free blocks of pools that you may not list are not known", namespace)
			return candidates
		case err != nil && !isRefusal(err):
			e.Note("the free blocks of pools that you may not list are not known: %v", err)
			return candidates
		case err != nil: // the claim is not allowed, and the answer names no pools
			continue
		}
		for _, candidate := range candidatesOf(answer) {
			candidates[candidate.pool] = candidate
		}
	}
	return candidates
}

// isRefusal reports whether the operator refuses a claim because of its request.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusUnprocessableEntity || code == http.StatusInsufficientStorage
}

// probes returns claims that lead to all pools that a namespace can use, as far as is known.
func probes(ctx context.Context, c client.Client, r *register.Register) []*v1alpha1.IPClaim {
	var claims []*v1alpha1.IPClaim
	classes := &v1alpha1.IPClassList{}
	if err := c.List(ctx, classes); err == nil { // a caller that cannot list them has none to ask for
		for i := range classes.Items {
			claims = append(claims, probeOfClass(&classes.Items[i]))
		}
	}
	for _, pool := range r.Pools {
		if !pool.IsKnown() && len(pool.Records) > 0 {
			claims = append(claims, probeOfPool(pool.Key, pool.Records[0].Block.Bits()))
		}
	}
	return claims
}

// probeOfClass returns a claim for the default block of a class, else for the smallest block that
// the class allows.
func probeOfClass(class *v1alpha1.IPClass) *v1alpha1.IPClaim {
	claim := &v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{ClassName: class.Name}}
	if read, errs := convert.Class(class); len(errs) == 0 && read.Length == ipam.NoLength {
		claim.Spec.PrefixLength = new(int32(min(read.Lengths.Max, read.Family.Bits()))) //nolint:gosec // at most 128
	}
	return claim
}

// probeOfPool returns a claim for a block of a pool; for its default block if no length is given.
func probeOfPool(pool ipam.PoolKey, length int) *v1alpha1.IPClaim {
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace},
		Spec:       v1alpha1.IPClaimSpec{PoolRef: convert.PoolReference(pool)},
	}
	if length != ipam.NoLength {
		claim.Spec.PrefixLength = new(int32(length)) //nolint:gosec // at most 128
	}
	return claim
}
