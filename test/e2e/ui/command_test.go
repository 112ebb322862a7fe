package ui

import (
	"context"
	"io"
	"net/http"
	"strings"
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

// questions requests the answers that the commands give.
func (w *world) questions(t *testing.T) {
	c := w.start(t, "")
	for path, want := range map[string]struct {
		code  int
		texts []string
	}{
		"/api/who?address=10.1.0.1":                                        {http.StatusOK, []string{`"kind":"WhoReport"`, `"name":"apps"`, `"poolCIDR":"10.1.0.0/16"`}},
		"/api/who?address=10.0.0.2":                                        {http.StatusOK, []string{`"name":"machine-0"`, `"kind":"Machine"`}},
		"/api/who?address=9.9.9.9":                                         {http.StatusNotFound, []string{`"exitCode":4`}},
		"/api/who?address=10.1.0.1/16":                                     {http.StatusBadRequest, []string{"has host bits set", `"exitCode":2`}},
		"/api/explain?kind=ipclaim&namespace=team-b&name=vip-2":            {http.StatusOK, []string{`"kind":"ExplainReport"`, `"reason":"PoolExhausted"`, `"remedies"`, `"uid":"`}},
		"/api/explain?kind=ipaddressclaim&namespace=team-a&name=machine-0": {http.StatusOK, []string{`"block":"10.0.0.2/32"`}},
		"/api/explain?kind=ipclaim&namespace=team-b&name=none":             {http.StatusNotFound, []string{`"exitCode":4`}},
		"/api/free?pool=IPPool/west&length=24&count=2":                     {http.StatusOK, []string{`"blocks":["10.1.2.0/24","10.1.3.0/24"]`}},
		"/api/free?pool=IPPool/vips":                                       {http.StatusInsufficientStorage, []string{`"exitCode":3`}},
		"/api/free?pool=IPPool/none":                                       {http.StatusNotFound, []string{`"exitCode":4`}},
		"/api/machine?name=node-7":                                         {http.StatusOK, []string{`"claims":[{"kind":"IPAddressClaim","namespace":"team-a","name":"machine-0","machine":{`}},
		"/api/machine?name=node-8":                                         {http.StatusOK, []string{`"claims":[]`}},
		"/":                                                                {http.StatusOK, []string{"<!doctype html>"}},
	} {
		code, text := c.get(path)
		if code != want.code {
			t.Errorf("%s: %d, want %d: %s", path, code, want.code, text)
		}
		for _, part := range want.texts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: does not say %s: %s", path, part, text)
			}
		}
	}
}
