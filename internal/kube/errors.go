package kube

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsNotFound reports whether the error is that the object does not exist. An API server
// that has just started also answers 404 for every object of a kind whose definition it
// has not read yet. That answer is about the path, not about the object, and does not
// count; apierrors.IsNotFound counts it.
func IsNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IgnoreNotFound returns nil where the object does not exist, and otherwise the error.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// IsNamespaceTerminating reports whether the error is that nothing can be created any
// more in a namespace that is being deleted. What waits in that namespace is deleted
// soon, and is not retried.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsRejected reports whether the API server surely did nothing of what was asked. What is
// not an answer of it, and its time-outs and internal errors, may have been done.
func IsRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
}
