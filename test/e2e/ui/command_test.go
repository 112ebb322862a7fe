package ui

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/viewer"
)

// page represents a running `kubectl ipam ui`.
type page struct {
	*viewer.Viewer
	t testing.TB
}

// start starts the command as a user, or as the administrator if that is empty, and waits until it
// serves. It ends with the test.
func (w *world) start(t testing.TB, user string, flags ...string) *page {
	t.Helper()
	if user != "" {
		flags = append(flags, "--as="+user)
	}
	return &page{Viewer: viewer.Start(t, w.plugin, w.Kubeconfig(), flags...), t: t}
}

// request returns a request as the page sends it.
func (c *page) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.Origin+path, body)
	suite.Must(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", c.Origin)
	}
	return req
}

// answers sends a request, and returns the code and the body of the answer.
func (c *page) answers(req *http.Request) (int, string) {
	c.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	suite.Must(c.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	suite.Must(c.t, err)
	return resp.StatusCode, string(body)
}

// get asks a question.
func (c *page) get(path string) (int, string) {
	c.t.Helper()
	return c.answers(c.request(c.t.Context(), http.MethodGet, path, nil))
}
