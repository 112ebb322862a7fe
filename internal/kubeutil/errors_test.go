package kubeutil

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMissingPathIsNotObjectNotFound(t *testing.T) {
	claims := schema.GroupResource{Group: "ipam.cadastre.dev", Resource: "ipclaims"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                  {nil, false},
		"the object is not there":   {fmt.Errorf("writing: %w", apierrors.NewNotFound(claims, "a")), true},
		"another error":             {apierrors.NewConflict(claims, "a", nil), false},
		"the path is not there yet": {fmt.Errorf("writing: %w", apierrors.NewGenericServerResponse(http.StatusNotFound, "PATCH", claims, "a", "404 page not found", 0, true)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsNotFound(c.err); got != c.want {
				t.Errorf("%v: %v, want %v", c.err, got, c.want)
			}
			if got := IgnoreNotFound(c.err); (got == nil) != (c.want || c.err == nil) {
				t.Errorf("the rest of %v: %v", c.err, got)
			}
		})
	}
}

// webhookCallError returns the error of an API server that could not call a webhook, over a connection that
// differs each time.
func webhookCallError(port int) error {
	return apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "default.ipaddress.ipam.cluster.x-k8s.io": failed to call webhook: Post "https://10.0.0.%d:443/secret?timeout=10s": context deadline exceeded`, port))
}

func overQuotaOf(used int) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, "a", fmt.Errorf("exceeded quota: none, requested: count/ipaddresses=1, used: count/ipaddresses=%d, limited: count/ipaddresses=%d", used, used))
}

func TestRefusalTextIsStable(t *testing.T) {
	for name, c := range map[string]struct {
		err         func(int) error
		text, cause string
	}{
		"a webhook that cannot be called": {
			webhookCallError,
			`failed calling webhook "default.ipaddress.ipam.cluster.x-k8s.io", which does not answer`,
			`failed calling webhook "default.ipaddress.ipam.cluster.x-k8s.io"`,
		},
		"a quota": {
			overQuotaOf,
			`ipaddresses "a" is forbidden: exceeded quota: none, requested: count/ipaddresses=1`,
			"exceeded quota: none",
		},
		"a policy": {
			func(int) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, "a", errors.New("ValidatingAdmissionPolicy 'none' with binding 'all' denied request: no addresses"))
			},
			`ipaddresses "a" is forbidden: ValidatingAdmissionPolicy 'none' with binding 'all' denied request: no addresses`,
			"ValidatingAdmissionPolicy 'none'",
		},
		"a conflict": {
			func(int) error {
				return apierrors.NewConflict(schema.GroupResource{Resource: "ipaddresses"}, "a", errors.New("newer"))
			},
			`Operation cannot be fulfilled on ipaddresses "a": newer`,
			"Conflict",
		},
		"no answer in time": {
			func(port int) error {
				return fmt.Errorf(`Post "https://10.0.0.%d": %w`, port, context.DeadlineExceeded)
			},
			"the API server does not answer in time",
			"",
		},
		"no answer": {func(int) error { return errors.New("connection refused") }, "connection refused", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for n := range 2 {
				err := c.err(n)
				if got := Refusal(err); got != c.text {
					t.Errorf("got %q, want %q", got, c.text)
				}
				if got := Cause(err); got != c.cause {
					t.Errorf("the cause is %q, want %q", got, c.cause)
				}
			}
		})
	}
}

func TestRefusalTextKeepsContext(t *testing.T) {
	const want = `creating it: failed calling webhook "default.ipaddress.ipam.cluster.x-k8s.io", which does not answer`
	if got := StableText(fmt.Errorf("creating it: %w", webhookCallError(1))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnansweredWebhookIsRejection(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{{webhookCallError(1), true}, {overQuotaOf(1), true}, {apierrors.NewInternalError(errors.New("etcd")), false}, {errors.New("cut"), false}} {
		if got := IsRejected(c.err); got != c.want {
			t.Errorf("%v: rejected: %v, want %v", c.err, got, c.want)
		}
	}
	for code, want := range map[int32]bool{0: false, 399: false, 400: true, 403: true, 499: true, 500: false, 504: false} {
		if got := IsRejected(&apierrors.StatusError{ErrStatus: metav1.Status{Code: code}}); got != want {
			t.Errorf("status %d: rejected: %v, want %v", code, got, want)
		}
	}
}
