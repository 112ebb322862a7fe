package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
)

// cluster implements only the part of an API server that lists and watches need.
type cluster struct {
	*testing.T
	server *httptest.Server
	scheme *runtime.Scheme

	mu      sync.Mutex
	objects map[string]map[string]client.Object // by resource and name
	// events holds all events so far: their number is the version.
	events []event
	// eventSignal is closed, and another one put in its place, at each event.
	eventSignal chan struct{}
	// held lists of a resource wait until it is closed.
	held map[string]chan struct{}
}

// event represents one event of a watch.
type event struct {
	resource string
	Type     string        `json:"type"`
	Object   client.Object `json:"object"`
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, scheme: runtime.NewScheme(), objects: map[string]map[string]client.Object{}, eventSignal: make(chan struct{}), held: map[string]chan struct{}{}}
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, ipamv1.AddToScheme, incluster.AddToScheme} {
		if err := add(c.scheme); err != nil {
			t.Fatal(err)
		}
	}
	c.server = httptest.NewServer(c)
	t.Cleanup(func() { c.server.CloseClientConnections(); c.server.Close() })
	return c
}

// live runs the register of the cluster, until the test ends.
func (c *cluster) live() *live.Live {
	c.Helper()
	sources, err := live.NewSources(&rest.Config{Host: c.server.URL}, nil, c.scheme)
	if err != nil {
		c.Fatal(err)
	}
	l := live.New(sources, "team", clock.RealClock{})
	var running sync.WaitGroup
	running.Go(func() { l.Run(c.Context()) })
	c.Cleanup(running.Wait)
	return l
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	c.mu.Lock()
	held := c.held[resource]
	c.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "true" {
		c.watch(w, r, resource)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": fmt.Sprint(len(c.events))}}
	items := []client.Object{}
	for _, obj := range c.objects[resource] {
		items = append(items, obj)
	}
	list["items"] = items
	_ = json.NewEncoder(w).Encode(list)
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request, resource string) {
	to := http.NewResponseController(w)
	_ = to.Flush() // as the header does
	since, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		c.Error(err)
		return
	}
	for {
		c.mu.Lock()
		signal, events := c.eventSignal, c.events[since:]
		c.mu.Unlock()
		for _, e := range events {
			since++
			if e.resource == resource && (json.NewEncoder(w).Encode(e) != nil || to.Flush() != nil) {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-signal:
		}
	}
}

// put stores objects, new ones or others of their names.
func (c *cluster) put(objects ...client.Object) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, obj := range objects {
		kind, err := apiutil.GVKForObject(obj, c.scheme)
		if err != nil {
			c.Fatal(err)
		}
		resource := strings.ToLower(kind.Kind) + "s"
		obj.GetObjectKind().SetGroupVersionKind(kind)
		obj.SetUID(types.UID("uid-of-" + resource + "-" + obj.GetName()))
		obj.SetGeneration(int64(len(c.events)))
		if at := obj.GetCreationTimestamp(); at.IsZero() {
			obj.SetCreationTimestamp(metav1.Unix(1_800_000_000, 0))
		}
		if c.objects[resource] == nil {
			c.objects[resource] = map[string]client.Object{}
		}
		what := "ADDED"
		if c.objects[resource][obj.GetName()] != nil {
			what = "MODIFIED"
		}
		c.objects[resource][obj.GetName()] = obj
		c.tell(resource, what, obj)
	}
}

// remove deletes an object.
func (c *cluster) remove(resource, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	obj := c.objects[resource][name]
	delete(c.objects[resource], name)
	c.tell(resource, "DELETED", obj)
}

// tell adds an event.
func (c *cluster) tell(resource, what string, obj client.Object) {
	obj.SetResourceVersion(strconv.Itoa(len(c.events) + 1))
	c.events = append(c.events, event{resource, what, obj.DeepCopyObject().(client.Object)})
	close(c.eventSignal)
	c.eventSignal = make(chan struct{})
}
