package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// view holds the state of a page: the messages of the stream, put together.
type view struct {
	mu sync.Mutex
	viewState
	// changed is closed, and another one put in its place, at each message.
	changed chan struct{}
	raw     strings.Builder
}

// viewState holds a state of a view.
type viewState struct {
	order   []string
	hello   live.Hello
	unread  live.Unread
	pools   map[string]live.Pool
	blocks  map[string]live.Block
	claims  map[string]live.Waiting
	behind  string
	ready   bool
	beats   int
	streams int
}

// message represents any message of the stream.
type message struct {
	Type   string          `json:"type"`
	Pools  json.RawMessage `json:"pools"`
	Blocks json.RawMessage `json:"blocks"`
	Claims json.RawMessage `json:"claims"`
	Behind string          `json:"behind"`
}

// views reads the stream until the test ends.
func (c *page) views() *view {
	c.t.Helper()
	v := &view{changed: make(chan struct{})}
	v.begin()
	ctx, end := context.WithCancel(context.Background())
	resp, err := http.DefaultClient.Do(c.request(ctx, http.MethodGet, "/api/stream", nil))
	suite.Must(c.t, err)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		c.t.Fatalf("/api/stream: %s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if err := v.take(line); err != nil {
				c.t.Errorf("%s: %v", line, err)
			}
		}
	})
	c.t.Cleanup(func() { end(); reading.Wait(); _ = resp.Body.Close() })
	return v
}

func (v *view) begin() {
	v.viewState = viewState{pools: map[string]live.Pool{}, blocks: map[string]live.Block{}, claims: map[string]live.Waiting{}, streams: v.streams + 1}
}

// take takes over a message.
func (v *view) take(line string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer func() { close(v.changed); v.changed = make(chan struct{}) }()
	v.raw.WriteString(line)
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		return err
	}
	if !v.ready || len(v.order) == 0 {
		v.order = append(v.order, m.Type)
	}
	switch m.Type {
	case "hello":
		return json.Unmarshal([]byte(line), &v.hello)
	case "unread":
		v.unread = live.Unread{}
		return json.Unmarshal([]byte(line), &v.unread)
	case "pools":
		return put(m.Pools, v.pools, func(p live.Pool) string { return p.ID })
	case "blocks":
		return put(m.Blocks, v.blocks, func(b live.Block) string { return b.ID })
	case "waiting":
		return put(m.Claims, v.claims, func(c live.Waiting) string { return c.ID })
	case "gone":
		var removal live.Gone
		if err := json.Unmarshal([]byte(line), &removal); err != nil {
			return err
		}
		remove(v.pools, removal.Pools)
		remove(v.blocks, removal.Blocks)
		remove(v.claims, removal.Claims)
	case "ready":
		v.ready = true
	case "beat":
		v.behind, v.beats = m.Behind, v.beats+1
	}
	return nil
}

func put[T any](text json.RawMessage, target map[string]T, id func(T) string) error {
	var all []T
	err := json.Unmarshal(text, &all)
	for _, one := range all {
		target[id(one)] = one
	}
	return err
}

func remove[T any](from map[string]T, ids []string) {
	for _, id := range ids {
		delete(from, id)
	}
}

// awaits waits until the seen state fulfills the condition.
func (v *view) awaits(t testing.TB, what string, condition func(viewState) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for {
		v.mu.Lock()
		yes, changed := condition(v.viewState), v.changed
		v.mu.Unlock()
		if yes {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			v.mu.Lock()
			defer v.mu.Unlock()
			t.Fatalf("waited in vain until %s; behind: %q, ready: %t, %d pools, %d blocks, %d claims, unread: %q\norder: %v",
				what, v.behind, v.ready, len(v.pools), len(v.blocks), len(v.claims), v.unread.Text, v.order)
		}
	}
}

// isReady waits until the first state has been sent.
func (v *view) isReady(t testing.TB) *view {
	t.Helper()
	v.awaits(t, "the first state has been sent", func(s viewState) bool { return s.ready })
	return v
}

// text returns all that was sent.
func (v *view) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.raw.String()
}

// holds returns the block of a holder, and whether there is one.
func (s viewState) holds(holder live.Object) (live.Block, bool) {
	for _, block := range s.blocks {
		if block.Holder == holder {
			return block, true
		}
	}
	return live.Block{}, false
}

// any reports whether a block meets a condition.
func (s viewState) any(meets func(live.Block) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s.blocks)), meets)
}
