package proxy

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// lines implements a server of watches: it sends the lines of the test.
type lines struct {
	*httptest.Server
	send chan string
	// ended receives a value for each watch that has ended.
	ended chan struct{}
}

func serve(t *testing.T) (*Proxy, *lines) {
	t.Helper()
	l := &lines{send: make(chan string), ended: make(chan struct{}, 10)}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = fmt.Fprintln(w, "list")
			return
		}
		w.WriteHeader(http.StatusOK)
		defer func() { l.ended <- struct{}{} }()
		for {
			w.(http.Flusher).Flush()
			select {
			case line := <-l.send:
				_, _ = fmt.Fprintln(w, line)
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(l.Close)
	p, err := Start("127.0.0.1:0", &rest.Config{Host: l.URL})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, p.Stop()) })
	return p, l
}

// get returns the lines of a request's answer; the channel is closed at its end.
func get(t *testing.T, url string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	answer, err := http.DefaultClient.Do(req) //nolint:bodyclose // closed by the reader
	must.Succeed(t, err)
	got := make(chan string)
	go func() {
		defer close(got)
		defer answer.Body.Close()
		for scan := bufio.NewScanner(answer.Body); scan.Scan(); {
			got <- strings.TrimSpace(scan.Text())
		}
	}()
	return got
}

func expect(t *testing.T, got <-chan string, want string) {
	t.Helper()
	select {
	case line := <-got:
		if line != want {
			t.Errorf("got %q, want %q", line, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing came, want %q", want)
	}
}

func expectNothing(t *testing.T, got <-chan string, within time.Duration) {
	t.Helper()
	select {
	case line, ok := <-got:
		t.Errorf("got %q (open: %t), want nothing yet", line, ok)
	case <-time.After(within):
	}
}

func TestProxy(t *testing.T) {
	t.Run("passes watches and lists on", func(t *testing.T) {
		p, l := serve(t)
		expect(t, get(t, p.URL()+"/things"), "list")
		watch := get(t, p.URL()+"/things?watch=true")
		l.send <- "one"
		expect(t, watch, "one")
	})
	t.Run("cuts a watch, and the next one goes on", func(t *testing.T) {
		p, l := serve(t)
		watch := get(t, p.URL()+"/things?watch=true")
		l.send <- "one"
		expect(t, watch, "one")
		if n := p.Cut(); n != 1 {
			t.Errorf("%d watches were open, want 1", n)
		}
		expect(t, watch, "") // closed
		<-l.ended            // or it would take the next one's lines
		again := get(t, p.URL()+"/things?watch=1")
		l.send <- "two"
		expect(t, again, "two")
	})
	t.Run("delivers late, and in order", func(t *testing.T) {
		p, l := serve(t)
		watch := get(t, p.URL()+"/things?watch=true")
		p.Delay(300 * time.Millisecond)
		l.send <- "one"
		l.send <- "two"
		expectNothing(t, watch, 200*time.Millisecond)
		expect(t, watch, "one")
		expect(t, watch, "two")
	})
	t.Run("delivers nothing, and then all of it", func(t *testing.T) {
		p, l := serve(t)
		watch := get(t, p.URL()+"/things?watch=true")
		p.Silence(true)
		l.send <- "one"
		expectNothing(t, watch, 200*time.Millisecond)
		p.Silence(false)
		expect(t, watch, "one")
	})
	t.Run("holds lists of one resource back, until it is released", func(t *testing.T) {
		p, _ := serve(t)
		p.HoldReads("things", time.Hour)
		expect(t, get(t, p.URL()+"/others"), "list")
		done := make(chan struct{})
		go func() {
			defer close(done)
			expect(t, get(t, p.URL()+"/things"), "list")
		}()
		select {
		case <-done:
			t.Error("it came at once")
		case <-time.After(100 * time.Millisecond):
		}
		p.HoldReads("", 0)
		<-done
	})
	t.Run("holds the next create of a resource back, and no other", func(t *testing.T) {
		p, _ := serve(t)
		held := p.HoldCreate("team/things")
		create := func(path string) <-chan error {
			done := make(chan error, 1)
			go func() {
				answer, err := http.Post(p.URL()+path, "application/json", nil) //nolint:noctx // it ends with the server
				if err == nil {
					err = answer.Body.Close()
				}
				done <- err
			}()
			return done
		}
		answered := func(done <-chan error) {
			t.Helper()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("a create was not answered")
			}
		}
		answered(create("/other/things"))
		first := create("/team/things")
		<-held.Arrived()
		answered(create("/team/things"))
		select {
		case err := <-first:
			t.Errorf("it was not held back: %v", err)
		default:
		}
		held.Release()
		answered(first)
	})
}
