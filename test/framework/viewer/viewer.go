// Package viewer runs `kubectl ipam ui` as a process, for tests that look at its page.
package viewer

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Build builds the plug-in as it is, with the page in it.
func Build(t testing.TB) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "kubectl-ipam")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/cadastre-dev/cadastre/cmd/kubectl-ipam")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// Viewer represents a running `kubectl ipam ui`.
type Viewer struct {
	// Address is the printed address, with the token. Origin and Token are its parts.
	Address, Origin, Token string

	process *exec.Cmd
	errors  string // the file of its standard error
	ended   chan struct{}
	err     error // how it has ended, once ended is closed
}

// Start starts a program that Build has built, and waits until it serves. It ends with the test.
func Start(t testing.TB, binary, kubeconfig string, flags ...string) *Viewer {
	t.Helper()
	v := &Viewer{process: exec.Command(binary, append([]string{"ui", "--kubeconfig=" + kubeconfig}, flags...)...), ended: make(chan struct{})} //nolint:noctx // it ends with the test
	v.process.Env = append(os.Environ(), "KUBECACHEDIR="+t.TempDir())
	errs, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	suite.Must(t, err)
	t.Cleanup(func() { _ = errs.Close() }) // the process has a copy
	v.process.Stderr, v.errors = errs, errs.Name()
	out, err := v.process.StdoutPipe()
	suite.Must(t, err)
	suite.Must(t, v.process.Start())
	t.Cleanup(func() { _ = v.Stop() }) // tests judge its end
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), "Serving the address space at "); found {
			v.Address = address
			v.Origin, v.Token, _ = strings.Cut(address, "/#token=")
		}
		if strings.Contains(lines.Text(), "press Ctrl-C to end") {
			break
		}
	}
	go func() {
		defer close(v.ended)
		_, _ = io.Copy(io.Discard, out) // until it ends
		v.err = v.process.Wait()
	}()
	if v.Token == "" {
		t.Fatalf("kubectl ipam ui %s: does not serve:\n%s", strings.Join(flags, " "), v.Errors(t))
	}
	return v
}

// Stop ends it as Ctrl-C does, and returns the result of the process.
func (v *Viewer) Stop() error {
	_ = v.process.Process.Signal(syscall.SIGINT) // it may have ended
	<-v.ended
	return v.err
}

// Signal sends a signal to the process.
func (v *Viewer) Signal(signal os.Signal) error { return v.process.Process.Signal(signal) }

// Errors returns its output to standard error so far.
func (v *Viewer) Errors(t testing.TB) string {
	t.Helper()
	said, err := os.ReadFile(v.errors)
	suite.Must(t, err)
	return string(said)
}

// Memory returns how many bytes of the process are resident now.
func (v *Viewer) Memory(t testing.TB) int {
	t.Helper()
	return suite.Memory(t, v.process.Process.Pid, "VmRSS")
}

// Kubeconfig writes a kubeconfig, of which the context has a name and a namespace.
func Kubeconfig(t testing.TB, config *rest.Config, context, namespace string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	suite.Must(t, cluster.WriteKubeconfig(path, config, context, namespace))
	return path
}
