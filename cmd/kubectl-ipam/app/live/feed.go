package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

const (
	// patience bounds the time for which a refusal of a resource that was read before is not
	// believed: an API server that starts refuses while it does not know the roles and the CRDs
	// yet.
	patience = 10 * time.Second
	// again bounds the time until rights that were granted are seen.
	again = 15 * time.Second
	// silent bounds the silence on a watch that has had a bookmark, which the API server sends
	// about every minute.
	silent = 150 * time.Second
	// deaf bounds the silence on a watch that has had no bookmark: a watch of a resource of
	// which nothing has changed since the API server began may have none. A Reflector watches
	// for ten minutes at most, and then begins again.
	deaf = 11 * time.Minute
	// listening holds the interval at which the silence of a watch is checked.
	listening = 10 * time.Second
)

// errStale and errWider end a watch that begins again: errStale in the same namespaces, and
// errWider in all namespaces.
var (
	errStale = errors.New("nothing was heard of it for too long")
	errWider = errors.New("it may be read in all namespaces")
)

// feed keeps one resource of the state up to date, if the caller can read it.
type feed struct {
	resource   string
	namespaced bool
	// namespace holds the namespace in which it is read if not in all of them.
	namespace string
	source    func(namespace string) (kubeutil.StreamingSource, error)
	store     cache.ReflectorStore
	// first resources are shown before the others are read.
	first bool
	// quiet resources are not listed as unread.
	quiet bool
	// optional resources need not be served.
	optional bool

	clock clock.WithTicker
	// noted is called when any field below has changed.
	noted func()

	mu sync.Mutex
	// decided is set when the resource has been read, or when it is known that it cannot be
	// read; synced when it has been read in the present namespaces.
	decided, synced bool
	// err holds the reason why the feed is behind; nil: it is in step.
	err error
	// refusedSince holds the time of the first refusal of a resource that was read before.
	refusedSince time.Time
	lastContact  time.Time
	marked       bool
	unread       *register.Unread
}

// run follows the resource until ctx is done.
func (f *feed) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.Discard()) // behind reports the errors that a Reflector would log
	var narrowed error
	namespace := ""
	for ctx.Err() == nil {
		err := f.follow(ctx, namespace, narrowed)
		switch {
		case ctx.Err() != nil, errors.Is(err, errStale):
		case errors.Is(err, errWider):
			namespace, narrowed = "", nil
		case namespace == "" && f.namespaced && f.namespace != "" && apierrors.IsForbidden(err):
			namespace, narrowed = f.namespace, err
		default: // neither in all namespaces nor in one
			f.nothing(err)
			pause(ctx, f.clock, again)
			namespace, narrowed = "", nil
		}
	}
}

// follow lists and watches in one namespace or in all, and returns the reason why it has
// stopped.
func (f *feed) follow(ctx context.Context, namespace string, narrowed error) error {
	from, err := f.source(namespace)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.synced, f.refusedSince = false, time.Time{}
	f.mu.Unlock()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go f.listen(ctx, stop)
	if narrowed != nil {
		go f.widen(ctx, stop)
	}
	notifyingStore := &contactStore{ReflectorStore: f.store, feed: f, unread: f.lack(namespace, narrowed)}
	cache.NewReflectorWithOptions(f.observed(from, stop), nil, notifyingStore, cache.ReflectorOptions{
		Name: f.resource, Clock: f.clock,
		Backoff: &wait.Backoff{Duration: 300 * time.Millisecond, Cap: 3 * time.Second, Steps: 20, Factor: 1.6, Jitter: 0.3},
	}).RunWithContext(ctx)
	return context.Cause(ctx)
}

// lack returns the unread rest of the resource while it is read in one namespace alone.
func (f *feed) lack(namespace string, err error) *register.Unread {
	if namespace == "" {
		return nil
	}
	return &register.Unread{Resource: f.resource, Namespace: namespace, Err: err}
}

// observed returns a source that notifies the feed of the answers of the API server.
func (f *feed) observed(from kubeutil.StreamingSource, stop context.CancelCauseFunc) kubeutil.StreamingSource {
	return kubeutil.StreamingSource{ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, options)
			f.answered(ctx, "list", err, stop)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watching, err := from.WatchWithContext(ctx, options)
			f.answered(ctx, "watch", err, stop)
			return watching, err
		},
	}}
}

// answered notes an answer of the API server. It stops a watch that is refused for good.
func (f *feed) answered(ctx context.Context, verb string, err error, stop context.CancelCauseFunc) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.noted()
	f.lastContact, f.marked = f.clock.Now(), false
	if err == nil {
		if verb == "watch" || f.synced {
			f.err, f.refusedSince = nil, time.Time{}
		}
		return
	}
	f.err = &requestError{verb, f.resource, err}
	if !apierrors.IsForbidden(err) && (!f.optional || !apierrors.IsNotFound(err)) {
		f.refusedSince = time.Time{}
		return
	}
	if f.refusedSince.IsZero() {
		f.refusedSince = f.lastContact
	}
	if !f.synced || f.lastContact.Sub(f.refusedSince) >= patience {
		stop(err)
	}
}

// requestError holds the reason why a resource cannot be listed or watched.
type requestError struct {
	verb, resource string
	err            error
}

// Error implements error.
func (e *requestError) Error() string {
	return fmt.Sprintf("cannot %s %s: %v", e.verb, e.resource, e.err)
}

// Unwrap returns the error of the API server, or of the connection to it.
func (e *requestError) Unwrap() error { return e.err }

// listen ends a watch that is silent for too long.
func (f *feed) listen(ctx context.Context, stop context.CancelCauseFunc) {
	isStale := func(context.Context) (bool, error) { return f.isStale(), nil }
	if wait.PollUntilContextCancel(ctx, listening, false, isStale) == nil {
		stop(errStale)
	}
}

// isStale reports whether the watch is silent for too long, and notes it.
func (f *feed) isStale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	limit := deaf
	if f.marked {
		limit = silent
	}
	if !f.synced || f.err != nil || f.clock.Since(f.lastContact) < limit {
		return false
	}
	f.err = fmt.Errorf("nothing was heard of %s for %s: it is listed again", f.resource, limit)
	f.noted()
	return true
}

// widen ends the watch in one namespace when the caller can read all namespaces.
func (f *feed) widen(ctx context.Context, stop context.CancelCauseFunc) {
	from, err := f.source("")
	if err != nil {
		return
	}
	mayList := func(ctx context.Context) (bool, error) {
		_, err := from.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	}
	if wait.PollUntilContextCancel(ctx, again, false, mayList) == nil {
		stop(errWider)
	}
}

// nothing removes all objects of the resource from the state: the caller cannot read it, or it
// is not served.
func (f *feed) nothing(err error) {
	if failed := f.store.Replace(nil, ""); failed != nil {
		err = errors.Join(err, failed)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided, f.synced, f.err = true, false, nil
	f.unread = &register.Unread{Resource: f.resource, Err: err}
	switch {
	case f.optional && apierrors.IsNotFound(err):
		f.unread = nil
	case !apierrors.IsForbidden(err):
		f.err = err
	}
	f.noted()
}

// contactStore notifies the feed of the objects that a Reflector delivers.
type contactStore struct {
	cache.ReflectorStore
	feed   *feed
	unread *register.Unread
}

var _ cache.ReflectorBookmarkStore = &contactStore{}

// Add implements cache.ReflectorStore.
func (s *contactStore) Add(obj any) error {
	s.feed.recordContact(false)
	return s.ReflectorStore.Add(obj)
}

// Update implements cache.ReflectorStore.
func (s *contactStore) Update(obj any) error {
	s.feed.recordContact(false)
	return s.ReflectorStore.Update(obj)
}

// Delete implements cache.ReflectorStore.
func (s *contactStore) Delete(obj any) error {
	s.feed.recordContact(false)
	return s.ReflectorStore.Delete(obj)
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *contactStore) Bookmark(string) error {
	s.feed.recordContact(true)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *contactStore) Replace(objs []any, version string) error {
	if err := s.ReflectorStore.Replace(objs, version); err != nil {
		return err
	}
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided, f.synced, f.err, f.refusedSince = true, true, nil, time.Time{}
	f.lastContact, f.marked, f.unread = f.clock.Now(), false, s.unread
	f.noted()
	return nil
}

func (f *feed) recordContact(bookmark bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastContact, f.marked = f.clock.Now(), f.marked || bookmark
}

// stand holds the condition of a feed.
type stand struct {
	decided bool
	behind  error
	unread  *register.Unread
}

func (f *feed) stand() stand {
	f.mu.Lock()
	defer f.mu.Unlock()
	return stand{f.decided, f.err, f.unread}
}

// Sources reads with the rights of the caller.
type Sources struct {
	config     *rest.Config
	httpClient *http.Client
	scheme     *runtime.Scheme
	records    *register.Source
}

// NewSources returns Sources for a configuration. The scheme knows the kinds of
// ipam.cadastre.dev and ipam.cluster.x-k8s.io.
func NewSources(config *rest.Config, reader client.Reader, scheme *runtime.Scheme) (*Sources, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	records, err := register.NewSource(config, reader, scheme)
	if err != nil {
		return nil, err
	}
	return &Sources{config: config, httpClient: httpClient, scheme: scheme, records: records}, nil
}

// feeds returns the feeds of a Live, the pools first.
func (s *Sources) feeds(l *Live) []*feed {
	notBound := fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.ClaimBound))
	return []*feed{
		{resource: "ippools", first: true, store: l.poolStore(ipam.PoolKindIPPool), source: source[v1alpha1.IPPool](s, kubeutil.Selection{Resource: "ippools"}, dropped)},
		{resource: "localippools", first: true, namespaced: true, store: l.poolStore(ipam.PoolKindLocalIPPool), source: source[v1alpha1.LocalIPPool](s, kubeutil.Selection{Resource: "localippools"}, dropped)},
		// The API server refuses these before it looks whether it has them, so a refusal is not shown.
		{resource: "inclusterippools", first: true, namespaced: true, optional: true, quiet: true, store: l.poolStore(ipam.PoolKindInClusterIPPool), source: source[incluster.InClusterIPPool](s, kubeutil.Selection{Resource: "inclusterippools"}, dropped)},
		{resource: "globalinclusterippools", first: true, optional: true, quiet: true, store: l.poolStore(ipam.PoolKindGlobalInClusterIPPool), source: source[incluster.GlobalInClusterIPPool](s, kubeutil.Selection{Resource: "globalinclusterippools"}, dropped)},
		{resource: "ipallocations", namespaced: true, store: l.recordStore(), source: func(namespace string) (kubeutil.StreamingSource, error) {
			return s.records.Records(namespace, readRecord), nil
		}},
		{resource: "ipclaims", namespaced: true, store: l.claimStore(), source: source[v1alpha1.IPClaim](s, kubeutil.Selection{Resource: "ipclaims", Fields: notBound}, dropped)},
		{resource: "ipclaims", namespaced: true, quiet: true, store: l.clusterClaimStore(), source: source[v1alpha1.IPClaim](s, kubeutil.Selection{Resource: "ipclaims", Labels: convert.LabelClusterName}, identified)},
		{resource: "ipclasses", quiet: true, store: l.classStore(), source: source[v1alpha1.IPClass](s, kubeutil.Selection{Resource: "ipclasses"}, dropped)},
		{resource: "ipaddressclaims", namespaced: true, optional: true, store: l.addressClaimStore(), source: source[ipamv1.IPAddressClaim](s, kubeutil.Selection{Resource: "ipaddressclaims"}, short)},
	}
}

// source returns a function that makes a source of the selected objects in one namespace or in all.
func source[T any, P interface {
	*T
	client.Object
}](s *Sources, selection kubeutil.Selection, transform cache.TransformFunc) func(namespace string) (kubeutil.StreamingSource, error) {
	return func(namespace string) (kubeutil.StreamingSource, error) {
		selection.Namespace = namespace
		return kubeutil.NewStreamingSource[T, P](s.config, s.httpClient, s.scheme, selection, transform)
	}
}
