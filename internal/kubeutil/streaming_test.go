package kubeutil

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// recordList returns a list of so many IPAllocations, and its JSON.
func recordList(t testing.TB, count int) (*v1alpha1.IPAllocationList, string) {
	t.Helper()
	list := &v1alpha1.IPAllocationList{ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "more"}, Items: []v1alpha1.IPAllocation{}}
	for n := range count {
		list.Items = append(list.Items, v1alpha1.IPAllocation{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: fmt.Sprint("c-", n), UID: types.UID(fmt.Sprint("uid-", n)), ResourceVersion: fmt.Sprint(n),
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "cadastre"}},
			},
			Spec: v1alpha1.IPAllocationSpec{CIDR: fmt.Sprintf("10.0.%d.0/24", n), PoolRef: &v1alpha1.RecordPoolReference{Kind: "IPPool", Name: "p"}},
		})
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return list, string(text)
}

// withoutManagedFields stands for any function that makes objects smaller.
func withoutManagedFields(obj any) (any, error) {
	obj.(*v1alpha1.IPAllocation).ManagedFields = nil
	return obj, nil
}

func readRecords(body io.Reader) (*internalversion.List, error) {
	return readList[v1alpha1.IPAllocation](body, withoutManagedFields)
}

func TestListIsReadCompletely(t *testing.T) {
	for _, count := range []int{0, 1, 3} {
		want, text := recordList(t, count)
		// The API server writes the fields of an unstructured list in the order of their names.
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatal(err)
		}
		sorted, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{text, string(sorted)} {
			got, err := readRecords(iotest.OneByteReader(strings.NewReader(text)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.ListMeta, got.ListMeta); diff != "" {
				t.Errorf("of the list (-want +got):\n%s", diff)
			}
			if len(got.Items) != count {
				t.Fatalf("%d items, want %d", len(got.Items), count)
			}
			for i, item := range got.Items {
				want.Items[i].ManagedFields = nil
				if !equality.Semantic.DeepEqual(item, &want.Items[i]) {
					t.Errorf("an item (-want +got):\n%s", cmp.Diff(&want.Items[i], item))
				}
			}
		}
	}
}

// TestTruncatedListIsRefused cuts a list after each of its bytes: blocks that are in use would be handed
// out if the received part counted as the whole list.
func TestTruncatedListIsRefused(t *testing.T) {
	_, text := recordList(t, 2)
	for length := range len(text) {
		if list, err := readRecords(strings.NewReader(text[:length])); err == nil {
			t.Fatalf("%d items are taken for all of %q", len(list.Items), text[:length])
		}
	}
	if _, err := readRecords(io.MultiReader(strings.NewReader(text[:len(text)-9]), iotest.ErrReader(io.ErrClosedPipe))); err == nil {
		t.Error("a connection that breaks is taken for the end")
	}
}

func TestFailedTransformIsRefused(t *testing.T) {
	_, text := recordList(t, 1)
	for name, transform := range map[string]cache.TransformFunc{
		"an error":  func(any) (any, error) { return nil, io.ErrNoProgress },
		"no object": func(any) (any, error) { return "x", nil },
	} {
		if _, err := readList[v1alpha1.IPAllocation](strings.NewReader(text), transform); err == nil {
			t.Errorf("%s is taken for an object", name)
		}
	}
}

func TestInvalidListIsRefused(t *testing.T) {
	for _, text := range []string{
		`null`, `[]`, `"items"`, `{}`,
		`{"items":[]}`,
		`{"metadata":{},"items":[]}`,
		`{"metadata":{"resourceVersion":"1"},"items":{}}`,
		`{"metadata":{"resourceVersion":"1"},"items":[1]}`,
		`{"metadata":[],"items":[]}`,
		`{"metadata":{"resourceVersion":"1"},"items":[}`,
	} {
		if _, err := readRecords(strings.NewReader(text)); err == nil {
			t.Errorf("%s is taken for a list", text)
		}
	}
}

// TestRecordsAreListedAndWatched sends the requests of a Reflector to an HTTP server.
func TestRecordsAreListedAndWatched(t *testing.T) {
	list, text := recordList(t, 2)
	event, err := json.Marshal(map[string]any{"type": "ADDED", "object": map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "IPAllocation", "metadata": map[string]any{"name": "late"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		switch {
		case r.URL.Path != "/apis/ipam.cadastre.dev/v1alpha1/ipallocations":
			http.NotFound(w, r)
		case r.URL.Query().Get("watch") == "true":
			_, _ = w.Write(event)
		case r.URL.Query().Get("resourceVersion") == "1":
			status := apierrors.NewResourceExpired("too old").Status()
			status.APIVersion, status.Kind = "v1", "Status"
			w.WriteHeader(http.StatusGone)
			_ = json.NewEncoder(w).Encode(status)
		default:
			_, _ = io.WriteString(w, text)
		}
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	records, err := NewStreamingSource[v1alpha1.IPAllocation](&rest.Config{Host: server.URL}, server.Client(), scheme, Selection{Resource: "ipallocations"}, withoutManagedFields)
	if err != nil {
		t.Fatal(err)
	}
	source := cache.ToListerWatcherWithContext(records)
	found, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if meta := found.(metav1.ListInterface); meta.GetResourceVersion() != list.ResourceVersion || meta.GetContinue() != list.Continue {
		t.Errorf("the list is of version %s and continues at %q; want %s, %q", meta.GetResourceVersion(), meta.GetContinue(), list.ResourceVersion, list.Continue)
	}
	if _, err := source.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "1"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a refused list: %v, want that the version is too old", err)
	}
	watch, err := source.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if seen, ok := (<-watch.ResultChan()).Object.(*v1alpha1.IPAllocation); !ok || seen.Name != "late" {
		t.Errorf("the watch shows %v", seen)
	}
}

// BenchmarkList lists 60,000 IPAllocations into an informer: with a StreamingSource, with
// client-go as a whole, and with client-go as events, which is its default. It reports the
// largest size of the heap until the informer has synced.
func BenchmarkList(b *testing.B) {
	server := serveRecords(b, 60_000)
	scheme, config := runtime.NewScheme(), &rest.Config{Host: server.URL}
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	streaming, err := NewStreamingSource[v1alpha1.IPAllocation](config, server.Client(), scheme, Selection{Resource: "ipallocations"}, withoutManagedFields)
	if err != nil {
		b.Fatal(err)
	}
	plain, err := apiutil.RESTClientForGVK(v1alpha1.GroupVersion.WithKind("IPAllocation"), true, false, config, serializer.NewCodecFactory(scheme), server.Client())
	if err != nil {
		b.Fatal(err)
	}
	events := cache.NewListWatchFromClient(plain, "ipallocations", "", fields.Everything())
	for name, source := range map[string]cache.ListerWatcher{"streaming": streaming, "whole": StreamingSource{events}, "events": events} {
		b.Run(name, func(b *testing.B) {
			peak := 0.0
			for b.Loop() {
				peak = max(peak, peakHeap(func() { syncOnce(b, source) }))
			}
			b.ReportMetric(peak/(1<<20), "peak-MiB")
		})
	}
}

// serveRecords serves so many IPAllocations, as a list and as the initial events of a watch.
func serveRecords(b *testing.B, count int) *httptest.Server {
	list, _ := recordList(b, count)
	list.TypeMeta, list.Continue = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPAllocationList"}, ""
	text, err := json.Marshal(list)
	if err != nil {
		b.Fatal(err)
	}
	var events strings.Builder
	encoder := json.NewEncoder(&events)
	for _, item := range list.Items {
		item.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPAllocation"}
		utilruntime.Must(encoder.Encode(map[string]any{"type": "ADDED", "object": item}))
	}
	end := v1alpha1.IPAllocation{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPAllocation"}}
	end.ResourceVersion, end.Annotations = "42", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	utilruntime.Must(encoder.Encode(map[string]any{"type": "BOOKMARK", "object": end}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		switch {
		case r.URL.Query().Get("watch") == "":
			_, _ = w.Write(text)
			return
		case r.URL.Query().Get("sendInitialEvents") == "true":
			_, _ = io.WriteString(w, events.String())
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	b.Cleanup(server.Close)
	return server
}

// syncOnce runs an informer until it has synced.
func syncOnce(b *testing.B, from cache.ListerWatcher) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	informer := cache.NewSharedIndexInformer(from, &v1alpha1.IPAllocation{}, 0, nil)
	if err := informer.SetTransform(withoutManagedFields); err != nil {
		b.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) || len(informer.GetStore().ListKeys()) != 60_000 {
		b.Error("the informer has not synced")
	}
	cancel()
}

// peakHeap calls f, and returns the number of bytes by which the heap grows at most.
func peakHeap(f func()) float64 {
	heap := func() float64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return float64(sample[0].Value.Uint64())
	}
	debug.FreeOSMemory()
	before, peak, done := heap(), 0.0, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for ticker := time.NewTicker(time.Millisecond); ; {
			select {
			case <-ticker.C:
				peak = max(peak, heap())
			case <-done:
				return
			}
		}
	})
	f()
	close(done)
	watching.Wait()
	return peak - before
}
