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
// not an answer of it, and its time-outs and internal errors, may have been done; but a
// request for which it could not call a webhook is not done.
func IsRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 || uncalledWebhook.MatchString(status.Status().Message)
}

var (
	// uncalledWebhook is how the API server begins its error about a webhook that it could
	// not call; the rest has addresses of connections, and differs each time.
	// (k8s.io/apiserver/pkg/admission/plugin/webhook/errors.go)
	uncalledWebhook = regexp.MustCompile(`failed calling webhook "[^"]*"`)
	// quotaUsage is the part of an exceeded quota that changes with each object.
	quotaUsage = regexp.MustCompile(`, used: \S*, limited: \S*`)
	// refusedBy names what refuses requests.
	refusedBy = regexp.MustCompile(uncalledWebhook.String() + `|admission webhook "[^"]*" denied|exceeded quota: [^,]*|ValidatingAdmissionPolicy '[^']*'`)
)

// StableText is the text of an error as a condition can have it: without what differs each
// time that it is met.
func StableText(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Refusal(err)
	}
	return strings.Replace(err.Error(), status.Status().Message, Refusal(err), 1)
}

// Refusal is StableText without what was being done.
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

// Cause identifies why the API server refuses a request: the quota, policy or webhook, or
// else the reason that it states; empty for other errors. What refuses one object for a
// cause may refuse others of its namespace.
func Cause(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return cmp.Or(refusedBy.FindString(status.Status().Message), string(status.Status().Reason))
}
