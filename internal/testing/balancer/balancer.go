// Package balancer implements a small TCP balancer: it replaces a Service of a cluster for
// operators that run as processes on one machine.
//
// Each connection goes to the next backend in turn; one that refuses it is skipped. A
// connection stays with its backend until either side closes it, as with kube-proxy, and a
// backend that dies takes its connections with it. A stopped (SIGSTOP) backend still accepts
// connections: the kernel does that for it. Withdraw it to play the readiness probe that would
// notice.
//
// Nothing here closes a connection early to spread the load. It could only cut off requests in
// flight, and it is not needed: the API server talks HTTP/1.1 to webhooks that are named by a
// Service, so that concurrent reviews use their own connections.
package balancer

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the wait for one backend. On loopback a connection is
// accepted or refused at once; only a full accept queue takes longer.
const dialTimeout = 2 * time.Second

// Balancer accepts connections on one address and passes them on to backends.
// Its methods may be called concurrently.
type Balancer struct {
	listener net.Listener
	// stop ends Serve, which then sends its result to served.
	stop   context.CancelFunc
	served chan error

	mu       sync.Mutex
	backends []*Stats
	next     int
	// open holds the connections to backends, with their addresses.
	open map[net.Conn]string
}

// Stats holds the counts of the connections that were meant for one backend.
type Stats struct {
	Address string
	// Served counts the connections that the backend accepted, Refused those that it did not.
	Served, Refused int
	// Withdrawn backends get no new connections.
	Withdrawn bool
}

// Start starts a balancer that listens on a TCP address ("127.0.0.1:0" picks a port).
func Start(address string, backends ...string) (*Balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for the balancer: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Balancer{listener: listener, stop: stop, served: make(chan error, 1), open: map[net.Conn]string{}}
	for _, address := range backends {
		b.Add(address)
	}
	go func() { b.served <- b.serve(ctx) }()
	return b, nil
}

// Stop closes all connections, and returns when they are closed.
func (b *Balancer) Stop() error {
	b.stop()
	return <-b.served
}

// Addr returns the address that the balancer listens on.
func (b *Balancer) Addr() *net.TCPAddr { return b.listener.Addr().(*net.TCPAddr) }

// serve passes connections on until ctx is done. It returns when all
// connections are closed.
func (b *Balancer) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = b.listener.Close() })
	defer stop()
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		client, err := b.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = client.Close()
			}
			return nil
		case err != nil:
			return fmt.Errorf("accepting connections: %w", err)
		}
		connections.Go(func() { b.carry(ctx, client) })
	}
}

// Add adds a backend, behind the existing ones.
func (b *Balancer) Add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, &Stats{Address: address})
}

// Cut closes the open connections of a backend, with the requests that are under way.
func (b *Balancer) Cut(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn, backend := range b.open {
		if backend == address {
			_ = conn.Close()
		}
	}
}

// Withdraw keeps new connections from a backend. Open connections stay open.
func (b *Balancer) Withdraw(address string) {
	b.change(address, func(s *Stats) { s.Withdrawn = true })
}

// Restore gives a withdrawn backend new connections again.
func (b *Balancer) Restore(address string) {
	b.change(address, func(s *Stats) { s.Withdrawn = false })
}

func (b *Balancer) change(address string, edit func(*Stats)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, backend := range b.backends {
		if backend.Address == address {
			edit(backend)
		}
	}
}

// Stats returns the counts of all backends, in the order in which they were added.
func (b *Balancer) Stats() []Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	stats := make([]Stats, len(b.backends))
	for i, backend := range b.backends {
		stats[i] = *backend
	}
	return stats
}

// carry joins a client's connection with one to a backend, until one of them
// ends or ctx is done. A client that no backend takes is cut off.
func (b *Balancer) carry(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server := b.connect(ctx)
	if server == nil {
		return
	}
	cut := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer func() {
		cut()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, server)
	}()
	defer context.AfterFunc(ctx, cut)()
	var directions sync.WaitGroup
	directions.Go(func() { pipe(server, client, cut) })
	directions.Go(func() { pipe(client, server, cut) })
	directions.Wait()
}

// connect returns a connection to a backend that accepts it: the next in turn, or else
// one of those after it; nil if there is none.
func (b *Balancer) connect(ctx context.Context) net.Conn {
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, address := range b.candidates() {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			b.change(address, func(s *Stats) {
				s.Served++
				b.open[conn] = address
			})
			return conn
		}
		b.change(address, func(s *Stats) { s.Refused++ })
	}
	return nil
}

// candidates lists the backends that are not withdrawn, the next in turn first.
func (b *Balancer) candidates() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var addresses []string
	for i := range b.backends {
		backend := b.backends[(b.next+i)%len(b.backends)]
		if !backend.Withdrawn {
			addresses = append(addresses, backend.Address)
		}
	}
	b.next++
	return addresses
}

// pipe copies one direction. Its end is passed on as the end of that direction;
// an error ends both.
func pipe(dst, src net.Conn, cut func()) {
	if _, err := io.Copy(dst, src); err != nil {
		cut()
		return
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
