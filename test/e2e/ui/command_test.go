package ui

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cadastre-dev/cadastre/test/framework/suite"
)

// buildPlugin builds the plug-in as it is.
func buildPlugin(t testing.TB) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "kubectl-ipam")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/cadastre-dev/cadastre/cmd/kubectl-ipam")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// command is a running `kubectl ipam ui`.
type command struct {
	t testing.TB
	// address is what it has printed, with the token, and origin and token are its parts.
	address, origin, token string

	process *exec.Cmd
	errs    *said
	ended   chan error
}

// start starts the command as a user, or as the administrator where that is empty, and waits
// until it serves. It ends with the test.
func (w *world) start(t testing.TB, user string, flags ...string) *command {
	t.Helper()
	args := append([]string{"ui", "--kubeconfig=" + w.Kubeconfig()}, flags...)
	if user != "" {
		args = append(args, "--as="+user)
	}
	c := &command{t: t, process: exec.Command(w.plugin, args...), errs: &said{}, ended: make(chan error, 1)}
	c.process.Stderr = c.errs
	c.process.Env = append(os.Environ(), "KUBECACHEDIR="+t.TempDir())
	out, err := c.process.StdoutPipe()
	suite.Must(t, err)
	suite.Must(t, c.process.Start())
	t.Cleanup(func() { _ = c.stop() }) // tests say how it is to end
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), "Serving the address space at "); found {
			c.address = address
			c.origin, c.token, _ = strings.Cut(address, "/#token=")
		}
		if strings.Contains(lines.Text(), "press Ctrl-C to end") {
			break
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out) // until it ends
		c.ended <- c.process.Wait()
	}()
	if c.token == "" {
		t.Fatalf("kubectl ipam %s: does not serve:\n%s", strings.Join(args, " "), c.errs.String())
	}
	return c
}

// stop ends the command as Ctrl-C does, and returns how it has ended.
func (c *command) stop() error {
	_ = c.process.Process.Signal(syscall.SIGINT) // it may have ended
	err := <-c.ended
	c.ended <- err
	return err
}

// request is a request as the page sends it.
func (c *command) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.origin+path, body)
	suite.Must(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", c.origin)
	}
	return req
}

// answers sends a request, and returns the code and the body of the answer.
func (c *command) answers(req *http.Request) (int, string) {
	c.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	suite.Must(c.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	suite.Must(c.t, err)
	return resp.StatusCode, string(body)
}

// get asks a question.
func (c *command) get(path string) (int, string) {
	c.t.Helper()
	return c.answers(c.request(c.t.Context(), http.MethodGet, path, nil))
}

// said is what a process has said so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
