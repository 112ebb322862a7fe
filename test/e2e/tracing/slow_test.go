package tracing

import (
	"net"
	"sync"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/collector"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// slow represents a collector behind a connection that can be made to hang, and to be refused.
type slow struct {
	*collector.Collector
	// Address is the address of the collector.
	Address string

	mu      sync.Mutex
	open    *sync.Cond
	hangs   bool
	refuses bool
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	behind, err := collector.Start(true)
	suite.Must(t, err)
	t.Cleanup(behind.Stop)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	suite.Must(t, err)
	s := &slow{Collector: behind, Address: listener.Addr().String()}
	s.open = sync.NewCond(&s.mu)
	go s.accept(listener)
	t.Cleanup(func() { s.setState(false, false); listener.Close() })
	return s
}

// setState makes the collector hang, or refuse connections.
func (s *slow) setState(hangs, refuses bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs, s.refuses = hangs, refuses
	s.open.Broadcast()
}

func (s *slow) accept(listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", s.Collector.Address)
		if err != nil {
			from.Close()
			continue
		}
		go s.pipe(to, from)
		go s.pipe(from, to)
	}
}

// pipe passes data on, but not while the collector hangs.
func (s *slow) pipe(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !s.passes() {
			return
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// passes waits while the collector hangs, and reports whether it takes connections then.
func (s *slow) passes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.hangs {
		s.open.Wait()
	}
	return !s.refuses
}
