// Package absent tells whether the API server says that an object is not there. One
// that has just started also answers 404 for every object of a kind whose definition
// it has yet to read: that is an answer about the path, and none about the object.
package absent

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Is says whether the error is that the object does not exist.
func Is(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Ignore is the error, or nil where the object does not exist.
func Ignore(err error) error {
	if Is(err) {
		return nil
	}
	return err
}
