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
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Proxy passes requests on to an API server. Its methods may be called
// concurrently.
type Proxy struct {
	listener net.Listener
	handler  http.Handler

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

// Listen returns a proxy that listens on a TCP address ("127.0.0.1:0" picks a port) and leads
// to the API server of a configuration, under that configuration's identity. It passes requests
// on once Serve runs.
func Listen(address string, to *rest.Config) (*Proxy, error) {
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
	p := &Proxy{listener: listener, changed: make(chan struct{}), watches: map[*stream]struct{}{}}
	p.handler = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     through{p, transport},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the manager is to see a broken connection, not an answer
		},
	}
	return p, nil
}

// URL returns the URL at which the proxy answers.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Serve passes requests on until ctx is done.
func (p *Proxy) Serve(ctx context.Context) error {
	server := &http.Server{Handler: p.handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(p.listener); ctx.Err() == nil {
		return fmt.Errorf("serving the proxy: %w", err)
	}
	return nil
}

// Cut breaks the open watches, and returns their number.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.watches {
		s.cutOnce.Do(func() { close(s.cut) })
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
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-req.Context().Done():
			timer.Stop()
			return req.Context().Err()
		}
		timer.Stop()
	}
}
