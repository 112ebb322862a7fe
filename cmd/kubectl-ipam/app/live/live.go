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

// Live keeps a register up to date by watches.
type Live struct {
	clock clock.WithTicker
	feeds []*feed

	// building is held while a register is put together, so that only one is built at a time.
	building sync.Mutex

	mu          sync.Mutex
	state       state
	subscribers map[*Subscription]struct{}
	// wake triggers the publication of changes, and the judgment of the feeds.
	wake chan struct{}
	// behind holds the reason why the state is not in step, and moved is closed when that
	// changes.
	behind string
	moved  chan struct{}
	// poolsRead is closed when the pools have been read, and allRead when everything has been
	// read.
	poolsRead, allRead chan struct{}
}

func newLive(clock clock.WithTicker) *Live {
	return &Live{
		clock: clock, state: newState(), subscribers: map[*Subscription]struct{}{},
		wake: make(chan struct{}, 1), moved: make(chan struct{}),
		poolsRead: make(chan struct{}), allRead: make(chan struct{}),
	}
}

// New returns a register of the objects that the caller can read in a namespace, or in all of
// them.
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

// Begun waits until the pools have been read, or it is known that the caller cannot read them.
// It returns the reason why they could not be read at the first attempt, if there is one. Run
// is running.
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

// firstError returns the reason why pools could not be read, other than a lack of rights.
func (l *Live) firstError() error {
	for _, f := range l.feeds {
		if now := f.stand(); f.first && !f.optional && now.behind != nil && !apierrors.IsForbidden(now.behind) {
			return now.behind
		}
	}
	return nil
}

// PoolsRead returns a channel that is closed when the pools have been read, or when it is known
// that they cannot be read.
func (l *Live) PoolsRead() <-chan struct{} { return l.poolsRead }

// AllRead returns a channel that is closed when all that the caller can read has been read.
func (l *Live) AllRead() <-chan struct{} { return l.allRead }

// Behind returns, in words, the reason why the state is not in step; it is empty if the state
// is in step. The channel is closed when that changes.
func (l *Live) Behind() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.behind, l.moved
}

// change changes the state, with the lock held.
func (l *Live) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	l.rouse()
}

// rouse causes the changes to be published soon.
func (l *Live) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// judge takes over the condition of the feeds. The lock is held.
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

// inWords names for each reason the resources concerned, without the address of the request,
// which is long and adds nothing that a person does not know.
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
			text = "cannot read " + strings.Join(slices.Compact(slices.Sorted(slices.Values(whats))), ", ") + ": " + reason
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

// unread returns the resources that the caller cannot read.
func (l *Live) unread() []register.Unread {
	var all []register.Unread
	for _, f := range l.feeds {
		if now := f.stand(); now.unread != nil && !f.quiet {
			all = append(all, *now.unread)
		}
	}
	return all
}

// Unread describes in words the missing resources; the text is empty if nothing is missing.
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

// Register returns the present register. It is put together on the first request after a
// change, and does not change.
func (l *Live) Register() *register.Register {
	l.building.Lock()
	defer l.building.Unlock()
	l.mu.Lock()
	built := l.state.built
	var objects *register.Objects
	if built == nil {
		objects = l.state.objects(l.state.records, l.unread())
		// A change from here on causes another register to be put together.
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
