package proxy

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

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
