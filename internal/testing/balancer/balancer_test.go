package balancer_test

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/testing/balancer"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

func TestConnectionsGoToBackendsInTurn(t *testing.T) {
	one, two := newNamed(t, "one"), newNamed(t, "two")
	b := serve(t, one.Addr().String(), two.Addr().String())

	var got []string
	for range 4 {
		got = append(got, ask(t, b))
	}
	if diff := cmp.Diff([]string{"one", "two", "one", "two"}, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestRefusingBackendIsSkipped(t *testing.T) {
	dead, alive := newNamed(t, "dead"), newNamed(t, "alive")
	b := serve(t, dead.Addr().String(), alive.Addr().String())
	_ = dead.Close()

	for range 3 {
		if got := ask(t, b); got != "alive" {
			t.Errorf("answered by %q, want the one that is alive", got)
		}
	}
	want := []balancer.Stats{
		{Address: dead.Addr().String(), Refused: 2},
		{Address: alive.Addr().String(), Served: 3},
	}
	if diff := cmp.Diff(want, b.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestWithdrawnBackendGetsNothingUntilRestored(t *testing.T) {
	one, two := newNamed(t, "one"), newNamed(t, "two")
	b := serve(t, one.Addr().String(), two.Addr().String())

	b.Withdraw(one.Addr().String())
	for range 3 {
		if got := ask(t, b); got != "two" {
			t.Errorf("answered by %q while it was withdrawn", got)
		}
	}
	b.Restore(one.Addr().String())
	answers := map[string]bool{ask(t, b): true, ask(t, b): true}
	if !answers["one"] {
		t.Error("a restored backend got no connection")
	}
}

func TestClientIsDisconnectedWithoutBackend(t *testing.T) {
	dead := newNamed(t, "dead")
	b := serve(t, dead.Addr().String())
	_ = dead.Close()

	if got := ask(t, b); got != "" {
		t.Errorf("answered %q, want a closed connection", got)
	}
}

func TestStopEndsConnections(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = silent.Close() }()
	b, err := balancer.Start("127.0.0.1:0", silent.Addr().String())
	must.Succeed(t, err)
	client := dial(t, b)
	accepted, err := silent.Accept()
	must.Succeed(t, err)
	defer func() { _ = accepted.Close() }()
	if err := b.Stop(); err != nil {
		t.Errorf("serving: %v", err)
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}

// newNamed starts a backend that answers a line with its name.
func newNamed(t *testing.T, name string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					_, _ = io.WriteString(conn, name)
				}
			}()
		}
	}()
	return listener
}

func serve(t *testing.T, backends ...string) *balancer.Balancer {
	t.Helper()
	b, err := balancer.Start("127.0.0.1:0", backends...)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return b
}

func dial(t *testing.T, b *balancer.Balancer) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", b.Addr().String())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must.Succeed(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return conn
}

// ask sends a line on a new connection and returns all of the answer.
func ask(t *testing.T, b *balancer.Balancer) string {
	t.Helper()
	conn := dial(t, b)
	_, _ = io.WriteString(conn, "who are you?\n")
	answer, _ := io.ReadAll(conn)
	return string(answer)
}
