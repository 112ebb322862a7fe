package kubeutil

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsNotFound reports whether the error means that the object does not exist. An API server that
// has just started also answers 404 for every object of a kind whose definition it has not read
// yet. That answer is about the path, not about the object, and does not count;
// apierrors.IsNotFound counts it.
func IsNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IgnoreNotFound returns nil if the object does not exist, and otherwise the error.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// IsNamespaceTerminating reports whether the error means that nothing can be created any more
// in a namespace that is being deleted. The objects that wait in that namespace are deleted
// soon, and are not retried.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsRejected reports whether the API server surely did nothing of the request. If the error is
// not an answer of the API server, or is a time-out or internal error of it, the request may
// have been done; but a request for which it could not call a webhook is not done.
func IsRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 || uncalledWebhook.MatchString(status.Status().Message)
}

var (
	// uncalledWebhook is the start of the API server's error about a webhook that it could not
	// call; the rest has addresses of connections, and differs each time.
	// (k8s.io/apiserver/pkg/admission/plugin/webhook/errors.go)
	uncalledWebhook = regexp.MustCompile(`failed calling webhook "[^"]*"`)
	// quotaUsage is the part of an exceeded quota that changes with each object.
	quotaUsage = regexp.MustCompile(`, used: \S*, limited: \S*`)
	// refusedBy names the cause of a refused request.
	refusedBy = regexp.MustCompile(uncalledWebhook.String() + `|admission webhook "[^"]*" denied|exceeded quota: [^,]*|ValidatingAdmissionPolicy '[^']*'`)
)

// StableText returns the text of an error as a condition can have it: without the parts that
// differ each time that the error occurs.
func StableText(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Refusal(err)
	}
	return strings.Replace(err.Error(), status.Status().Message, Refusal(err), 1)
}

// Refusal returns the StableText without the attempted action.
func Refusal(err error) string {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
	case errors.Is(err, context.DeadlineExceeded):
		return "the API server does not answer in time"
	default:
		return err.Error()
	}
	message := status.Status().Message
	if uncalled := uncalledWebhook.FindString(message); uncalled != "" {
		return uncalled + ", which does not answer"
	}
	return quotaUsage.ReplaceAllString(message, "")
}

// Cause returns the cause for which the API server refuses a request: the quota, policy or
// webhook, or else the reason that it states; empty for other errors. A cause that refuses one
// object may refuse others of its namespace.
func Cause(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return cmp.Or(refusedBy.FindString(status.Status().Message), string(status.Status().Reason))
}
