package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Explained returns an error as a person reads it. It shows the answer of the API server without
// the name of the webhook that gave it, each wrong field on a separate line if there are several,
// and with a remedy if the answer has none.
func Explained(err error) string {
	text := err.Error()
	if meta.IsNoMatchError(err) {
		return text + ": install Cadastre in this cluster, or choose another one with --context"
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return text
	}
	return strings.Replace(text, status.Status().Message, describe(status.Status()), 1)
}

// describe returns the message of a status.
func describe(status metav1.Status) string {
	message := regexp.MustCompile(`^admission webhook "[^"]*" denied the request: `).ReplaceAllString(status.Message, "")
	switch {
	case status.Reason == metav1.StatusReasonInvalid && status.Details != nil && len(status.Details.Causes) > 1:
		lines := []string{fmt.Sprintf("%s %s is invalid:", status.Details.Kind, status.Details.Name)}
		for _, cause := range status.Details.Causes {
			lines = append(lines, fmt.Sprintf("  %s: %s", cause.Field, cause.Message))
		}
		return strings.Join(lines, "\n")
	case status.Reason == metav1.StatusReasonForbidden && regexp.MustCompile(`cannot \w+ resource`).MatchString(message):
		return message + ": ask for the right to do so"
	case status.Reason == metav1.StatusReasonAlreadyExists:
		return message + ": choose another name, or delete the other one first"
	}
	return message
}

// Get reads an object. If there is none, the error names a remedy.
func Get(ctx context.Context, c client.Client, obj client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	if apierrors.IsNotFound(err) {
		return NotFound(obj)
	}
	return err
}

// GetCluster reads a Cluster of Cluster API. The error says if there is none, or no Cluster API.
func GetCluster(ctx context.Context, c client.Client, cluster client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
	switch {
	case meta.IsNoMatchError(err):
		return Coded(ExitNotFound, fmt.Errorf("cluster %s: Cluster API is not installed in this cluster", cluster.GetName()))
	case apierrors.IsNotFound(err):
		return Coded(ExitNotFound, fmt.Errorf("cluster %s: there is no Cluster of that name in namespace %s: choose another one with -n", cluster.GetName(), cluster.GetNamespace()))
	}
	return err
}

// NotFound returns the error of an object that does not exist, with ExitNotFound.
func NotFound(obj client.Object) error {
	kind, where := KindOf(obj).Kind, ""
	if obj.GetNamespace() != "" {
		where = " in namespace " + obj.GetNamespace()
	}
	return Coded(ExitNotFound, fmt.Errorf("%s %s: there is none of that name%s: see kubectl get %s%s",
		kind, obj.GetName(), where, strings.ToLower(kind), InNamespace(obj)))
}

// InNamespace returns the flag of kubectl for the namespace of an object.
func InNamespace(obj client.Object) string {
	if obj.GetNamespace() == "" {
		return ""
	}
	return " -n " + obj.GetNamespace()
}

// KindOf returns the kind of an object, which the scheme has.
func KindOf(obj client.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(obj, Scheme())
	utilruntime.Must(err)
	return kind
}

// ExitCode represents the result of a command. The codes are part of the interface: they keep
// their meaning in all versions.
type ExitCode int

// The results of a command.
const (
	// ExitDone: the command did as requested.
	ExitDone ExitCode = 0
	// ExitError: the command failed for a reason that has no separate code.
	ExitError ExitCode = 1
	// ExitUsage: the command, an argument or a flag is wrong, or an object is refused as
	// invalid. Nothing was done.
	ExitUsage ExitCode = 2
	// ExitExhausted: no pool has a free block.
	ExitExhausted ExitCode = 3
	// ExitNotFound: an object, or a pool that contains an address, does not exist.
	ExitNotFound ExitCode = 4
	// ExitForbidden: the caller has no right to do it.
	ExitForbidden ExitCode = 5
	// ExitConflict: the block is held already, or an object exists and is different.
	ExitConflict ExitCode = 6
	// ExitLimit: a limit of the project or of the namespace is reached.
	ExitLimit ExitCode = 7
	// ExitUnhealthy: the check was done, and something is wrong.
	ExitUnhealthy ExitCode = 8
	// ExitTimedOut: the awaited state was not reached in time; as for timeout(1).
	ExitTimedOut ExitCode = 124
)

// ExitCodes returns all exit codes, in order.
func ExitCodes() []ExitCode {
	return []ExitCode{ExitDone, ExitError, ExitUsage, ExitExhausted, ExitNotFound, ExitForbidden, ExitConflict, ExitLimit, ExitUnhealthy, ExitTimedOut}
}

// codedError represents an error that decides the exit code.
type codedError struct {
	code ExitCode
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }

func (e *codedError) Unwrap() error { return e.err }

// Coded gives an error its exit code.
func Coded(code ExitCode, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code: code, err: err}
}

// CodeOf returns the code with which an error ends a command. Only CodeOf decides this.
func CodeOf(err error) ExitCode {
	var own *codedError
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimedOut
	case apierrors.HasStatusCause(err, v1alpha1.CauseLimitReached):
		return ExitLimit
	case errors.As(err, &status):
		return codeOfStatus(status.Status())
	default:
		return ExitError
	}
}

func codeOfStatus(status metav1.Status) ExitCode {
	switch status.Code {
	case http.StatusNotFound:
		return ExitNotFound
	case http.StatusForbidden, http.StatusUnauthorized:
		return ExitForbidden
	case http.StatusConflict:
		return ExitConflict
	case http.StatusInsufficientStorage:
		return ExitExhausted
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		return ExitUsage
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return ExitTimedOut
	default:
		return ExitError
	}
}
