package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// reasonInsufficientStorage is the reason for HTTP 507 (RFC 4918 section 11.5).
const reasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// subject represents the object that an answer is about.
type subject struct {
	// group is empty if it is our own group.
	group, kind, name string
	// blockField is the field that asks for a block, by default spec.cidr, and ifTaken the advice if
	// another holder has it.
	blockField, ifTaken string
}

func (s subject) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: cmp.Or(s.group, v1alpha1.GroupVersion.Group), Kind: s.kind}
}

// refusal converts an error into the answer of admission. No other code decides the effect of an
// error there.
func (s subject) refusal(err error) error {
	var policy *ipam.PolicyError
	var taken *ipam.TakenError
	var exhausted *ipam.ExhaustedError
	var limit *ipam.LimitError
	var waiting *ipam.TooManyWaitingError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &limit):
		return withLimitCause(apierrors.NewForbidden(s.resource(), s.name, limit))
	case errors.As(err, &waiting):
		return withLimitCause(apierrors.NewTooManyRequests(err.Error(), 0)) // a retry in a second would not help
	case errors.As(err, &policy) && policy.Value == nil:
		return s.invalid(field.Required(field.NewPath(policy.Field), policy.Remedy))
	case errors.As(err, &policy):
		return s.invalid(field.Invalid(field.NewPath(policy.Field), policy.Value, policy.Remedy))
	case errors.As(err, &taken):
		return s.conflict(taken)
	case errors.As(err, &exhausted):
		return s.insufficient(exhausted.Error() + ": ask for a smaller block, release one, or add a pool")
	case errors.Is(err, ipam.ErrTooManyUnclaimed):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case ipam.IsTransient(err):
		return tryAgain(err)
	case errors.Is(err, ipam.ErrPoolInUse):
		return apierrors.NewConflict(s.resource(), s.name, errors.New("spec.cidr: blocks of an earlier pool of this name are in use: ask for its CIDR, or delete them first"))
	case apierrors.IsUnauthorized(err): // of the operator itself: to the client it would mean its own
		return tryAgain(errors.New("the API server has refused the credentials of the operator, which are renewed by Kubernetes"))
	case errors.As(err, &status):
		return err
	case errors.Is(err, context.DeadlineExceeded): // that of the request, or of one step of it
		return tryAgain(describeTimeout(err))
	default:
		return apierrors.NewInternalError(fmt.Errorf("%w: try again", err))
	}
}

// withLimitCause adds the cause by which a client distinguishes a limit from a missing right. The
// error must have details.
func withLimitCause(err *apierrors.StatusError) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: v1alpha1.CauseLimitReached, Message: err.ErrStatus.Message})
	return err
}

// describeTimeout describes in plain words, and without the address of the API server, the call that was not
// answered in time.
func describeTimeout(err error) error {
	cause := context.DeadlineExceeded.Error()
	if call, ok := errors.AsType[*url.Error](err); ok {
		cause = call.Error()
	}
	return errors.New(strings.Replace(err.Error(), cause, "the API server did not answer in time", 1))
}

func tryAgain(err error) error {
	return apierrors.NewTooManyRequests(err.Error()+": try again", 1)
}

// invalid returns an error with the first errors, and the number of the others: the library takes
// quadratic time to join them.
func (s subject) invalid(errs ...*field.Error) error {
	omittedCount := len(errs) - maxErrors
	err := apierrors.NewInvalid(s.groupKind(), s.name, errs[:min(len(errs), maxErrors)])
	if omittedCount > 0 {
		err.ErrStatus.Message += fmt.Sprintf("; and %s", ipam.FormatCount(omittedCount, "more error"))
	}
	return err
}

// alreadyExists returns the error that the API server would return a moment later. If the request
// passed and the object were deleted in that moment, the API server would store it without any
// decision.
func (s subject) alreadyExists() error { return apierrors.NewAlreadyExists(s.resource(), s.name) }

func (s subject) resource() schema.GroupResource {
	return schema.GroupResource{Group: s.groupKind().Group, Resource: ipam.Plural(strings.ToLower(s.kind))}
}

func (s subject) conflict(err error) error {
	return apierrors.NewConflict(s.resource(), s.name, fmt.Errorf("%s: %w: %s", cmp.Or(s.blockField, "spec.cidr"), err, s.ifTaken))
}

// waitingConflict returns the refusal to delete a class for which claims wait.
func (s subject) waitingConflict(waiting []ipam.Holder) error {
	return apierrors.NewConflict(s.resource(), s.name, fmt.Errorf("class %s is in use by %s (%s): delete %s first, or give the class a pool that has room",
		s.name, ipam.FormatCount(len(waiting), "waiting claim"), ipam.FormatList(waiting, maxListedHolders, ipam.Holder.String, ", "), pronoun(len(waiting))))
}

func (s subject) insufficient(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonInsufficientStorage,
		Message: message,
		Details: &metav1.StatusDetails{Group: v1alpha1.GroupVersion.Group, Kind: s.kind, Name: s.name},
	}}
}

// denied returns the response that carries an error's own status to the client.
func denied(err error) admission.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	result := status.Status()
	response := admission.Denied("")
	response.Result = &result
	return response
}

// canWait reports whether an error only means that the request must wait.
func canWait(err error) bool {
	var missing *ipam.MissingError
	if exhausted, ok := errors.AsType[*ipam.ExhaustedError](err); ok {
		return exhausted.OnExhaustion == ipam.OnExhaustionWait
	}
	return errors.As(err, &missing)
}

const (
	// maxOccupants bounds the number of holders that are checked to find the ones that are not
	// being deleted.
	maxOccupants = 64
	// maxListedHolders is the number of holders that a refusal names.
	maxListedHolders = 3
)

func pronoun(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}
