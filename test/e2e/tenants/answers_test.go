package tenants

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Answers, as they are counted.
const (
	stored           = "stored"
	limitReached     = "limit reached"
	quotaExceeded    = "quota exceeded"
	tooManyUnclaimed = "too many unclaimed"
	tooManyWaiting   = "too many waiting"
	tryAgain         = "try again"
	notAllowed       = "not allowed"
	notFound         = "not found"
	conflict         = "conflict"
	invalid          = "invalid"
	noRoom           = "no room"
	cutOff           = "cut off"
	noConnection     = "no connection"
	// pathTold is an answer with the secret path of a webhook.
	pathTold = "TOLD THE PATH"
	// forged is the answer of a webhook to a client that is no API server.
	forged = "FORGED"
	// defect is an answer that no client should get.
	defect = "DEFECT"
)

// answerOf returns the answer as which an error is counted.
func answerOf(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return stored
	case errors.Is(err, errCutOff), errors.Is(err, errNoConnection), errors.Is(err, errForged):
		return err.Error()
	case secretPath.MatchString(err.Error()):
		return pathTold
	case strings.Contains(err.Error(), confidential):
		return defect // it has information about others
	case !errors.As(err, &status):
		return defect
	}
	text := err.Error()
	switch status.Status().Code {
	case http.StatusForbidden:
		switch {
		case strings.Contains(text, "exceeded limit"):
			return limitReached
		case strings.Contains(text, "exceeded quota"):
			return quotaExceeded
		}
		return notAllowed
	case http.StatusTooManyRequests:
		switch {
		case strings.Contains(text, "unclaimed"):
			return tooManyUnclaimed
		case strings.Contains(text, "wait"):
			return tooManyWaiting
		}
		return tryAgain
	case http.StatusNotFound:
		return notFound
	case http.StatusConflict:
		return conflict
	case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return invalid
	case http.StatusInsufficientStorage:
		return noRoom
	}
	return defect
}
