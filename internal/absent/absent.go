// Package absent tells whether the API server says that an object is not there. One
// that has just started also answers 404 for every object of a kind whose definition
// it has yet to read: that is an answer about the path, and none about the object.
package absent

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Is says whether the error is that the object does not exist.
func Is(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IsWithNamespace reports whether the error is that nothing can be made any more in a
// namespace that is being deleted. What waits in there is deleted soon, and is not to be
// tried again.
func IsWithNamespace(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Ignore is the error, or nil where the object does not exist.
func Ignore(err error) error {
	if Is(err) {
		return nil
	}
	return err
}
