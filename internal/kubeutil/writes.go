package kubeutil

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

type writesKey struct{}

// countWrites returns a context in which CountingWrites counts the requests that change
// something.
func countWrites(ctx context.Context) (context.Context, *atomic.Int64) {
	writes := &atomic.Int64{}
	return context.WithValue(ctx, writesKey{}, writes), writes
}

// CountingWrites returns a transport that counts the requests by which the API server changed
// something, for the pass of a controller that makes them. Reviews of rights and tokens are
// stored nowhere.
func CountingWrites(base http.RoundTripper) http.RoundTripper { return countingWrites{base} }

type countingWrites struct{ http.RoundTripper }

var _ utilnet.RoundTripperWrapper = countingWrites{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, by which client-go cancels a
// request.
func (t countingWrites) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t countingWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if writes, ok := r.Context().Value(writesKey{}).(*atomic.Int64); ok && err == nil && isWrite(r) && answer.StatusCode < http.StatusMultipleChoices {
		writes.Add(1)
	}
	return answer, err
}

func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/") && !strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/")
}
