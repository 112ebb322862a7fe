package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

func TestProcessIsPausedKilledAndStartedAgain(t *testing.T) {
	m := startTestManager(t)
	first := m.PID()

	must.Succeed(t, m.Pause())
	if answers(m, 200*time.Millisecond) {
		t.Error("it answers while it is paused")
	}
	if !m.Running() {
		t.Error("it is paused, and reported as not running")
	}
	must.Succeed(t, m.Resume())
	if !answers(m, 10*time.Second) {
		t.Error("it was resumed and does not answer")
	}

	must.Succeed(t, m.Kill())
	if m.Running() || answers(m, 200*time.Millisecond) {
		t.Error("it was killed and still runs")
	}
	must.Succeed(t, m.Restart(t.Context()))
	if m.PID() == first || !answers(m, 10*time.Second) {
		t.Error("it was restarted and does not run")
	}
}

func TestPausedProcessCanBeStopped(t *testing.T) {
	m := startTestManager(t)
	must.Succeed(t, m.Pause())
	if err := m.Stop(); err != nil || m.Running() {
		t.Errorf("stopping: %v, running: %t", err, m.Running())
	}
}

func TestExitedProcessIsRestarted(t *testing.T) {
	m := newTestManager(t, playManager)
	m.reviveAfter = time.Nanosecond
	must.Succeed(t, m.Start(t.Context()))
	first, ended := m.PID(), m.Done()
	must.Succeed(t, m.signal(syscall.SIGKILL))
	<-ended
	if err := m.ready(t.Context()); err != nil || m.PID() == first {
		t.Errorf("it was not started again (%v)", err)
	}
	must.Succeed(t, m.Kill())
	if m.Running() {
		t.Error("it was started again after its stop")
	}
}

func TestProcessStartedAgainIsNotRestarted(t *testing.T) {
	m := startTestManager(t)
	first := m.cmd
	must.Succeed(t, m.Restart(t.Context()))
	second := m.PID()
	m.revive(first)
	if m.PID() != second {
		t.Error("there are two of it now")
	}
	must.Succeed(t, m.Stop())
}

func TestExitedProcessIsNotAwaitedAndLogIsQuoted(t *testing.T) {
	m := newTestManager(t, playQuitter)
	err := m.Start(t.Context())
	if err == nil {
		t.Fatal("a process that ended was ready")
	}
	for _, want := range []string{"manager-0", "it ended", "quitting"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}

// TestProcessesEndWithOwner kills a process that has started another, and
// waits for that one to be gone.
func TestProcessesEndWithOwner(t *testing.T) {
	owner := exec.Command(os.Args[0], t.TempDir())
	owner.Env = append(os.Environ(), playEnv+"="+playOwner)
	owner.Stderr = t.Output()
	out, err := owner.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, owner.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the owner's output: %v", err)
	}
	address := strings.TrimSpace(line)
	must.Succeed(t, owner.Process.Kill())
	_ = owner.Wait()

	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				return true, nil //nolint:nilerr // refused: it is gone, as it should be
			}
			return false, conn.Close()
		})
	if err != nil {
		t.Errorf("its manager at %s outlives it: %v", address, err)
	}
}

// ownManager plays playOwner.
func ownManager() {
	if err := os.Setenv(playEnv, playManager); err != nil {
		panic(err)
	}
	files, err := newRunDir(os.Args[1])
	if err != nil {
		panic(err)
	}
	held, err := newLeash(files)
	if err != nil {
		panic(err)
	}
	defer held.release()
	m, err := (&Cluster{files: files, options: Options{ManagerBinary: os.Args[0]}}).newManager(loopback(0))
	if err != nil {
		panic(err)
	}
	if err := m.Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stdout, m.ProbeAddress)
	<-m.Done()
}

// newTestManager prepares a manager that the test binary plays.
func newTestManager(t *testing.T, play string) *Manager {
	t.Helper()
	t.Setenv(playEnv, play)
	files, err := newRunDir(t.TempDir())
	must.Succeed(t, err)
	m, err := (&Cluster{files: files, options: Options{ManagerBinary: os.Args[0]}}).newManager(loopback(0))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, m.Kill()) })
	return m
}

// startTestManager starts a manager that is ready at once.
func startTestManager(t *testing.T) *Manager {
	t.Helper()
	m := newTestManager(t, playManager)
	must.Succeed(t, m.Start(t.Context()))
	return m
}

func answers(m *Manager, within time.Duration) bool {
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + m.ProbeAddress + "/readyz")
	if err != nil {
		return false
	}
	return response.Body.Close() == nil
}

// TestPortIsAssignedOnce requests the port of one cluster for another, which can be of another
// process.
func TestPortIsAssignedOnce(t *testing.T) {
	var one, other ports
	port, err := one.next()
	must.Succeed(t, err)
	check := func(p *ports, want bool) {
		t.Helper()
		if got, err := p.lock(port); got != want || err != nil {
			t.Fatalf("got %t, %v, want %t", got, err, want)
		}
	}
	check(&one, false)
	check(&other, false)
	must.Succeed(t, one.release())
	check(&other, true)
	must.Succeed(t, other.release())
}
