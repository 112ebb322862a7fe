package clusternetwork

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// addOwner adds the Cluster as an owner of the claim, in place of a former Cluster of its name, and the
// finalizer. It reports whether the claim has changed.
func addOwner(claim *v1alpha1.IPClaim, cluster *clusterv1.Cluster) bool {
	isChanged := controllerutil.AddFinalizer(claim, v1alpha1.FinalizerClusterNetwork)
	owner := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}
	if slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == cluster.UID }) {
		return isChanged
	}
	claim.OwnerReferences = append(slices.DeleteFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == owner.Kind && ref.Name == owner.Name
	}), owner)
	return true
}

// mayNeedPass reports whether a claim that was updated is not as keep writes it. A pass after each write of
// keep could read the other claims of the Cluster as they were before.
func mayNeedPass(update event.UpdateEvent) bool {
	claim := update.ObjectNew
	return !claim.GetDeletionTimestamp().IsZero() || claim.GetAnnotations()[v1alpha1.AnnotationAttempt] != "" ||
		!controllerutil.ContainsFinalizer(claim, v1alpha1.FinalizerClusterNetwork) || len(claim.GetOwnerReferences()) == 0
}

// release lets claims go whose block the Cluster does not have: it removes the finalizer, so that they can be
// deleted, and deletes those that an attempt to create the Cluster has left. The Cluster is read
// live first: the cache may not show it yet, or not its last state.
func (c *Controller) release(ctx context.Context, s *scope) (reconcile.Result, error) {
	kept, left := s.unused()
	left, delay := c.withoutRecent(s.name, left)
	if len(kept)+len(left) == 0 {
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	cluster, err := readCluster(ctx, c.Live, s.name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if cluster != nil {
		fields, err := fieldsOf(cluster)
		if err != nil {
			return reconcile.Result{}, err
		}
		kept, left = slices.DeleteFunc(kept, fields.Uses), slices.DeleteFunc(left, fields.Uses)
	}
	for _, claim := range kept {
		if err := c.removeFinalizer(ctx, claim); err != nil {
			return reconcile.Result{}, err
		}
	}
	for _, claim := range left { // unless another attempt uses it since
		err := c.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
		if kubeutil.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("deleting IPClaim %s of a Cluster that was not stored: %w", claim.Name, err)
		}
	}
	return reconcile.Result{RequeueAfter: delay}, nil
}

// unused returns the claims whose finalizer may have to go, and those that an attempt to create the Cluster may
// have left.
func (s *scope) unused() (kept, left []*v1alpha1.IPClaim) {
	for _, claim := range s.claims {
		switch {
		case controllerutil.ContainsFinalizer(claim, v1alpha1.FinalizerClusterNetwork):
			if s.cluster == nil || !claim.DeletionTimestamp.IsZero() {
				kept = append(kept, claim)
			}
		case claim.Annotations[v1alpha1.AnnotationAttempt] != "" && claim.DeletionTimestamp.IsZero() && len(claim.OwnerReferences) == 0:
			left = append(left, claim)
		}
	}
	return kept, left
}

func (c *Controller) removeFinalizer(ctx context.Context, claim *v1alpha1.IPClaim) error {
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, v1alpha1.FinalizerClusterNetwork)
	err := c.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if kubeutil.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of IPClaim %s: %w", claim.Name, err)
	}
	return nil
}

// withoutRecent returns the claims that have been left over, in the same version, for the grace period,
// and the time until the next one has been; 0 if there is none.
func (c *Controller) withoutRecent(cluster types.NamespacedName, claims []*v1alpha1.IPClaim) (due []*v1alpha1.IPClaim, delay time.Duration) {
	before, _ := c.sightings.LoadAndDelete(cluster)
	former, _ := before.(map[types.UID]sighting)
	sightings, now := map[types.UID]sighting{}, c.Clock.Now()
	for _, claim := range claims {
		seen, ok := former[claim.UID]
		if !ok || seen.version != claim.ResourceVersion {
			seen = sighting{version: claim.ResourceVersion, at: now}
		}
		sightings[claim.UID] = seen
		if remaining := c.Grace - now.Sub(seen.at); remaining > 0 {
			if delay == 0 || remaining < delay {
				delay = remaining
			}
			continue
		}
		due = append(due, claim)
	}
	if len(sightings) > 0 {
		c.sightings.Store(cluster, sightings)
	}
	return due, delay
}
