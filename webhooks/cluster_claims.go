package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

const (
	// clusterTimeout bounds the time in which the claims of a Cluster are made. The API server waits for
	// 15 seconds: the rest is for the deletion of claims, and for the answer.
	clusterTimeout = 12 * time.Second
	// deletionTimeout bounds the time in which the claims of a refused Cluster are deleted.
	deletionTimeout = time.Second
)

// claimAll makes the claims of all networks at the same time, each by one call of the API server.
func (m *clusterMutator) claimAll(ctx context.Context, r *clusterRequest) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range r.networks {
		if n.Class != "" {
			wg.Go(func() { n.err = m.claim(ctx, r, n) })
		}
	}
	wg.Wait()
}

// claim makes the claim of a network, or uses the one of an earlier attempt.
func (m *clusterMutator) claim(ctx context.Context, r *clusterRequest, n *networkClaim) error {
	claim := n.Claim(r.Name)
	claim.Annotations[v1alpha1.AnnotationAttempt] = string(r.user.UID)
	claim.Annotations[v1alpha1.AnnotationRequestedBy] = convert.RequestedBy(r.user.UserInfo.Username)
	n.claim = claim.DeepCopy()
	err := m.Client.Create(ctx, n.claim)
	if n.isNew = err == nil; !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := m.readLeftover(ctx, n, claim); err != nil {
		return err
	}
	before := n.claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&n.claim.ObjectMeta, v1alpha1.AnnotationAttempt, string(r.user.UID))
	err = m.Client.Patch(ctx, n.claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // a controller, or another attempt, was faster
		return tryAgain(fmt.Errorf("IPClaim %s of an earlier attempt has changed", claim.Name))
	}
	return err
}

// readLeftover reads the claim that an earlier attempt has left in place of the wanted one.
func (m *clusterMutator) readLeftover(ctx context.Context, n *networkClaim, want *v1alpha1.IPClaim) error {
	n.claim = &v1alpha1.IPClaim{}
	err := m.Live.Get(ctx, client.ObjectKeyFromObject(want), n.claim)
	if apierrors.IsNotFound(err) { // it was deleted since
		return tryAgain(fmt.Errorf("IPClaim %s of an earlier attempt has changed", want.Name))
	}
	if err != nil {
		return err
	}
	return checkLeftover(n, want.Annotations[v1alpha1.AnnotationClusterNetwork])
}

// checkLeftover returns the reason why the existing claim of a name is not one that an earlier attempt
// to create the Cluster has left. Such a claim is deleted only by the controller: another attempt may
// be about to use it.
func checkLeftover(n *networkClaim, identity string) error {
	claim := n.claim
	switch {
	case claim.Annotations[v1alpha1.AnnotationClusterNetwork] != identity:
		return apierrors.NewConflict(subject{kind: "IPClaim"}.resource(), claim.Name, fmt.Errorf("the claim is not one of this Cluster: delete it, or give the Cluster another name"))
	case !claim.DeletionTimestamp.IsZero(), len(claim.OwnerReferences) > 0:
		return tryAgain(fmt.Errorf("IPClaim %s of a former Cluster of this name is being released", claim.Name))
	case !n.IsClaimedBy(claim):
		return tryAgain(fmt.Errorf("IPClaim %s of an earlier attempt, which asked for another block, is deleted within minutes", claim.Name))
	}
	return nil
}

// preview finds a block for each network of a dry run, each a different one, and holds them until drop is
// called.
func (m *clusterMutator) preview(ctx context.Context, r *clusterRequest) (drop func()) {
	var drops []func()
	for _, n := range r.networks {
		if n.Class != "" {
			n.err = m.previewClaim(ctx, r, n, func(drop func()) { drops = append(drops, drop) })
		}
	}
	return func() {
		for _, drop := range drops {
			drop()
		}
	}
}

func (m *clusterMutator) previewClaim(ctx context.Context, r *clusterRequest, n *networkClaim, atDrop func(func())) error {
	n.claim = n.Claim(r.Name)
	raw, err := json.Marshal(n.claim)
	if err != nil {
		return err
	}
	d, err := newDraft(raw)
	if err != nil {
		return err
	}
	response := m.claims.create(ctx, &claimRequest{claim: n.claim, purpose: forNewCluster, createRequest: createRequest{
		draft: d, dryRun: true, user: r.user.UserInfo, subject: claimSubject(n.claim.Name), atDrop: atDrop,
	}})
	if response.Allowed {
		n.claim.Spec.CIDR = d.text("spec", "cidr")
		return nil
	}
	refusal := &apierrors.StatusError{ErrStatus: *response.Result}
	if apierrors.IsAlreadyExists(refusal) {
		return m.readLeftover(ctx, n, n.claim)
	}
	return refusal
}

// deleteClaims deletes the claims that a refused request has made, unless another attempt uses them
// since.
func (m *clusterMutator) deleteClaims(ctx context.Context, r *clusterRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deletionTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range r.networks {
		if !n.isNew {
			continue
		}
		wg.Go(func() {
			err := m.Client.Delete(ctx, n.claim, client.Preconditions{UID: &n.claim.UID, ResourceVersion: &n.claim.ResourceVersion})
			if kubeutil.IgnoreNotFound(err) != nil {
				log.FromContext(ctx).Info("Could not delete a claim of a refused Cluster; it is collected later", "namespace", n.claim.Namespace, "name", n.claim.Name, "error", err.Error())
			}
		})
	}
	wg.Wait()
}
