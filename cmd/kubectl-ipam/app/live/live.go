package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
)

// Live is the register by watch.
type Live struct {
	clock clock.WithTicker
	feeds []*feed

	// building is held while a register is put together, so that one is at a time.
	building sync.Mutex

	mu          sync.Mutex
	state       state
	subscribers map[*Subscription]struct{}
	// wake has the changes published, or how the feeds stand judged.
	wake chan struct{}
	// behind is why what was read is not in step, and moved is closed when that changes.
	behind string
	moved  chan struct{}
	// poolsRead and allRead are closed when the pools, and everything, has been read.
	poolsRead, allRead chan struct{}
}

func newLive(clock clock.WithTicker) *Live {
	return &Live{
		clock: clock, state: newState(), subscribers: map[*Subscription]struct{}{},
		wake: make(chan struct{}, 1), moved: make(chan struct{}),
		poolsRead: make(chan struct{}), allRead: make(chan struct{}),
	}
}

// New makes the register that the caller may read in a namespace, or in all of them.
func New(sources *Sources, namespace string, clock clock.WithTicker) *Live {
	l := newLive(clock)
	l.feeds = sources.feeds(l)
	for _, f := range l.feeds {
		f.namespace, f.clock, f.noted = namespace, clock, l.rouse
	}
	return l
}

// Run reads and watches until ctx is done.
func (l *Live) Run(ctx context.Context) {
	var feeds sync.WaitGroup
	for _, f := range l.feeds {
		feeds.Go(func() { f.run(ctx) })
	}
	l.publishAll(ctx)
	feeds.Wait()
}

// Begun waits until the pools have been read, or may not be. The error is why they could
// not be read at the first attempt. Run is running.
func (l *Live) Begun(ctx context.Context) error {
	for {
		_, moved := l.Behind()
		select {
		case <-l.poolsRead:
			return nil
		default:
		}
		if err := l.firstError(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.poolsRead:
			return nil
		case <-moved:
		}
	}
}

// firstError is why pools could not be read, without a lack of rights.
func (l *Live) firstError() error {
	for _, f := range l.feeds {
		if now := f.stand(); f.first && now.behind != nil && !apierrors.IsForbidden(now.behind) {
			return now.behind
		}
	}
	return nil
}

// PoolsRead is closed when the pools have been read, or may not be.
func (l *Live) PoolsRead() <-chan struct{} { return l.poolsRead }

// AllRead is closed when all that the caller may read has been read.
func (l *Live) AllRead() <-chan struct{} { return l.allRead }

// Behind says in words why what was read is not in step, and is empty where it is. The
// channel is closed when that changes.
func (l *Live) Behind() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.behind, l.moved
}

// change changes the state.
func (l *Live) change(do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.rouse()
	return do()
}

// rouse has what has changed published soon.
func (l *Live) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// judge takes over how the feeds stand. The lock is held.
func (l *Live) judge() {
	pools, all := true, true
	var behind []error
	for _, f := range l.feeds {
		now := f.stand()
		all = all && now.decided
		pools = pools && (now.decided || !f.first)
		if now.behind != nil {
			behind = append(behind, now.behind)
		}
	}
	l.setBehind(inWords(behind))
	if pools {
		done(l.poolsRead)
	}
	if all {
		done(l.allRead)
	}
}

// inWords says for each reason what it concerns, without the address of the request, which
// says to a person only what they know, at length.
func inWords(errs []error) string {
	concerned := map[string][]string{}
	for _, err := range errs {
		what, reason := "", err
		if failed, ok := errors.AsType[*requestError](err); ok {
			what, reason = failed.resource, failed.err
		}
		if request, ok := errors.AsType[*url.Error](reason); ok {
			reason = request.Err
		}
		concerned[reason.Error()] = append(concerned[reason.Error()], what)
	}
	var texts []string
	for _, reason := range slices.Sorted(maps.Keys(concerned)) {
		text := reason
		if whats := slices.DeleteFunc(concerned[reason], func(what string) bool { return what == "" }); len(whats) > 0 {
			text = "cannot read " + strings.Join(slices.Sorted(slices.Values(whats)), ", ") + ": " + reason
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

func (l *Live) setBehind(text string) {
	if text == l.behind {
		return
	}
	l.behind = text
	close(l.moved)
	l.moved = make(chan struct{})
}

// done closes a channel that may be closed already. The lock is held.
func done(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// unread is what the caller may not read.
func (l *Live) unread() []register.Unread {
	var all []register.Unread
	for _, f := range l.feeds {
		if now := f.stand(); now.unread != nil && !f.quiet {
			all = append(all, *now.unread)
		}
	}
	return all
}

// Unread says in words what is missing; empty where nothing is.
func (l *Live) Unread() Unread {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unreadMessage()
}

func (l *Live) unreadMessage() Unread {
	message := Unread{Type: "unread", Resources: []UnreadResource{}}
	unread := l.unread()
	var texts []string
	if len(unread) > 0 {
		texts = append(texts, register.Explain(unread))
	}
	for _, u := range unread {
		message.Resources = append(message.Resources, UnreadResource{u.Resource, u.Namespace})
	}
	invalid := slices.Collect(maps.Values(l.state.invalid))
	for _, err := range slices.Concat(invalid, l.state.shown.register.Invalid) {
		texts = append(texts, err.Error())
	}
	slices.Sort(texts[min(1, len(texts)):])
	message.Text = strings.Join(texts, "; ")
	if most := 4096; len(message.Text) > most {
		message.Text = fmt.Sprintf("%s… (%d messages)", message.Text[:most], len(texts))
	}
	return message
}

// Register is what is known now. It is put together when it is asked for after something has
// changed, and does not change.
func (l *Live) Register() *register.Register {
	l.building.Lock()
	defer l.building.Unlock()
	l.mu.Lock()
	built := l.state.built
	var objects *register.Objects
	if built == nil {
		objects = l.state.objects(l.state.records, l.unread())
		// What changes from here on has it put together anew.
		l.state.built = &register.Register{}
	}
	mark := l.state.built
	l.mu.Unlock()
	if built != nil {
		return built
	}
	built = register.Build(objects)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.built == mark {
		l.state.built = built
	}
	return built
}
