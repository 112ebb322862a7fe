package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestEachErrorHasItsStatusCode(t *testing.T) {
	type answer struct {
		code  int32
		retry int32
	}
	again := answer{429, 1}
	for name, tc := range map[string]struct {
		err  error
		want answer
	}{
		"a limit is reached":               {&ipam.LimitError{}, answer{code: 403}},
		"too many wait":                    {&ipam.TooManyWaitingError{}, answer{code: 429}},
		"it is against policy":             {&ipam.PolicyError{Field: "spec.cidr"}, answer{code: 422}},
		"the block is taken":               {&ipam.TakenError{}, answer{code: 409}},
		"nothing is free":                  {&ipam.ExhaustedError{}, answer{code: 507}},
		"records are being loaded":         {ipam.ErrNotSynced, again},
		"it was not confirmed":             {ipam.ErrUnconfirmed, again},
		"too much is created":              {ipam.ErrCrowded, again},
		"too much is unclaimed":            {&ipam.UnclaimedError{}, again},
		"the pool is in use":               {ipam.ErrPoolInUse, answer{code: 409}},
		"the API server refuses":           {apierrors.NewTimeoutError("x", 7), answer{504, 7}},
		"the API server finds nothing":     {apierrors.NewNotFound(schema.GroupResource{}, "x"), answer{code: 404}},
		"the time is up":                   {context.DeadlineExceeded, again},
		"the caller has gone":              {context.Canceled, answer{code: 500}},
		"it is missing, and cannot wait":   {&ipam.MissingError{}, answer{code: 500}},
		"not confirmed, as it was refused": {errors.Join(ipam.ErrUnconfirmed, apierrors.NewNotFound(schema.GroupResource{}, "x")), again},
	} {
		t.Run(name, func(t *testing.T) {
			var got answer
			for _, err := range []error{tc.err, fmt.Errorf("wrapped: %w", tc.err)} {
				response := denied(subject{kind: "IPClaim", plural: "ipclaims", name: "a"}.refusal(err))
				if got.code = response.Result.Code; response.Allowed {
					t.Errorf("%v is allowed", err)
				}
				got.retry = 0
				if details := response.Result.Details; details != nil {
					got.retry = details.RetryAfterSeconds
				}
				if got != tc.want || response.Result.Status != metav1.StatusFailure || response.Result.Message == "" {
					t.Errorf("%v: the answer is %+v; want %+v", err, response.Result, tc.want)
				}
			}
		})
	}
}

// The URL of a call says nothing to whoever made the claim.
func TestACallThatIsLateIsReportedWithoutItsURL(t *testing.T) {
	call := &url.Error{Op: "Get", URL: "https://10.0.0.1/apis/x", Err: context.DeadlineExceeded}
	for _, err := range []error{context.DeadlineExceeded, call} {
		if got := late(fmt.Errorf("reading namespace a: %w", err)).Error(); got != "reading namespace a: the API server did not answer in time" {
			t.Errorf("%v reads %q", err, got)
		}
	}
}
