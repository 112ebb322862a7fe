package webhooks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// bare is a server that serves until its context is done, which is that of requests too.
type bare struct {
	webhook.Server
	hook    http.Handler
	serving chan context.Context
	failed  error
}

func (b *bare) Register(_ string, hook http.Handler) { b.hook = hook }

func (b *bare) Start(ctx context.Context) error {
	if b.failed != nil {
		return b.failed
	}
	b.serving <- ctx
	<-ctx.Done()
	return nil
}

// deadlines is a response whose connection takes a deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = at
	return nil
}

// asked asks the server once, and returns the answer and why the request was cut off.
func asked(ctx context.Context, server webhook.Server, of *bare, target string, during func(context.Context)) (answer *deadlines, cut error) {
	server.Register("/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		during(r.Context())
		cut = r.Context().Err()
	}))
	answer = &deadlines{ResponseRecorder: httptest.NewRecorder()}
	of.hook.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody))
	return answer, cut
}

func TestARequestIsAnsweredBeforeTheAPIServerGivesUp(t *testing.T) {
	for target, want := range map[string]time.Duration{
		"/":              4 * time.Second,
		"/?timeout=5s":   4 * time.Second,
		"/?timeout=30s":  29 * time.Second,
		"/?timeout=1s":   time.Second / 2,
		"/?timeout=-1s":  4 * time.Second,
		"/?timeout=0s":   4 * time.Second,
		"/?timeout=soon": 4 * time.Second,
	} {
		t.Run(target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := &bare{}
				began := time.Now()
				answer, cut := asked(t.Context(), Graceful(of), of, target, func(ctx context.Context) { <-ctx.Done() })
				if took := time.Since(began); took != want || !errors.Is(cut, context.DeadlineExceeded) {
					t.Errorf("it was cut off after %v: %v; want %v", took, cut, want)
				}
				if !answer.read.Equal(began.Add(want)) || answer.Header().Get("Connection") != "" {
					t.Errorf("it is read until %v, with the header %v", answer.read, answer.Header())
				}
			})
		})
	}
}

func TestARequestEndsWhenItsCallerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &bare{}
		ctx, leave := context.WithCancel(t.Context())
		began := time.Now()
		_, cut := asked(ctx, Graceful(of), of, "/", func(ctx context.Context) {
			leave()
			<-ctx.Done()
		})
		if !errors.Is(cut, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("it ended after %v: %v", time.Since(began), cut)
		}
	})
}

func TestAServerThatEndsAnswersWhatIsUnderWayAndForASecondWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &bare{serving: make(chan context.Context, 1)}
		server := Graceful(of)
		until, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Start(until) }()
		serving := <-of.serving
		_, cut := asked(serving, server, of, "/", func(context.Context) {
			end()
			began := time.Now()
			synctest.Wait()
			if answer, _ := asked(serving, server, of, "/", func(context.Context) {}); answer.Header().Get("Connection") != "close" {
				t.Errorf("a request while it ends is answered with the header %v", answer.Header())
			}
			if err := <-ended; err != nil || time.Since(began) != linger {
				t.Errorf("it ended after %v: %v; want %v", time.Since(began), err, linger)
			}
			synctest.Wait()
		})
		if cut != nil {
			t.Errorf("what was under way was cut off: %v", cut)
		}
	})
}

func TestAServerThatCannotServeSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("the port is taken")
		if err := Graceful(&bare{failed: failed}).Start(t.Context()); !errors.Is(err, failed) {
			t.Errorf("the error is %v", err)
		}
	})
}
