// Package proxy stands between one manager and the API server, and treats its watches as
// networks do: it cuts them, delivers them late, or delivers nothing while the connection stays
// open. Lists can be held back, as a slow API server does to a process that has just started;
// so can one create, to let other things happen between a decision and the write that follows
// from it.
//
// It listens without TLS on loopback and authenticates to the API server in the manager's
// place, so that it can distinguish requests.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Proxy passes requests on to an API server. Its methods may be called
// concurrently.
type Proxy struct {
	listener net.Listener
	server   *http.Server
	served   chan error // the result of the server

	mu sync.Mutex
	// weather is the treatment of open watches; changed is closed when it is replaced.
	weather weather
	changed chan struct{}
	watches map[*stream]struct{}
	// creates are held back when they come.
	creates []*HeldCreate
}

// weather holds the state of the network.
type weather struct {
	delay  time.Duration
	silent bool
	// held is the time for which lists of a resource are held back.
	held     time.Duration
	resource string
}

// Start starts a proxy that listens on a TCP address ("127.0.0.1:0" picks a port) and leads to
// the API server of a configuration, under that configuration's identity.
func Start(address string, to *rest.Config) (*Proxy, error) {
	to = rest.CopyConfig(to)
	to.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(to)
	if err != nil {
		return nil, fmt.Errorf("connecting the proxy: %w", err)
	}
	target, err := url.Parse(to.Host)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for the proxy: %w", err)
	}
	p := &Proxy{listener: listener, served: make(chan error, 1), changed: make(chan struct{}), watches: map[*stream]struct{}{}}
	handler := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     through{p, transport},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the manager is to see a broken connection, not an answer
		},
	}
	p.server = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

// Stop breaks all connections, and returns an error if the proxy has failed before.
func (p *Proxy) Stop() error {
	err := p.server.Close()
	if failed := <-p.served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serving the proxy: %w", failed))
	}
	return err
}

// URL returns the URL at which the proxy answers.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Cut breaks the open watches, and returns their number.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.watches {
		s.cut(errCut)
	}
	return len(p.watches)
}

// Delay delays everything on a watch by that time; 0 ends that.
func (p *Proxy) Delay(by time.Duration) { p.change(func(w *weather) { w.delay = by }) }

// Silence stops the delivery on all watches, while the connections stay open; the held events
// arrive when it ends.
func (p *Proxy) Silence(silent bool) { p.change(func(w *weather) { w.silent = silent }) }

// HoldReads holds back for that time each list of a resource ("ippools"), streamed or not, or
// each read of one object ("ippools/a"); 0 ends that.
func (p *Proxy) HoldReads(resource string, by time.Duration) {
	p.change(func(w *weather) { w.held, w.resource = by, resource })
}

func (p *Proxy) change(edit func(*weather)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edit(&p.weather)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) now() (weather, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather, p.changed
}

// through implements the transport to the API server.
type through struct {
	*Proxy
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t through) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	if req.Method == http.MethodGet && (!watch || query.Get("sendInitialEvents") == "true") {
		if err := t.hold(req); err != nil {
			return nil, err
		}
	}
	if req.Method == http.MethodPost {
		if err := t.holdCreate(req); err != nil {
			return nil, err
		}
	}
	response, err := t.next.RoundTrip(req)
	if err == nil && watch && response.StatusCode == http.StatusOK {
		response.Body = t.follow(req.Context(), response.Body)
	}
	return response, err
}

// hold waits for as long as the requested list is held back.
func (t through) hold(req *http.Request) error {
	began := time.Now()
	for {
		w, changed := t.now()
		left := w.held - time.Since(began)
		if left <= 0 || !strings.HasSuffix(req.URL.Path, "/"+w.resource) {
			return nil
		}
		if err := pass(req.Context(), left, changed); err != nil {
			return err
		}
	}
}

// pass waits for that time, or until the weather changes.
func pass(ctx context.Context, left time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

var errCut = errors.New("the watch was cut")

// stream holds the body of an open watch.
type stream struct {
	ctx    context.Context //nolint:containedctx // that of the request with this body, until the watch is cut
	cut    context.CancelCauseFunc
	body   io.ReadCloser
	proxy  *Proxy
	chunks chan chunk
	rest   chunk
}

// chunk holds the data that came in one piece, and the time when it came.
type chunk struct {
	data []byte
	err  error
	at   time.Time
}

func (p *Proxy) follow(ctx context.Context, body io.ReadCloser) *stream {
	ctx, cut := context.WithCancelCause(ctx)
	s := &stream{ctx: ctx, cut: cut, body: body, proxy: p, chunks: make(chan chunk, 4096)}
	p.mu.Lock()
	p.watches[s] = struct{}{}
	p.mu.Unlock()
	go s.pump()
	return s
}

// pump reads the data that the API server sends.
func (s *stream) pump() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := s.body.Read(buffer)
		c := chunk{data: append([]byte(nil), buffer[:n]...), err: err, at: time.Now()}
		select {
		case s.chunks <- c:
		case <-s.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader: it hands on the data that is due.
func (s *stream) Read(into []byte) (int, error) {
	if len(s.rest.data) == 0 && s.rest.err == nil {
		select {
		case s.rest = <-s.chunks:
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
		if err := s.untilDue(s.rest.at); err != nil {
			return 0, err
		}
	}
	n := copy(into, s.rest.data)
	s.rest.data = s.rest.data[n:]
	if len(s.rest.data) == 0 {
		return n, s.rest.err
	}
	return n, nil
}

// untilDue waits until the data that came at that time may be handed on.
func (s *stream) untilDue(at time.Time) error {
	for {
		w, changed := s.proxy.now()
		left := w.delay - time.Since(at)
		if left <= 0 && !w.silent {
			return nil
		}
		if w.silent {
			left = time.Hour
		}
		if err := pass(s.ctx, left, changed); err != nil {
			return err
		}
	}
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.proxy.mu.Lock()
	delete(s.proxy.watches, s)
	s.proxy.mu.Unlock()
	s.cut(nil)
	return s.body.Close()
}

// HeldCreate represents one create call that does not reach the API server before it is
// released.
type HeldCreate struct {
	proxy    *Proxy
	resource string
	arrived  chan struct{}
	released chan struct{}
	once     sync.Once
}

// HoldCreate holds back the next create of a resource, and no other: the next POST to a path
// that ends with it, such as "namespaces/team/ipallocations". Release releases it. If the
// caller gives up before, the create is never sent.
func (p *Proxy) HoldCreate(resource string) *HeldCreate {
	h := &HeldCreate{proxy: p, resource: resource, arrived: make(chan struct{}), released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates = append(p.creates, h)
	return h
}

// Arrived returns a channel that is closed when the create has come, and waits.
func (h *HeldCreate) Arrived() <-chan struct{} { return h.arrived }

// Release passes the create on; if none has come, none will be held back. It may be called more
// than once.
func (h *HeldCreate) Release() {
	h.proxy.mu.Lock()
	defer h.proxy.mu.Unlock()
	h.proxy.creates = slices.DeleteFunc(h.proxy.creates, func(other *HeldCreate) bool { return other == h })
	h.once.Do(func() { close(h.released) })
}

// holdCreate waits while the create is held back.
func (p *Proxy) holdCreate(req *http.Request) error {
	h := p.takeHeld(req.URL.Path)
	if h == nil {
		return nil
	}
	close(h.arrived)
	select {
	case <-h.released:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

// takeHeld removes the first HeldCreate that waits for a create of the path from the list, so
// that it holds no second one.
func (p *Proxy) takeHeld(path string) *HeldCreate {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(p.creates, func(h *HeldCreate) bool { return strings.HasSuffix(path, "/"+h.resource) })
	if at < 0 {
		return nil
	}
	h := p.creates[at]
	p.creates = slices.Delete(p.creates, at, at+1)
	return h
}
