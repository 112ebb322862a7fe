package operator

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// claimKey is that by which claims are counted.
type claimKey struct{ kind, phase, reason string }

// countAgain is how long it takes until what failed is tried again.
const countAgain = time.Second

// countClaims begins to count IPClaims when the cache has begun: an informer that is there
// before has everybody wait for it.
func (m *measures) countClaims(ctx context.Context, from cache.Cache) {
	if !from.WaitForCacheSync(ctx) {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, countAgain, true, func(ctx context.Context) (bool, error) {
		informer, err := from.GetInformer(ctx, &v1alpha1.IPClaim{}, cache.BlockUntilSynced(false))
		if err != nil {
			return false, nil //nolint:nilerr // the informer's own log says why, and it is tried again
		}
		_, err = informer.AddEventHandler(m.claims.Handler(keyOfClaim))
		return err == nil, nil
	}) // which fails only where ctx is done
}

// keyOfClaim is the key of an IPClaim. The cache keeps no conditions of one that is Bound
// and has nothing wrong.
func keyOfClaim(obj any) (claimKey, bool) {
	claim, ok := obj.(*v1alpha1.IPClaim)
	if !ok {
		return claimKey{}, false
	}
	key := claimKey{kind: "IPClaim", phase: string(claim.Status.Phase)}
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		key.reason = ready.Reason
	} else if claim.Status.Phase == v1alpha1.ClaimBound {
		key.reason = v1alpha1.ReasonBound
	}
	return key, true
}

// keyOfAddressClaim is the key of an IPAddressClaim, which has no phase: it is Bound where
// it names its IPAddress, Exhausted where it waits for room, and otherwise Pending.
func keyOfAddressClaim(obj any) (claimKey, bool) {
	claim, ok := obj.(*ipamv1.IPAddressClaim)
	if !ok || claim.Spec.PoolRef.APIGroup != v1alpha1.GroupVersion.Group {
		return claimKey{}, false
	}
	key := claimKey{kind: "IPAddressClaim", phase: string(v1alpha1.ClaimPending)}
	if ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition); ready != nil {
		key.reason = ready.Reason
	}
	switch {
	case claim.Status.AddressRef.Name != "":
		key.phase = string(v1alpha1.ClaimBound)
	case key.reason == ipamv1.IPAddressClaimReadyPoolExhaustedReason:
		key.phase = string(v1alpha1.ClaimExhausted)
	}
	return key, true
}
