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
)

func TestProcessIsPausedKilledAndStartedAgain(t *testing.T) {
	t.Setenv(playEnv, playManager)
	m := newTestManager(t)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := m.PID()

	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	if answers(m, 200*time.Millisecond) {
		t.Error("it answers while it is paused")
	}
	if !m.Running() {
		t.Error("it is paused, and reported as not running")
	}
	if err := m.Resume(); err != nil {
		t.Fatal(err)
	}
	if !answers(m, 10*time.Second) {
		t.Error("it was resumed and does not answer")
	}

	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if m.Running() || answers(m, 200*time.Millisecond) {
		t.Error("it was killed and still runs")
	}
	if err := m.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.PID() == first || !answers(m, 10*time.Second) {
		t.Error("it was restarted and does not run")
	}
}

func TestPausedProcessCanBeStopped(t *testing.T) {
	t.Setenv(playEnv, playManager)
	m := newTestManager(t)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(); err != nil || m.Running() {
		t.Errorf("stopping: %v, running: %t", err, m.Running())
	}
}

func TestExitedProcessIsRestarted(t *testing.T) {
	t.Setenv(playEnv, playManager)
	m := newTestManager(t)
	m.reviveAfter = time.Nanosecond
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, ended := m.PID(), m.Done()
	if err := m.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := m.ready(t.Context()); err != nil || m.PID() == first {
		t.Errorf("it was not started again (%v)", err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if m.Running() {
		t.Error("it was started again after its stop")
	}
}

func TestProcessStartedAgainIsNotRestarted(t *testing.T) {
	t.Setenv(playEnv, playManager)
	m := newTestManager(t)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := m.cmd
	if err := m.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := m.PID()
	m.revive(first)
	if m.PID() != second {
		t.Error("there are two of it now")
	}
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestExitedProcessIsNotAwaitedAndLogIsQuoted(t *testing.T) {
	t.Setenv(playEnv, playQuitter)
	m := newTestManager(t)
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
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the owner's output: %v", err)
	}
	address := strings.TrimSpace(line)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
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
	m, err := newManager(replica{binary: os.Args[0], files: files, webhook: loopback(0)}, &ports{})
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
func newTestManager(t *testing.T) *Manager {
	t.Helper()
	files, err := newRunDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m, err := newManager(replica{binary: os.Args[0], files: files, webhook: loopback(0)}, &ports{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
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
