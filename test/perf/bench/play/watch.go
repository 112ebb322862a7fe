package play

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// object holds the fields that the scenarios read in any object.
type object struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Phase      string `json:"phase"`
		AddressRef struct {
			Name string `json:"name"`
		} `json:"addressRef"`
	} `json:"status"`
}

// done reports whether an object has all that its maker wanted.
type done func(*object) bool

func created(*object) bool { return true }

func bound(o *object) bool { return o.Status.Phase == "Bound" }

func addressed(o *object) bool { return o.Status.AddressRef.Name != "" }

// sightings watches the objects of a collection and notes when each was first
// seen done.
type sightings struct {
	test done
	stop func()

	mu       sync.Mutex
	at       map[string]time.Time
	progress chan struct{}
	err      error
}

// awaitAtMost bounds the wait for what follows from a round.
const awaitAtMost = 2 * time.Minute

// sight begins to watch a collection. The API server begins a watch with all
// existing objects; so a watch that ends, such as one of a kind that was just defined, is
// begun again and misses nothing.
func (w *World) sight(ctx context.Context, path string, test done) (*sightings, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, err := w.events(ctx, path)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &sightings{test: test, at: map[string]time.Time{}, progress: make(chan struct{}, 1), stop: cancel}
	go func() {
		for s.read(ctx, body); ctx.Err() == nil; s.read(ctx, body) {
			if body, err = w.events(ctx, path); err != nil {
				s.fail(err)
				return
			}
		}
	}()
	return s, nil
}

// events begins a watch, as soon as the API server lets it: it does not while it
// prepares for a kind that was just defined.
func (w *World) events(ctx context.Context, path string) (body io.ReadCloser, err error) {
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, awaitAtMost, true, func(ctx context.Context) (bool, error) {
		// The poll's own context ends with it, the watch's does not.
		response, err := w.watch.open(context.WithoutCancel(ctx), http.MethodGet, path+"?watch=true", nil)
		switch {
		case err != nil:
			return false, err
		case response.StatusCode == http.StatusOK:
			body = response.Body
			return true, nil
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			return false, nil
		}
		return false, fmt.Errorf("watching %s: %s", path, response.Status)
	})
	return body, err
}

// read notes the objects of a watch, until it ends or ctx is done.
func (s *sightings) read(ctx context.Context, body io.ReadCloser) {
	defer context.AfterFunc(ctx, func() { _ = body.Close() })()
	defer func() { _ = body.Close() }()
	for events := json.NewDecoder(body); ; {
		var event struct{ Object object }
		if err := events.Decode(&event); err != nil {
			return
		}
		if event.Object.Metadata.Name != "" && s.test(&event.Object) {
			s.see(event.Object.Metadata.Name)
		}
	}
}

func (s *sightings) see(name string) {
	s.mu.Lock()
	if _, ok := s.at[name]; !ok {
		s.at[name] = time.Now()
	}
	s.mu.Unlock()
	s.tell()
}

func (s *sightings) fail(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.tell()
}

func (s *sightings) tell() {
	select {
	case s.progress <- struct{}{}:
	default:
	}
}

// await waits until so many are done and returns when the last one was.
func (s *sightings) await(ctx context.Context, count int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitAtMost)
	defer cancel()
	for {
		seen, last, err := s.state()
		switch {
		case seen >= count:
			return last, nil
		case err != nil:
			return last, err
		}
		select {
		case <-s.progress:
		case <-ctx.Done():
			return last, fmt.Errorf("%d of %d were done: %w", seen, count, ctx.Err())
		}
	}
}

// awaitName waits until one object is done and returns when it was.
func (s *sightings) awaitName(ctx context.Context, name string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitAtMost)
	defer cancel()
	for {
		s.mu.Lock()
		at, ok := s.at[name]
		err := s.err
		s.mu.Unlock()
		switch {
		case ok:
			return at, nil
		case err != nil:
			return at, err
		}
		select {
		case <-s.progress:
		case <-ctx.Done():
			return at, fmt.Errorf("%s was not done: %w", name, ctx.Err())
		}
	}
}

func (s *sightings) state() (seen int, last time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.at {
		if at.After(last) {
			last = at
		}
	}
	return len(s.at), last, s.err
}
