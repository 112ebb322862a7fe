package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

var resource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "ipallocations"}

// apiServer implements only the part of an API server that the protocol needs: objects with UIDs
// and revisions, preconditions, finalizers, and a log of events in order.
type apiServer struct {
	mu       sync.Mutex
	revision int64
	created  int
	objects  map[types.NamespacedName]*v1alpha1.IPAllocation
	log      []watch.Event
	// grown is closed and replaced when the log grows.
	grown chan struct{}
	own   map[types.UID]bool
}

// newAPIServer returns an API server that stores the own records of these pools.
func newAPIServer(pools ...ipam.Pool) *apiServer {
	s := &apiServer{objects: map[types.NamespacedName]*v1alpha1.IPAllocation{}, grown: make(chan struct{}), own: map[types.UID]bool{}}
	for _, pool := range pools {
		obj := convert.Allocation(ipam.Record{
			Name: ipam.Name{Namespace: "system", Name: "ippool." + pool.Key.Name}, Block: pool.CIDR, Pool: pool.Home,
			Holder: convert.HolderOfPool(pool.Key), Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		})
		if err := s.create(obj); err != nil {
			panic(err)
		}
		s.own[obj.UID] = true
	}
	return s
}

// records returns all records except the pools' own records that were stored at the beginning.
func (s *apiServer) records() []v1alpha1.IPAllocation {
	return slices.DeleteFunc(s.list().Items, func(obj v1alpha1.IPAllocation) bool { return s.own[obj.UID] })
}

// write stores or removes an object, and logs that.
func (s *apiServer) write(kind watch.EventType, obj *v1alpha1.IPAllocation) {
	s.revision++
	obj.ResourceVersion = strconv.FormatInt(s.revision, 10)
	key := client.ObjectKeyFromObject(obj)
	if kind == watch.Deleted {
		delete(s.objects, key)
	} else {
		s.objects[key] = obj
	}
	s.log = append(s.log, watch.Event{Type: kind, Object: obj.DeepCopy()})
	close(s.grown)
	s.grown = make(chan struct{})
}

func (s *apiServer) create(obj *v1alpha1.IPAllocation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[client.ObjectKeyFromObject(obj)] != nil {
		return apierrors.NewAlreadyExists(resource, obj.Name)
	}
	s.created++
	obj.UID = types.UID(fmt.Sprintf("uid-%d", s.created))
	s.write(watch.Added, obj.DeepCopy())
	obj.ResourceVersion = strconv.FormatInt(s.revision, 10)
	return nil
}

func (s *apiServer) delete(obj client.Object, p *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.objects[client.ObjectKeyFromObject(obj)]
	switch {
	case there == nil:
		return apierrors.NewNotFound(resource, obj.GetName())
	case p.UID != nil && *p.UID != there.UID, p.ResourceVersion != nil && *p.ResourceVersion != there.ResourceVersion:
		return apierrors.NewConflict(resource, obj.GetName(), errors.New("precondition"))
	}
	next := there.DeepCopy()
	if len(next.Finalizers) == 0 {
		s.write(watch.Deleted, next)
		return nil
	}
	now := metav1.Now()
	next.DeletionTimestamp = &now
	s.write(watch.Modified, next)
	return nil
}

// patch changes an object on the conditions that the patch states: the tests of a JSON
// patch, or the UID and the version in a merge patch.
func (s *apiServer) patch(obj client.Object, patch client.Patch) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.objects[client.ObjectKeyFromObject(obj)]
	if there == nil {
		return apierrors.NewNotFound(resource, obj.GetName())
	}
	next, err := applyPatch(there, patch.Type(), data)
	switch {
	case err != nil:
		return apierrors.NewInvalid(schema.GroupKind{}, obj.GetName(), nil)
	case next.UID != there.UID, next.ResourceVersion != there.ResourceVersion:
		return apierrors.NewConflict(resource, obj.GetName(), errors.New("changed"))
	case next.DeletionTimestamp != nil && len(next.Finalizers) == 0:
		s.write(watch.Deleted, next)
	case equality.Semantic.DeepEqual(next, there): // and its version stays
	default:
		s.write(watch.Modified, next)
	}
	next.DeepCopyInto(obj.(*v1alpha1.IPAllocation))
	return nil
}

func applyPatch(obj *v1alpha1.IPAllocation, kind types.PatchType, patch []byte) (*v1alpha1.IPAllocation, error) {
	document, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if kind == types.JSONPatchType {
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(patch); err == nil {
			document, err = operations.Apply(document)
		}
	} else {
		document, err = jsonpatch.MergePatch(document, patch)
	}
	next := &v1alpha1.IPAllocation{}
	return next, errors.Join(err, json.Unmarshal(document, next))
}

func (s *apiServer) list() *v1alpha1.IPAllocationList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &v1alpha1.IPAllocationList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.revision, 10)}}
	for _, obj := range s.objects {
		list.Items = append(list.Items, *obj.DeepCopy())
	}
	return list
}

// next waits for the first event after a revision, and returns it.
func (s *apiServer) next(ctx context.Context, after int64) (watch.Event, bool) {
	for {
		s.mu.Lock()
		grown := s.grown
		if after < int64(len(s.log)) { // one event a revision
			event := s.log[after]
			s.mu.Unlock()
			return event, true
		}
		s.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return watch.Event{}, false
		}
	}
}

// link implements one replica's connection to the API server: late, and now and then broken.
type link struct {
	client.Client // only the methods below are called
	server        *apiServer

	mu     sync.Mutex
	random *rand.Rand
}

// chance reports true once in n times.
func (l *link) chance(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.IntN(n) == 0
}

// fate draws the outcome of a create call: one in 25 goes wrong, in one of four ways.
func (l *link) fate() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fate(l.random.IntN(100))
}

type fate int

const (
	refusedByQuota fate = iota
	lostOnTheWay
	createdLate
	answerLost
)

// dawdle waits a little while, and now and then for long, as a paused process does.
func (l *link) dawdle() {
	l.mu.Lock()
	d := time.Duration(l.random.Int64N(int64(3 * time.Millisecond)))
	if l.random.IntN(500) == 0 {
		d = time.Duration(l.random.Int64N(int64(8 * time.Second)))
	}
	l.mu.Unlock()
	time.Sleep(d)
}

// Create implements client.Writer. Once in a while the answer gets lost, with
// the object created before, after, or not at all.
func (l *link) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	record := obj.(*v1alpha1.IPAllocation)
	l.dawdle()
	switch l.fate() {
	case refusedByQuota:
		return apierrors.NewForbidden(resource, obj.GetName(), errors.New("quota"))
	case lostOnTheWay:
		return errors.New("connection reset before the request arrived")
	case createdLate:
		late := record.DeepCopy()
		go func() {
			l.dawdle()
			_ = l.server.create(late) // the caller has gone
		}()
		return context.DeadlineExceeded
	case answerLost:
		_ = l.server.create(record.DeepCopy())
		return errors.New("connection reset before the answer arrived")
	}
	err := l.server.create(record)
	l.dawdle()
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// Delete implements client.Writer.
func (l *link) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	l.dawdle()
	if l.chance(50) {
		return errors.New("connection reset")
	}
	return l.server.delete(obj, options.Preconditions)
}

// Patch implements client.Writer.
func (l *link) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	l.dawdle()
	return l.server.patch(obj, patch)
}

// watcher lists and watches over the link, as a reflector does.
type watcher struct{ *link }

// IsWatchListSemanticsUnSupported makes the reflector list first, then watch.
func (watcher) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (w watcher) List(metav1.ListOptions) (runtime.Object, error) {
	w.dawdle()
	if w.chance(20) {
		return nil, errors.New("connection reset")
	}
	return w.server.list(), nil
}

// Watch implements cache.Watcher: events in order, late, until the connection is
// cut or falls silent.
func (w watcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if w.chance(10) { // compacted: the reflector lists again
		return nil, apierrors.NewResourceExpired("too old")
	}
	return w.server.watch(options, func(ctx context.Context) bool {
		if w.chance(4000) { // silent: connected, but no event arrives
			<-ctx.Done()
			return false
		}
		if w.chance(2000) {
			return false // cut
		}
		if w.chance(10) {
			w.dawdle()
		}
		return true
	})
}

type connection struct {
	events chan watch.Event
	cancel func()
}

// Stop implements watch.Interface.
func (c *connection) Stop() { c.cancel() }

// ResultChan implements watch.Interface.
func (c *connection) ResultChan() <-chan watch.Event { return c.events }

// Get implements client.Reader. The play has no claims.
func (l *link) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("connection reset")
}

// watch delivers the events after a resource version, each once pass allows it.
func (s *apiServer) watch(options metav1.ListOptions, pass func(context.Context) bool) (watch.Interface, error) {
	after, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan watch.Event)
	go func() {
		defer close(events)
		for ; ; after++ {
			event, ok := s.next(ctx, after)
			if !ok || !pass(ctx) {
				return
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return &connection{events: events, cancel: cancel}, nil
}
