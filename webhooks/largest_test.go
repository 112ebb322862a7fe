package webhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

const (
	// sent is the largest object that the API server accepts, and stored the largest that etcd
	// does.
	sent, stored = 3 << 20, 3 << 19
	// mostBytes and mostUnits bound the cost of a request. A unit is the time in which the library
	// reads a megabyte, nearly 3 ms: 35 are a tenth of a second.
	mostBytes, mostUnits = 16 << 20, 35
)

// repeatToSize returns as many of the items, with a number in place of #, as make a text of so many bytes.
func repeatToSize(size int, item string) string {
	text := make([]byte, 0, size+2*len(item))
	before, after, numbered := strings.Cut(item, "#")
	for n := 0; len(text) < size; n++ {
		if n > 0 && item != "x" {
			text = append(text, ',')
		}
		text = append(text, before...)
		if numbered {
			text = append(strconv.AppendInt(text, int64(n), 10), after...)
		}
	}
	return string(text)
}

// shapes holds the ways in which an object can be large: each returns its metadata and its spec,
// beside the required ones.
var shapes = map[string]func(kind string, size int) (metadata, spec string){
	"many labels":         func(_ string, n int) (string, string) { return `"labels":{` + repeatToSize(n, `"#":""`) + `}`, "" },
	"many invalid labels": func(_ string, n int) (string, string) { return `"labels":{` + repeatToSize(n, `"-#":"/"`) + `}`, "" },
	"many annotations": func(_ string, n int) (string, string) {
		return `"annotations":{` + repeatToSize(maxAnnotationSize(n), `"#":""`) + `}`, ""
	},
	"annotations of ours": func(_ string, n int) (string, string) {
		return `"annotations":{` + repeatToSize(maxAnnotationSize(n), `"ipam.cadastre.dev/#":""`) + `}`, ""
	},
	"a long annotation": func(_ string, n int) (string, string) {
		return `"annotations":{"a":"` + repeatToSize(n, "x") + `"}`, ""
	},
	"many finalizers": func(_ string, n int) (string, string) { return `"finalizers":[` + repeatToSize(n, `"#"`) + `]`, "" },
	"many owners": func(_ string, n int) (string, string) {
		return `"ownerReferences":[` + repeatToSize(n, `{"uid":"#"}`) + `]`, ""
	},
	"deep managed fields": func(_ string, n int) (string, string) {
		return `"managedFields":[` + repeatToSize(n, `{"fieldsV1":`+strings.Repeat(`{"f:x":`, 9_000)+"{}"+strings.Repeat("}", 9_000)+`}`) + `]`, ""
	},
	"many managed fields": func(_ string, n int) (string, string) {
		return `"managedFields":[{"fieldsV1":{` + repeatToSize(n, `"f:#":{}`) + `}}]`, ""
	},
	"many managers": func(_ string, n int) (string, string) {
		return `"managedFields":[` + repeatToSize(n, `{"manager":"#"}`) + `]`, ""
	},
	"a list of many items": func(kind string, n int) (string, string) { return "", listOf(kind, repeatToSize(n, `"#"`)) },
	"a list of one item":   func(kind string, n int) (string, string) { return "", listOf(kind, `"`+repeatToSize(n, "x")+`"`) },
	"a long string": func(_ string, n int) (string, string) {
		return "", `"cidr":"` + repeatToSize(n, "x") + `","address":"` + `"`
	},
	"a long name": func(_ string, n int) (string, string) { return `"generateName":"` + repeatToSize(n, "x") + `"`, "" },
	"all that is allowed": func(kind string, n int) (string, string) {
		n = min(n, maxObjectBytes-8<<10)
		return `"labels":{` + repeatItem(maxLabels, `"-#":"/"`) + `},"finalizers":[` + repeatItem(maxFinalizers, `"#"`) + `],"ownerReferences":[` + repeatItem(maxOwners, `{"uid":"#"}`) +
			`],"annotations":{` + repeatItem(maxAnnotations-1, `"#":""`) + `,"a":"` + repeatToSize(n/2, "x") + `"}`, listOf(kind, repeatItem(1024, `"#`+strings.Repeat("x", n/1024/3)+`"`))
	},
}

// maxAnnotationSize returns the largest size of the annotations in an object of so many bytes: of a stored
// object 256 KiB, quotes aside.
func maxAnnotationSize(size int) int {
	if size == stored {
		return 320 << 10
	}
	return size
}

func repeatItem(count int, item string) string {
	items := make([]string, count)
	for n := range items {
		items[n] = strings.ReplaceAll(item, "#", strconv.Itoa(n))
	}
	return strings.Join(items, ",")
}

// listOf returns the spec of a kind with a list of these items, for kinds that have one.
func listOf(kind, items string) string {
	switch kind {
	case "IPClaim":
		return `"poolSelector":{"matchExpressions":[{"key":"a","operator":"In","values":[` + items + `]}]}`
	case "InClusterIPPool", "GlobalInClusterIPPool":
		return `"addresses":[` + items + `],"prefix":8`
	case "IPPool", "LocalIPPool":
		return `"cidr":"10.9.0.0/16","ranges":[` + items + `]`
	}
	return `"others":[` + items + `]`
}

// specs holds the specs of objects that the handlers change.
var specs = map[string]string{
	"IPClaim": `"ipFamily":"IPv4"`, "IPPool": `"ipFamily":"IPv4"`, "LocalIPPool": `"ipFamily":"IPv4"`, "IPClass": `"ipFamily":"IPv4"`,
	"IPAllocation": `"state":"Bound"`, "IPAddressClaim": `"poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPPool","name":"p"}`,
	"IPAddress": `"poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPPool","name":"p"}`,
}

func shapedObject(kind, shape string, size int, change string) []byte {
	metadata, spec := shapes[shape](kind, size)
	join := func(parts ...string) string {
		return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ",")
	}
	return []byte(`{"metadata":{` + join(`"name":"large","namespace":"team"`, metadata) + `},"spec":{` + join(specs[kind], spec, change) + `}}`)
}

// largestRequests returns the requests with the largest objects that the API server sends to a webhook.
func largestRequests(hook hook, shape string) map[string]admissionv1.AdmissionRequest {
	requests := map[string]admissionv1.AdmissionRequest{}
	add := func(name string, operation admissionv1.Operation, object, old []byte) {
		requests[name] = admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: hook.kind}, Operation: operation,
			Namespace: "team", Name: "large", Object: k8sruntime.RawExtension{Raw: object}, OldObject: k8sruntime.RawExtension{Raw: old},
		}
	}
	const edited = `"reclaimPolicy":"Retain"`
	there := stored
	if strings.HasPrefix(shape, "a l") && shape != "a long annotation" {
		there = maxObjectBytes // their schemas bound the lists and the strings of a stored object
	}
	if slices.Contains(hook.operations, admissionregistrationv1.Create) {
		add("create", admissionv1.Create, shapedObject(hook.kind, shape, sent, ""), nil)
		add("create, in bounds", admissionv1.Create, shapedObject(hook.kind, shape, maxObjectBytes-4<<10, ""), nil)
	}
	if slices.Contains(hook.operations, admissionregistrationv1.Update) {
		add("update that grows", admissionv1.Update, shapedObject(hook.kind, shape, sent, edited), shapedObject(hook.kind, shape, there, ""))
		add("update of the same", admissionv1.Update, shapedObject(hook.kind, shape, there, ""), shapedObject(hook.kind, shape, there, edited))
	}
	if slices.Contains(hook.operations, admissionregistrationv1.Delete) {
		add("delete", admissionv1.Delete, nil, shapedObject(hook.kind, shape, there, ""))
	}
	return requests
}

// serverHandler returns a handler as the server runs it.
func serverHandler(handler admission.Handler) http.Handler {
	return chain{refusals: refusals{metrics: metrics.New(clock.RealClock{})}, operator: operator, inFlight: newInFlight()}.wrap(handler)
}

// discarded counts the written bytes, and keeps the first ones.
type discarded struct {
	header http.Header
	start  []byte
	n      int
}

func (d *discarded) Header() http.Header { return d.header }
func (d *discarded) WriteHeader(int)     {}
func (d *discarded) Write(text []byte) (int, error) {
	d.start = append(d.start, text[:min(len(text), 1<<10-len(d.start))]...)
	d.n += len(text)
	return len(text), nil
}

// cost holds the cost of a request for a replica.
type cost struct {
	bytes  uint64
	cpu    time.Duration
	answer discarded
}

func costOf(t testing.TB, handler http.Handler, body []byte) cost {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	c := cost{answer: discarded{header: http.Header{}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.cpu = cpuOf(t, func() { handler.ServeHTTP(&c.answer, r) })
	runtime.ReadMemStats(&after)
	c.bytes = after.TotalAlloc - before.TotalAlloc
	return c
}

// cpuOf returns the CPU time of this process while f runs, which other processes do not add to.
func cpuOf(t testing.TB, f func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var usage syscall.Rusage
		must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}

// megabyteTime returns the time in which the library reads a megabyte.
func megabyteTime(t testing.TB) time.Duration {
	t.Helper()
	text := []byte(`{"labels":{` + repeatToSize(8<<20, `"#":""`) + `}}`)
	return cpuOf(t, func() {
		if !json.Valid(text) {
			t.Error("the text is not valid")
		}
	}) / 8
}

// hook holds a handler, and the operations for which the API server calls it.
type hook struct {
	name, kind string
	handler    admission.Handler
	operations []admissionregistrationv1.OperationType
}

// hooks returns all hooks of the manifests, those with the same handler and operations once.
func (s *stage) hooks(t testing.TB) []hook {
	t.Helper()
	var all []hook
	for configuration, handlers := range map[string]map[string]admission.Handler{
		manifests.MutatingWebhooks: s.mutate, manifests.ClusterWebhooks: s.mutate, manifests.ValidatingWebhooks: s.validate,
	} {
		for name, webhook := range manifests.Webhooks(configuration, manifests.Account{}) {
			path := *webhook.ClientConfig.Service.Path
			at := slices.IndexFunc(kinds, func(kind string) bool { return strings.HasSuffix(path, "-"+strings.ToLower(kind)) })
			if at < 0 || handlers[kinds[at]] == nil {
				t.Fatalf("there is no handler for %s", path)
			}
			h := hook{name, kinds[at], handlers[kinds[at]], webhook.Rules[0].Operations}
			if !slices.ContainsFunc(all, func(other hook) bool {
				return other.handler == h.handler && slices.Equal(other.operations, h.operations)
			}) {
				all = append(all, h)
			}
		}
	}
	return all
}

// TestLargestObjectCostsLittle covers objects of every kind and shape, and every operation. The
// API server makes the object, so the sender needs neither memory nor time. With LARGEST the costs
// are written into that file, as a table.
func TestLargestObjectCostsLittle(t *testing.T) {
	s, unit := newStage(t), megabyteTime(t)
	var table strings.Builder
	table.WriteString("| kind | asked for | MiB | shape | ms of CPU | shape |\n|---|---|---:|---|---:|---|\n")
	for _, hook := range s.hooks(t) {
		served := serverHandler(hook.handler)
		var bytes, cpu worst
		for _, shape := range slices.Sorted(maps.Keys(shapes)) {
			for name, req := range largestRequests(hook, shape) {
				body := bodyOf(t, req)
				c := costOf(t, served, body)
				for try := 0; try < 4 && c.cpu > mostUnits*unit; try++ {
					c.cpu = min(c.cpu, costOf(t, served, body).cpu)
				}
				bytes.note(shape+", "+name, float64(c.bytes)/(1<<20))
				cpu.note(shape+", "+name, float64(c.cpu.Microseconds())/1000)
				if c.bytes > mostBytes || c.cpu > mostUnits*unit || c.answer.n > 64<<10 {
					t.Errorf("%s, %s, %s: %d bytes, %v, which is %d times what it takes to read a megabyte, and an answer of %d bytes: %s",
						hook.name, shape, name, c.bytes, c.cpu, c.cpu/unit, c.answer.n, c.answer.start)
				}
			}
		}
		fmt.Fprintf(&table, "| %s | %s | %.1f | %s | %.0f | %s |\n", hook.kind, strings.ToLower(strings.Trim(fmt.Sprint(hook.operations), "[]")), bytes.value, bytes.at, cpu.value, cpu.at)
	}
	t.Log("\n" + table.String())
	if file := os.Getenv("LARGEST"); file != "" {
		must(t, os.WriteFile(file, []byte(table.String()), 0o600))
	}
}

// worst holds the largest of many values, and its place.
type worst struct {
	value float64
	at    string
}

func (w *worst) note(at string, value float64) {
	if value > w.value {
		*w = worst{value, at}
	}
}

// bodyOf returns the body of a request, as an API server encodes it.
func bodyOf(t testing.TB, req admissionv1.AdmissionRequest) []byte {
	t.Helper()
	object, old := req.Object.Raw, req.OldObject.Raw
	req.Object.Raw, req.OldObject.Raw = nil, nil
	text, err := json.Marshal(req)
	must(t, err)
	null := func(object []byte) []byte {
		if object == nil {
			return []byte("null")
		}
		return object
	}
	text = bytes.Replace(text, []byte(`"object":null`), append([]byte(`"object":`), null(object)...), 1)
	text = bytes.Replace(text, []byte(`"oldObject":null`), append([]byte(`"oldObject":`), null(old)...), 1)
	return slices.Concat([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`), text, []byte("}"))
}
