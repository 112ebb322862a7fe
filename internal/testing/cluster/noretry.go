package cluster

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// NoRetry returns a configuration whose clients see every refusal: those of client-go try again
// by themselves if an answer states when.
func NoRetry(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetry{next} })
	return cfg
}

type noRetry struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noRetry) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(req)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}
