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
	"errors"
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

	mu       sync.Mutex
	backends []*backend
	next     int
}

// Stats holds the counts of the connections that were meant for one backend.
type Stats struct {
	Address string
	// Served counts the connections that the backend accepted.
	Served int
	// Refused counts the connections it did not accept.
	Refused int
	// Open counts the connections that are open now.
	Open int
	// Withdrawn backends get no new connections.
	Withdrawn bool
}

type backend struct {
	// Guarded by Balancer.mu.
	stats Stats
	open  map[net.Conn]struct{}
}

// Listen returns a balancer that listens on a TCP address ("127.0.0.1:0" picks a port). It
// passes connections on once Serve runs.
func Listen(address string, backends ...string) (*Balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for the balancer: %w", err)
	}
	b := &Balancer{listener: listener}
	for _, address := range backends {
		b.Add(address)
	}
	return b, nil
}

// Addr returns the address that the balancer listens on.
func (b *Balancer) Addr() *net.TCPAddr {
	return b.listener.Addr().(*net.TCPAddr)
}

// Serve passes connections on until ctx is done. It returns when all
// connections are closed.
func (b *Balancer) Serve(ctx context.Context) error {
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
	b.backends = append(b.backends, &backend{stats: Stats{Address: address}, open: map[net.Conn]struct{}{}})
}

// Cut closes the open connections of a backend, with the requests that are under way.
func (b *Balancer) Cut(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, backend := range b.backends {
		for conn := range backend.open {
			if backend.stats.Address == address {
				_ = conn.Close()
			}
		}
	}
}

// Withdraw keeps new connections from a backend. Open connections stay open.
func (b *Balancer) Withdraw(address string) { b.setWithdrawn(address, true) }

// Restore gives a withdrawn backend new connections again.
func (b *Balancer) Restore(address string) { b.setWithdrawn(address, false) }

func (b *Balancer) setWithdrawn(address string, withdrawn bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, backend := range b.backends {
		if backend.stats.Address == address {
			backend.stats.Withdrawn = withdrawn
		}
	}
}

// Stats returns the counts of all backends, in the order in which they were added.
func (b *Balancer) Stats() []Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	stats := make([]Stats, len(b.backends))
	for i, backend := range b.backends {
		stats[i] = backend.stats
	}
	return stats
}

// carry joins a client's connection with one to a backend, until one of them
// ends or ctx is done. A client that no backend takes is cut off.
func (b *Balancer) carry(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	target, server, err := b.connect(ctx)
	if err != nil {
		return
	}
	defer b.untrackConn(target, server)

	cut := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer context.AfterFunc(ctx, cut)()
	var directions sync.WaitGroup
	directions.Go(func() { pipe(server, client, cut) })
	directions.Go(func() { pipe(client, server, cut) })
	directions.Wait()
}

// connect finds a backend that accepts a connection: the next in turn, or else
// one of those after it.
func (b *Balancer) connect(ctx context.Context) (*backend, net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, backend := range b.candidates() {
		conn, err := dialer.DialContext(ctx, "tcp", backend.stats.Address)
		if err == nil {
			b.trackConn(backend, conn)
			return backend, conn, nil
		}
		b.count(backend, func(s *Stats) { s.Refused++ })
	}
	return nil, nil, errors.New("no backend accepts connections")
}

// candidates lists the backends that are not withdrawn, the next in turn first.
func (b *Balancer) candidates() []*backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	var backends []*backend
	for i := range b.backends {
		backend := b.backends[(b.next+i)%len(b.backends)]
		if !backend.stats.Withdrawn {
			backends = append(backends, backend)
		}
	}
	b.next++
	return backends
}

func (b *Balancer) trackConn(target *backend, conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	target.stats.Served++
	target.stats.Open++
	target.open[conn] = struct{}{}
}

func (b *Balancer) untrackConn(target *backend, conn net.Conn) {
	_ = conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	target.stats.Open--
	delete(target.open, conn)
}

func (b *Balancer) count(backend *backend, change func(*Stats)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&backend.stats)
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
