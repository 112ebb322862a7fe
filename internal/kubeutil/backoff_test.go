package kubeutil

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// passes runs the passes of a controller with a Backoff, on the clock of a bubble.
type passes struct {
	*Backoff
	queue Queue
	began time.Time
	// err returns the result of a pass of an object, and during is called in each. mu guards err,
	// during and at: the test holds it, except while it sleeps.
	mu     sync.Mutex
	err    func(reconcile.Request) error
	during func(reconcile.Request)
	// at holds the times of the passes, by the object.
	at map[string][]time.Duration
}

// runPasses calls do in a bubble, with a controller that does nothing.
func runPasses(t *testing.T, do func(*passes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &passes{
			Backoff: NewBackoff(clock.RealClock{}, "test", nil), began: time.Now(), at: map[string][]time.Duration{},
			err:    func(reconcile.Request) error { return nil },
			during: func(reconcile.Request) {},
		}
		p.queue = workqueue.NewTypedRateLimitingQueue(p.Limiter())
		if err := p.Start(t.Context(), p.queue); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.work(t.Context())
		}()
		p.mu.Lock()
		do(p)
		p.mu.Unlock()
		p.queue.ShutDown()
		<-ended
	})
}

// work runs passes as controller-runtime does.
func (p *passes) work(ctx context.Context) {
	reconciler := p.Passes(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at[req.Name] = append(p.at[req.Name], time.Since(p.began))
		p.during(req)
		return reconcile.Result{}, p.err(req)
	}))
	for {
		req, over := p.queue.Get()
		if over {
			return
		}
		switch result, err := reconciler.Reconcile(ctx, req); {
		case err != nil:
			p.queue.AddRateLimited(req)
		default:
			p.queue.Forget(req)
			if result.RequeueAfter > 0 {
				p.queue.AddAfter(req, result.RequeueAfter)
			}
		}
		p.queue.Done(req)
	}
}

func (p *passes) add(names ...string) {
	for _, name := range names {
		p.queue.Add(RequestFor("team", name))
	}
}

// sleep lets the controller work for d, and returns once it is idle.
func (p *passes) sleep(d time.Duration) {
	p.mu.Unlock()
	defer p.mu.Lock()
	time.Sleep(d)
	synctest.Wait()
}

// count returns the number of passes.
func (p *passes) count() int {
	n := 0
	for _, at := range p.at {
		n += len(at)
	}
	return n
}

func overQuota(req reconcile.Request) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, req.Name, errors.New("exceeded quota: none, requested: count/ipaddresses=1, used: count/ipaddresses=3, limited: count/ipaddresses=3"))
}

func TestFailedPassDoesNotCauseNextPass(t *testing.T) {
	var milliseconds []time.Duration
	for _, ms := range []int{0, 5, 15, 35, 75, 125, 205, 365, 685, 1325, 2325, 3325} {
		milliseconds = append(milliseconds, time.Duration(ms)*time.Millisecond)
	}
	for name, during := range map[string]func(*passes, reconcile.Request){
		"it causes no event":                   func(*passes, reconcile.Request) {},
		"it causes an event each time":         func(p *passes, req reconcile.Request) { p.queue.Add(req) },
		"it causes another event a bit later":  func(p *passes, req reconcile.Request) { p.queue.AddAfter(req, time.Millisecond) },
		"the object is patched all the time":   func(p *passes, req reconcile.Request) { go runPatchingClient(p, req) },
		"it is reported, and causes one event": func(p *passes, req reconcile.Request) { p.queue.Add(req) },
	} {
		t.Run(name, func(t *testing.T) {
			runPasses(t, func(p *passes) {
				p.err = overQuota
				if name == "it is reported, and causes one event" {
					p.err = func(req reconcile.Request) error { return Reported(overQuota(req)) }
				}
				p.during = func(req reconcile.Request) { during(p, req) }
				p.add("a")
				p.sleep(10 * time.Second)
				if got := p.at["a"]; len(got) > 20 || !slices.Equal(got[:5], milliseconds[:5]) {
					t.Errorf("%d passes in 10 s, at %v; want a few, at %v and about each second", len(got), got, milliseconds)
				}
				p.err = func(reconcile.Request) error { return nil }
				p.during = func(reconcile.Request) {}
				before := len(p.at["a"])
				p.sleep(probeEvery)
				if got := len(p.at["a"]) - before; got == 0 {
					t.Error("it is not tried within a second of the end of the cause")
				}
				if len(p.failed)+len(p.causes) > 0 {
					t.Errorf("%d objects and %d causes are kept", len(p.failed), len(p.causes))
				}
			})
		})
	}
}

// runPatchingClient runs a client that changes the object for a while.
func runPatchingClient(p *passes, req reconcile.Request) {
	for range 100 {
		time.Sleep(3 * time.Millisecond)
		p.queue.Add(req)
	}
}

func TestManyRefusedObjectsShareBackOffAndRecoverAtOnce(t *testing.T) {
	runPasses(t, func(p *passes) {
		p.err = overQuota
		for i := range 1000 {
			p.add(fmt.Sprint("c", i))
		}
		p.sleep(time.Millisecond)
		if got := p.count(); got != 1000 {
			t.Fatalf("%d passes at first, want one each", got)
		}
		p.sleep(10 * time.Second)
		if got := p.count() - 1000; got < 10 || got > 220 {
			t.Errorf("%d more passes in 10 s, want 20 a second at most", got)
		}
		p.err = func(reconcile.Request) error { return nil }
		served := p.count()
		p.sleep(probeEvery)
		if got := p.count() - served; got != 1000 {
			t.Errorf("%d passes within a second of the end of the cause, want one each", got)
		}
	})
}

// TestSuccessCausesFewRetriesWhileCauseLasts covers a pass that succeeds because its object is
// deleted, which is no evidence for the others.
func TestSuccessCausesFewRetriesWhileCauseLasts(t *testing.T) {
	runPasses(t, func(p *passes) {
		deleted := map[string]bool{}
		p.err = func(req reconcile.Request) error {
			if deleted[req.Name] {
				return nil
			}
			return overQuota(req)
		}
		for i := range 1000 {
			p.add(fmt.Sprint("c", i))
		}
		p.sleep(time.Minute)
		before := p.count()
		for i := range 100 {
			name := fmt.Sprint("c", i)
			deleted[name] = true
			p.add(name)
			p.sleep(100 * time.Millisecond)
		}
		if got := p.count() - before; got > 600 {
			t.Errorf("%d passes while 100 of 1000 were deleted in 10 s, want few", got)
		}
	})
}

func TestFailedObjectIsRetriedWithinOneMinute(t *testing.T) {
	runPasses(t, func(p *passes) {
		p.err = overQuota
		const objects = 3000
		for i := range objects {
			p.add(fmt.Sprint("c", i))
		}
		p.sleep(15 * time.Minute)
		since := map[string]int{}
		for name, at := range p.at {
			since[name] = len(at)
		}
		p.sleep(lastDelay + time.Second)
		for name, at := range p.at {
			if len(at) == since[name] {
				t.Fatalf("%s was not tried for a minute, of %d objects", name, objects)
			}
		}
	})
}

func TestEventBringsNextPassForward(t *testing.T) {
	runPasses(t, func(p *passes) {
		fixed := false
		p.err = func(req reconcile.Request) error {
			if fixed && req.Name == "c500" {
				return nil
			}
			return overQuota(req)
		}
		for i := range 1000 {
			p.add(fmt.Sprint("c", i))
		}
		p.sleep(5 * time.Minute)
		fixed = true
		p.add("c500")
		p.sleep(probeEvery)
		if p.failed[RequestFor("team", "c500")] != nil {
			t.Error("an object that was changed is not tried within a second")
		}
	})
}

func TestCauseDelaysOnlyItsOwnObjects(t *testing.T) {
	runPasses(t, func(p *passes) {
		p.err = overQuota
		for i := range 1000 {
			p.add(fmt.Sprint("c", i))
		}
		p.sleep(5 * time.Minute)
		conflicts := 0
		p.err = func(req reconcile.Request) error {
			if conflicts++; req.Name == "other" && conflicts < 3 {
				return apierrors.NewConflict(schema.GroupResource{Resource: "ipaddressclaims"}, req.Name, errors.New("newer"))
			}
			if req.Name == "other" {
				return nil
			}
			return overQuota(req)
		}
		p.add("other")
		p.sleep(200 * time.Millisecond)
		if p.failed[RequestFor("team", "other")] != nil {
			t.Errorf("it was tried at %v, and not again after the conflicts", p.at["other"])
		}
	})
}

func TestPanickingPassFails(t *testing.T) {
	b := NewBackoff(clock.RealClock{}, "test", nil)
	if err := b.Start(t.Context(), workqueue.NewTypedRateLimitingQueue(b.Limiter())); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = b.Passes(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { panic("nil") })).
			Reconcile(t.Context(), RequestFor("team", "a"))
	}()
	if len(b.failed) != 1 {
		t.Errorf("%d objects failed, want one", len(b.failed))
	}
}

func TestBudgetIsSpentPerNameAndRefills(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Unix(0, 0))
	b := NewBudget(now, 2, 0.5)
	spend := func(name string) string {
		refused, ok := b.Spend(name)
		return fmt.Sprint(refused, ok)
	}
	for i, want := range []string{"0 true", "0 true", "0 false", "0 false", "0 false"} {
		if got := spend("a"); got != want {
			t.Errorf("try %d: %s, want %s", i, got, want)
		}
	}
	if got := spend("b"); got != "0 true" {
		t.Errorf("another name: %s, want its own budget", got)
	}
	now.SetTime(now.Now().Add(2 * time.Second))
	if got := spend("a"); got != "3 true" {
		t.Errorf("after a while: %s, want one more, and the 3 that were refused", got)
	}
	if got := spend("a"); got != "0 false" {
		t.Errorf("after that: %s, want nothing more", got)
	}
}

func TestBudgetNamesAreBounded(t *testing.T) {
	b := NewBudget(testclock.NewFakePassiveClock(time.Unix(0, 0)), 1, 1)
	for i := range 3 * budgetNames {
		b.Spend(fmt.Sprint(i))
	}
	if len(b.names) > budgetNames {
		t.Errorf("%d names are kept, want %d at most", len(b.names), budgetNames)
	}
}

func TestThrottleSchedules(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Unix(0, 0))
	throttle := NewThrottle(time.Second, clock)
	for _, step := range []struct {
		at, want time.Duration
		why      string
	}{
		{0, 0, "the first is written at once"},
		{100 * time.Millisecond, 900 * time.Millisecond, "the second waits for its turn"},
		{400 * time.Millisecond, 600 * time.Millisecond, "the third shares that turn"},
		{1000 * time.Millisecond, time.Second, "a call after that turn waits for the next"},
		{5 * time.Second, 0, "after a quiet time nothing waits"},
	} {
		clock.SetTime(time.Unix(0, 0).Add(step.at))
		if got := throttle.Delay("pool"); got != step.want {
			t.Errorf("at %s: waits %s, want %s: %s", step.at, got, step.want, step.why)
		}
	}
	if got := throttle.Delay("another"); got != 0 {
		t.Errorf("another waits %s, want 0: each has its own turns", got)
	}
}

func TestThrottleIsTakenOncePerInterval(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Unix(0, 0))
	throttle := NewThrottle(time.Second, clock)
	for _, step := range []struct {
		at, want time.Duration
		why      string
	}{
		{0, 0, "the first is taken at once"},
		{300 * time.Millisecond, 700 * time.Millisecond, "the next is an interval later"},
		{400 * time.Millisecond, 600 * time.Millisecond, "a call in vain changes nothing"},
		{1000 * time.Millisecond, 0, "it is taken when it has come"},
		{1500 * time.Millisecond, 500 * time.Millisecond, "and the one after it counts from there"},
	} {
		clock.SetTime(time.Unix(0, 0).Add(step.at))
		if got := throttle.Take("pool"); got != step.want {
			t.Errorf("at %s: %s to go, want %s: %s", step.at, got, step.want, step.why)
		}
	}
}

func TestWritesOfPassAreCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			to.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	over := &http.Client{Transport: CountingWrites(http.DefaultTransport)}
	for name, c := range map[string]struct {
		method, path string
		err          error
		want         string
	}{
		"it reads":                         {http.MethodGet, "/", nil, PassUnchanged},
		"it writes":                        {http.MethodPatch, "/", nil, PassChanged},
		"its write is refused":             {http.MethodPost, "/refused", nil, PassUnchanged},
		"it asks for a right":              {http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, PassUnchanged},
		"it fails":                         {http.MethodPost, "/refused", errors.New("refused"), PassFailed},
		"it writes, and fails":             {http.MethodPatch, "/", errors.New("refused"), PassFailed},
		"it fails, which the status has":   {http.MethodGet, "/", Reported(errors.New("refused")), PassFailed},
		"it fails, and is not tried again": {http.MethodGet, "/", reconcile.TerminalError(errors.New("refused")), PassFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var got passList
			b := NewBackoff(clock.RealClock{}, "test", &got)
			if err := b.Start(t.Context(), workqueue.NewTypedRateLimitingQueue(b.Limiter())); err != nil {
				t.Fatal(err)
			}
			_, _ = b.Passes(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				request, err := http.NewRequestWithContext(ctx, c.method, server.URL+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := over.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				return reconcile.Result{}, c.err
			})).Reconcile(t.Context(), RequestFor("team", "a"))
			if len(got) != 1 || got[0] != "test "+c.want {
				t.Errorf("counted are %v, want one that %s", got, c.want)
			}
		})
	}
}

// passList holds the passes that were counted.
type passList []string

func (l *passList) Passed(controller, result string) { *l = append(*l, controller+" "+result) }
