package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestErrorMapsToStatusCode(t *testing.T) {
	type answer struct {
		code  int32
		retry int32
	}
	again := answer{429, 1}
	pool, block := ipam.PoolNamed("p"), netip.MustParsePrefix("10.0.0.0/24")
	holder := ipam.Holder{Kind: "IPClaim", Namespace: "team", Name: "b"}
	limit := &ipam.LimitError{Subject: "pool q", Project: "red", Unit: "block", Most: space.CountOf64(2), Held: space.CountOf64(2)}
	claim := subject{kind: "IPClaim", name: "a", ifTaken: "leave cidr out to get a free block, or ask for another"}
	var rows []messages.Row
	for name, tc := range map[string]struct {
		err  error
		want answer
	}{
		"a limit is reached":                 {limit, answer{code: 403}},
		"too many wait":                      {&ipam.TooManyWaitingError{Namespace: "team", Limit: 1000}, answer{code: 429}},
		"it is against policy":               {&ipam.PolicyError{Field: "spec.cidr", Remedy: "name the block"}, answer{code: 422}},
		"the block is taken":                 {&ipam.TakenError{Block: block, Pool: pool, Overlap: block, Holder: holder}, answer{code: 409}},
		"the block is withheld":              {&ipam.TakenError{Block: block, Pool: pool}, answer{code: 409}},
		"nothing is free":                    {&ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 24, Largest: ipam.NoLength}, answer{code: 507}},
		"only less is free":                  {&ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 24, Largest: 26}, answer{code: 507}},
		"nothing is free within a limit":     {&ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 24, Largest: 26, Limits: []*ipam.LimitError{limit}}, answer{code: 507}},
		"records are being loaded":           {ipam.ErrNotSynced, again},
		"it was not confirmed":               {ipam.ErrUnconfirmed, again},
		"an earlier attempt failed":          {fmt.Errorf("%s is recorded for %s: %w", block, holder, ipam.ErrEarlierAttempt), again},
		"too much is created":                {ipam.ErrCrowded, again},
		"too much is unclaimed":              {&ipam.UnclaimedError{Namespace: "team", Most: 1000}, again},
		"too much of a project is unclaimed": {&ipam.UnclaimedError{Project: "team", Most: 1000}, again},
		"too much of a pool is unclaimed":    {&ipam.UnclaimedError{Namespace: "team", Pool: pool}, again},
		"the pool is in use":                 {ipam.ErrPoolInUse, answer{code: 409}},
		"the API server refuses":             {apierrors.NewTimeoutError("x", 7), answer{504, 7}},
		"the API server finds nothing":       {apierrors.NewNotFound(schema.GroupResource{}, "x"), answer{code: 404}},
		"the operator's token is refused":    {fmt.Errorf("recording it: %w", apierrors.NewUnauthorized("x")), again},
		"the time is up":                     {context.DeadlineExceeded, again},
		"the caller has gone":                {context.Canceled, answer{code: 500}},
		"it is missing, and cannot wait":     {&ipam.MissingError{}, answer{code: 500}},
		"not confirmed, as it was refused":   {errors.Join(ipam.ErrUnconfirmed, apierrors.NewNotFound(schema.GroupResource{}, "x")), again},
	} {
		t.Run(name, func(t *testing.T) {
			var got answer
			rows = append(rows, answerRows(t, denied(claim.refusal(tc.err)), tc.err)...)
			for _, err := range []error{tc.err, fmt.Errorf("wrapped: %w", tc.err)} {
				response := denied(claim.refusal(err))
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
	messages.Golden(t, rows)
}

// answerRows returns the rows of an answer that is Cadastre's own: not of a refusal by the API
// server, nor of a request that was canceled.
func answerRows(t *testing.T, response admission.Response, err error) []messages.Row {
	t.Helper()
	var status apierrors.APIStatus
	var missing *ipam.MissingError
	if errors.As(err, &status) && !apierrors.IsUnauthorized(err) || errors.As(err, &missing) || errors.Is(err, context.Canceled) || response.Result.Code == http.StatusUnprocessableEntity {
		return nil
	}
	text := fmt.Sprintf("== create IPClaim: a\n%d %s: %s", response.Result.Code, response.Result.Reason, response.Result.Message)
	rows, wrong := messages.AnswersIn(text)
	must(t, wrong)
	return rows
}

// TestLimitIsCauseOfAnswer covers the cause by which a client distinguishes a limit from a missing
// right.
func TestLimitIsCauseOfAnswer(t *testing.T) {
	for err, want := range map[error]bool{&ipam.LimitError{Subject: "pool q"}: true, &ipam.TooManyWaitingError{}: true, ipam.ErrPoolInUse: false} {
		response := denied(subject{kind: "IPClaim", name: "a"}.refusal(err))
		isLimit := slices.ContainsFunc(response.Result.Details.Causes, func(c metav1.StatusCause) bool {
			return c.Type == v1alpha1.CauseLimitReached && c.Message == response.Result.Message
		})
		if isLimit != want {
			t.Errorf("%v: the causes are %+v", err, response.Result.Details.Causes)
		}
	}
}

// TestLateCallIsReportedWithoutURL covers the URL of a call, which means nothing to the
// user who made the claim.
func TestLateCallIsReportedWithoutURL(t *testing.T) {
	call := &url.Error{Op: "Get", URL: "https://10.0.0.1/apis/x", Err: context.DeadlineExceeded}
	for _, err := range []error{context.DeadlineExceeded, call} {
		if got := describeTimeout(fmt.Errorf("reading namespace a: %w", err)).Error(); got != "reading namespace a: the API server did not answer in time" {
			t.Errorf("%v reads %q", err, got)
		}
	}
}

func TestFieldIsNotSetInNonObject(t *testing.T) {
	for name, edit := range map[string]func(*draft) error{
		"a field":    func(d *draft) error { return d.set("x", "spec", "cidr") },
		"one deeper": func(d *draft) error { return d.set("x", "spec", "poolRef", "name") },
		"an old one": func(d *draft) error {
			return d.restore(map[string]any{"spec": map[string]any{"cidr": "x"}}, "cidr")
		},
		"a finalizer": func(d *draft) error { return d.addFinalizer(nil, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := newDraft([]byte(`{"spec":"none","metadata":"none"}`))
			must(t, err)
			if edit(d) == nil || len(d.changes) > 0 {
				t.Errorf("it was filled in: %v", d.changes)
			}
		})
	}
	d, err := newDraft([]byte(`{"spec":{}}`))
	must(t, err)
	if d.restore(map[string]any{"spec": "none"}, "cidr") == nil {
		t.Error("a field was kept of an object without one")
	}
}

func TestFieldIsSetInNullObject(t *testing.T) {
	d, err := newDraft([]byte(`{"spec":null}`))
	must(t, err)
	if err := d.set("x", "spec", "cidr"); err != nil || len(d.changes) != 2 || d.text("spec", "cidr") != "x" {
		t.Errorf("%v, %v, by %v", d.object, err, d.changes)
	}
}

func TestStatusIsPutBack(t *testing.T) {
	old := map[string]any{"status": map[string]any{"phase": "Bound"}}
	for sent, changes := range map[string]int{`{}`: 1, `{"status":{}}`: 1, `{"status":null}`: 1, `{"status":"none"}`: 1, `{"status":{"phase":"x"}}`: 1, `{"status":{"phase":"Bound"}}`: 0} {
		d, err := newDraft([]byte(sent))
		must(t, err)
		if err := d.putBack(old, "status"); err != nil || len(d.changes) != changes {
			t.Errorf("%s: %v, changes %v", sent, err, d.changes)
		}
	}
	d, err := newDraft([]byte(`{"status":"none"}`))
	must(t, err)
	if d.putBack(old, "status", "phase") == nil {
		t.Error("a field is put back into a text")
	}
}
