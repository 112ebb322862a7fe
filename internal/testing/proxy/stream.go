package proxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

var errCut = errors.New("the watch was cut")

// stream holds the body of an open watch.
type stream struct {
	ctx    context.Context //nolint:containedctx // the context of the request with this body
	body   io.ReadCloser
	proxy  *Proxy
	chunks chan chunk
	rest   chunk

	cut     chan struct{}
	cutOnce sync.Once
}

// chunk holds the data that came in one piece, and the time when it came.
type chunk struct {
	data []byte
	err  error
	at   time.Time
}

func (p *Proxy) follow(ctx context.Context, body io.ReadCloser) *stream {
	s := &stream{ctx: ctx, body: body, proxy: p, chunks: make(chan chunk, 4096), cut: make(chan struct{})}
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
		case <-s.cut:
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
			return 0, s.ctx.Err()
		case <-s.cut:
			return 0, errCut
		}
		if err := s.untilDue(s.rest.at); err != nil {
			return 0, err
		}
	}
	n := copy(into, s.rest.data)
	s.rest.data = s.rest.data[n:]
	if len(s.rest.data) == 0 {
		err := s.rest.err
		return n, err
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
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-s.ctx.Done():
			timer.Stop()
			return s.ctx.Err()
		case <-s.cut:
			timer.Stop()
			return errCut
		}
		timer.Stop()
	}
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.proxy.mu.Lock()
	delete(s.proxy.watches, s)
	s.proxy.mu.Unlock()
	return s.body.Close()
}
