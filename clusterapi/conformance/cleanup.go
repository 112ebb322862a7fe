package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cleanUp removes what the trial has created, and returns what the provider did not release in time,
// of which it removes the finalizers.
func (t *trial) cleanUp(ctx context.Context) (notes []string) {
	if t.namespace == "" {
		return nil
	}
	note := func(err error) {
		if err != nil {
			notes = append(notes, "cleaning up: "+err.Error())
		}
	}
	note(t.resumeAll(ctx))
	note(t.removeAll(ctx, &ipamv1.IPAddressClaimList{}))
	note(t.removeAllByForce(ctx, &ipamv1.IPAddressList{}))
	for _, object := range slices.Backward(t.made) {
		note(t.remove(ctx, object))
		if object == t.pool {
			note(t.awaitGone(ctx, object))
		}
	}
	note(t.removeAllByForce(ctx, &clusterv1.ClusterList{}))
	note(t.remove(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}))
	return notes
}

// resumeAll ends the pause of all Clusters and claims, so that the provider releases the claims.
func (t *trial) resumeAll(ctx context.Context) error {
	clusters, claims := &clusterv1.ClusterList{}, &ipamv1.IPAddressClaimList{}
	if err := errors.Join(t.List(ctx, clusters, client.InNamespace(t.namespace)), t.List(ctx, claims, client.InNamespace(t.namespace))); err != nil {
		return err
	}
	var errs []error
	for i := range clusters.Items {
		errs = append(errs, t.resume(ctx, &clusters.Items[i]))
	}
	for i := range claims.Items {
		if _, paused := claims.Items[i].Annotations[clusterv1.PausedAnnotation]; paused {
			errs = append(errs, client.IgnoreNotFound(t.annotate(ctx, &claims.Items[i], "null")))
		}
	}
	return errors.Join(errs...)
}

// removeAll deletes all objects of a kind in the namespace, and waits until the provider lets them go.
func (t *trial) removeAll(ctx context.Context, list client.ObjectList) error {
	objects, err := t.listed(ctx, list)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := t.remove(ctx, object); err != nil {
			return err
		}
	}
	return t.awaitGone(ctx, objects...)
}

// removeAllByForce deletes all objects of a kind in the namespace, with their finalizers.
func (t *trial) removeAllByForce(ctx context.Context, list client.ObjectList) error {
	objects, err := t.listed(ctx, list)
	if err != nil {
		return err
	}
	var errs []error
	for _, object := range objects {
		errs = append(errs, t.remove(ctx, object), t.force(ctx, object))
	}
	return errors.Join(errs...)
}

func (t *trial) listed(ctx context.Context, list client.ObjectList) (objects []client.Object, err error) {
	if err := t.List(ctx, list, client.InNamespace(t.namespace)); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		objects = append(objects, item.(client.Object))
		return nil
	})
	return objects, err
}

func (t *trial) remove(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(t.Delete(ctx, object))
}

// awaitGone waits until objects that were deleted are gone. If the deadline passes, it removes the
// finalizers of all, and returns an error that states that.
func (t *trial) awaitGone(ctx context.Context, objects ...client.Object) error {
	err := t.until(ctx, func(ctx context.Context) error {
		for _, object := range objects {
			if err := t.gone(ctx, object); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return nil
	}
	errs := []error{fmt.Errorf("removed finalizers by force: %w", err)}
	for _, object := range objects {
		errs = append(errs, t.force(ctx, object))
	}
	return errors.Join(errs...)
}

// gone returns an error while an object exists.
func (t *trial) gone(ctx context.Context, object client.Object) error {
	current := object.DeepCopyObject().(client.Object)
	err := t.Get(ctx, client.ObjectKeyFromObject(object), current)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case current.GetUID() != object.GetUID():
		return nil
	}
	return fmt.Errorf("%s exists, with the finalizers %q", named(current), current.GetFinalizers())
}

// force removes the finalizers of an object.
func (t *trial) force(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(t.Patch(ctx, object, merge(`{"metadata":{"finalizers":null}}`)))
}
