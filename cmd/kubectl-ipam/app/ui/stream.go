package ui

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
)

const (
	// beatEvery is the time between two beats, which show that the connection holds.
	beatEvery = 5 * time.Second
	// takeWithin is the time in which a client must take a batch of messages, before it is cut
	// off.
	takeWithin = 10 * time.Second
)

// errSlow ends a stream whose client does not take the sent messages.
var errSlow = errors.New("the client reads too slowly")

// stream sends the register and its changes, one message a line.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	if !s.streams.TryAcquire(1) {
		refuse(w, http.StatusServiceUnavailable, command.ExitError, "too many pages are open: close some of them")
		return
	}
	defer s.streams.Release(1)
	w.Header().Set("Content-Type", "application/x-ndjson")
	to := http.NewResponseController(w)
	if err := to.SetReadDeadline(time.Time{}); err != nil { // ends the deadline of the request
		refuse(w, http.StatusInternalServerError, command.ExitError, err.Error())
		return
	}
	sending := &sending{server: s, out: w, control: to, beats: s.Clock.NewTicker(beatEvery)}
	defer sending.beats.Stop()
	if err := sending.send(r.Context()); errors.Is(err, errSlow) {
		panic(http.ErrAbortHandler) // so that the client does not take it for a regular end
	}
}

// sending holds the state of one stream.
type sending struct {
	*server
	out     http.ResponseWriter
	control *http.ResponseController
	beats   clock.Ticker
}

func (s *sending) send(ctx context.Context) error {
	hello := s.Hello
	hello.Type, hello.Now = "hello", s.now()
	if err := s.line(live.Line(hello)); err != nil {
		return err
	}
	if err := s.await(ctx, s.Live.PoolsRead()); err != nil {
		return err
	}
	select {
	case <-s.Live.AllRead():
	default: // sends the pools now, so that the page has something to show
		if err := errors.Join(s.line(live.Line(s.Live.Unread())), s.line(live.PoolsLine(s.Live.Pools()))); err != nil {
			return err
		}
		if err := s.await(ctx, s.Live.AllRead()); err != nil {
			return err
		}
	}
	subscription := s.Live.Subscribe()
	defer subscription.Close()
	if err := s.first(subscription); err != nil {
		return err
	}
	return s.follow(ctx, subscription)
}

// first sends the known state at the start.
func (s *sending) first(subscription *live.Subscription) error {
	err := errors.Join(s.line(live.Line(subscription.Unread)), s.line(live.PoolsLine(subscription.Pools)))
	for blocks := range subscription.Blocks() {
		if err != nil {
			return err
		}
		err = s.line(live.BlocksLine(blocks))
	}
	if err != nil {
		return err
	}
	if err := s.line(live.WaitingLine(subscription.Waiting)); err != nil {
		return err
	}
	return s.line(live.Line(map[string]string{"type": "ready"}))
}

// follow sends the changes.
func (s *sending) follow(ctx context.Context, subscription *live.Subscription) error {
	_, moved := s.Live.Behind()
	if err := s.beat(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case change, more := <-subscription.Changes():
			if !more {
				return errSlow
			}
			lines, err := change.Lines()
			if err != nil {
				return err
			}
			for _, line := range lines {
				if err := s.line(line, nil); err != nil {
					return err
				}
			}
			subscription.Taken(change)
		case <-s.beats.C():
			if err := s.beat(); err != nil {
				return err
			}
		case <-moved:
			_, moved = s.Live.Behind()
			if err := s.beat(); err != nil {
				return err
			}
		}
	}
}

// await sends beats until a channel is closed.
func (s *sending) await(ctx context.Context, closed <-chan struct{}) error {
	for {
		_, moved := s.Live.Behind()
		select {
		case <-closed:
			return nil
		default:
		}
		select {
		case <-closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-s.beats.C():
		}
		if err := s.beat(); err != nil {
			return err
		}
	}
}

func (s *sending) beat() error {
	behind, _ := s.Live.Behind()
	return s.line(live.Line(live.Beat{Type: "beat", Now: s.now(), Behind: behind}))
}

func (s *sending) now() time.Time { return s.Now().UTC().Truncate(time.Second) }

// line sends a message. It cuts off a client that does not take it within takeWithin.
func (s *sending) line(text []byte, err error) error {
	if err != nil {
		return err
	}
	if err := s.control.SetWriteDeadline(s.Clock.Now().Add(s.takeWithin)); err != nil {
		return err
	}
	if _, err := s.out.Write(text); err != nil {
		return errors.Join(errSlow, err)
	}
	if err := s.control.Flush(); err != nil {
		return errors.Join(errSlow, err)
	}
	return nil
}
