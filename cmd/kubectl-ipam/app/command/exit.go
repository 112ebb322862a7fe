package command

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

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
