package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// objectWithMetadata returns an object with this metadata and, in its spec, a list.
func objectWithMetadata(metadata, items string) []byte {
	return []byte(`{"metadata":{` + metadata + `},"spec":{"ranges":[` + items + `]}}`)
}

func TestObjectBeyondBoundsIsRefusedUnlessItWasBefore(t *testing.T) {
	labels := func(n int) []byte { return objectWithMetadata(`"labels":{`+repeatItem(n, `"#":""`)+`}`, "") }
	within, beyond := labels(maxLabels), labels(maxLabels+1)
	long := func(n int) []byte { return objectWithMetadata(`"annotations":{"a":"`+strings.Repeat("x", n)+`"}`, "") }
	managed := func(object []byte) []byte {
		return []byte(strings.Replace(string(object), `"metadata":{`, `"metadata":{"managedFields":[{"manager":"m"}],`, 1))
	}
	kept := func(object []byte) []byte {
		return []byte(strings.Replace(string(object), `"metadata":{`, `"metadata":{"finalizers":["example.com/kept"],`, 1))
	}
	many := objectWithMetadata("", repeatItem(4096, `"#"`))
	going := []byte(strings.Replace(string(labels(maxLabels+2)), `"metadata":{`, `"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z",`, 1))
	const create, update, remove = admissionv1.Create, admissionv1.Update, admissionv1.Delete
	var rows []messages.Row
	for name, c := range map[string]struct {
		operation   admissionv1.Operation
		object, old []byte
		user        string
		refused     string
	}{
		"as many labels as allowed":                {operation: create, object: within},
		"one label more":                           {operation: create, object: beyond, refused: "metadata.labels: Too many: 257: must have at most 256 items: remove some"},
		"too many annotations":                     {operation: create, object: objectWithMetadata(`"annotations":{`+repeatItem(257, `"#":""`)+`}`, ""), refused: "metadata.annotations: Too many: 257: must have at most 256 items: remove some"},
		"too many owners":                          {operation: create, object: objectWithMetadata(`"ownerReferences":[`+repeatItem(65, `{"uid":"#"}`)+`]`, ""), refused: "metadata.ownerReferences: Too many: 65: must have at most 64 items: remove some"},
		"too many finalizers":                      {operation: create, object: objectWithMetadata(`"finalizers":[`+repeatItem(65, `"#"`)+`]`, ""), refused: "metadata.finalizers: Too many: 65: must have at most 64 items: remove some"},
		"too many items":                           {operation: create, object: many, refused: "metadata and spec: Too many: 4097: must have at most 4096 items: remove some"},
		"too long a name":                          {operation: create, object: objectWithMetadata(`"name":"`+strings.Repeat("x", 4097)+`"`, ""), refused: "metadata and spec: Too long: have a name or a value of 4097 bytes, and each may have 4096: make it shorter"},
		"as long a name as allowed":                {operation: create, object: objectWithMetadata(`"name":"`+strings.Repeat("x", maxStringBytes)+`"`, "")},
		"too long a value":                         {operation: create, object: objectWithMetadata("", `"`+strings.Repeat("x", 4097)+`"`), refused: "metadata and spec: Too long: have a name or a value of 4097 bytes, and each may have 4096: make it shorter"},
		"too many items of its metadata":           {operation: create, object: objectWithMetadata(`"other":[`+repeatItem(4096, `"#"`)+`]`, ""), refused: "metadata and spec: Too many: 4097: must have at most 4096 items: remove some"},
		"as many bytes as allowed":                 {operation: create, object: long(maxObjectBytes - len(long(0)))},
		"too many bytes":                           {operation: create, object: long(maxObjectBytes), refused: "metadata and spec: Too long: have 524346 bytes, and may have 524288: remove annotations or list items"},
		"too many managed fields":                  {operation: create, object: objectWithMetadata(`"managedFields":["`+strings.Repeat("x", maxObjectBytes)+`"]`, ""), refused: "metadata and spec: Too long: have 524344 bytes, and may have 524288: remove annotations or list items"},
		"an update beyond":                         {operation: update, object: beyond, old: within, refused: "metadata.labels"},
		"an update of an object beyond the bounds": {operation: update, object: beyond, old: beyond},
		"an update with fewer labels":              {operation: update, object: beyond, old: labels(maxLabels + 9)},
		"an update with more labels":               {operation: update, object: labels(maxLabels + 9), old: beyond, refused: "metadata.labels"},
		"an update of a large object":              {operation: update, object: long(maxObjectBytes), old: long(maxObjectBytes)},
		"an update of a long value":                {operation: update, object: objectWithMetadata("", `"`+strings.Repeat("x", 4097)+`"`), old: objectWithMetadata("", `"`+strings.Repeat("y", 4097)+`"`)},
		"an update with a long status":             {operation: update, object: []byte(`{"status":{"message":"` + strings.Repeat("x", 4097) + `"}}`), old: []byte(`{}`)},
		"an update with another writer":            {operation: update, object: managed(long(maxObjectBytes)), old: long(maxObjectBytes)},
		"an update with another finalizer":         {operation: update, object: kept(long(maxObjectBytes)), old: long(maxObjectBytes)},
		"a finalizer of an object of many items":   {operation: update, object: kept(many), old: many},
		"an update with too many finalizers":       {operation: update, object: objectWithMetadata(`"finalizers":[`+repeatItem(65, `"#"`)+`]`, ""), old: within, refused: "metadata.finalizers"},
		"an update that grows":                     {operation: update, object: long(maxObjectBytes + 1), old: long(maxObjectBytes), refused: "metadata and spec: Too long"},
		"an update of a deleted object":            {operation: update, object: going, old: beyond},
		"an update by the operator":                {operation: update, object: labels(maxLabels + 9), old: beyond, user: operator},
		"a deletion":                               {operation: remove, old: beyond},
		"no object":                                {operation: create, object: []byte(strings.Repeat("[", 9))},
	} {
		t.Run(name, func(t *testing.T) {
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: c.operation, Object: runtime.RawExtension{Raw: c.object}, OldObject: runtime.RawExtension{Raw: c.old},
				Kind: metav1.GroupVersionKind{Group: "ipam.cadastre.dev", Kind: "IPPool"}, Name: "p",
			}}
			req.UserInfo.Username = c.user
			response := boundedHandler{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }), operator}.Handle(t.Context(), req)
			if response.Allowed != (c.refused == "") {
				t.Fatalf("it is answered %+v", response)
			}
			if c.refused == "" {
				return
			}
			if response.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(response.Result.Message, c.refused) {
				t.Errorf("it is answered %d: %s; want 422: %s", response.Result.Code, response.Result.Message, c.refused)
			}
			if c.operation == create {
				rows = append(rows, messages.Row{Object: "any", On: messages.CreateOrUpdate, Answer: messages.Invalid, Message: c.refused})
			}
		})
	}
	messages.Golden(t, rows)
}

func TestHandlerGetsObjectsWithoutUnreadFields(t *testing.T) {
	const labeled, cut = `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{}}`
	for operation, want := range map[admissionv1.Operation]string{admissionv1.Create: labeled, admissionv1.Update: cut} {
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: operation, Object: runtime.RawExtension{Raw: []byte(labeled)}, OldObject: runtime.RawExtension{Raw: []byte(labeled)},
		}}
		boundedHandler{admission.HandlerFunc(func(_ context.Context, got admission.Request) admission.Response {
			if string(got.Object.Raw) != want || string(got.OldObject.Raw) != want {
				t.Errorf("%s: the handler gets %s and %s, want %s", operation, got.Object.Raw, got.OldObject.Raw, want)
			}
			return admission.Allowed("")
		}), operator}.Handle(t.Context(), req)
	}
}

func TestUnreadFieldsAreDropped(t *testing.T) {
	object := `{"kind":"IPPool","metadata":{"name":"p","labels":{"a":"b"},"finalizers":["f"],"ownerReferences":[{"uid":"1"}],"annotations":{"a":"b","ipam.cadastre.dev/paused":""},"managedFields":[{}]},"spec":{"cidr":"10.0.0.0/8"}}`
	for creates, want := range map[bool]string{
		true:  `{"kind":"IPPool","metadata":{"name":"p","labels":{"a":"b"},"finalizers":["f"],"ownerReferences":[{"uid":"1"}],"annotations":{"a":"b","ipam.cadastre.dev/paused":""}},"spec":{"cidr":"10.0.0.0/8"}}`,
		false: `{"kind":"IPPool","metadata":{"name":"p","annotations":{"ipam.cadastre.dev/paused":""}},"spec":{"cidr":"10.0.0.0/8"}}`,
	} {
		if got := withoutUnread([]byte(object), creates); string(got) != want {
			t.Errorf("of an object that is created (%t) this is left: %s", creates, got)
		}
	}
	for _, text := range []string{``, `null`, `[]`, `{"metadata":7}`, `{"metadata":{"annotations":[]}}`, `{`} {
		if got := withoutUnread([]byte(text), false); string(got) != text {
			t.Errorf("%q is cut to %q", text, got)
		}
	}
}

func TestAnswerNamesFewErrors(t *testing.T) {
	var errs field.ErrorList
	for n := range 20_000 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "labels"), fmt.Sprint("-", n), "is not a label"))
	}
	response := denied(subject{kind: "IPClaim", name: "c"}.invalid(errs...))
	if n := strings.Count(response.Result.Message, "is not a label"); n != maxErrors || !strings.HasSuffix(response.Result.Message, "]; and 19990 more errors") {
		t.Errorf("the answer names %d errors: %s", n, response.Result.Message)
	}
	if n := len(response.Result.Details.Causes); n != maxErrors {
		t.Errorf("it has %d causes", n)
	}
	response = denied(subject{kind: "IPClaim", name: "c"}.invalid(errs[:maxErrors]...))
	if message := response.Result.Message; !strings.HasSuffix(message, "]") {
		t.Errorf("the answer names all errors, and ends with %q", message[len(message)-20:])
	}
	if exact := strings.Repeat("x", maxMessageBytes); shortText(exact) != exact {
		t.Error("a text that is as long as allowed is cut")
	}
	long := strings.Repeat("ä", 9<<10)
	response = shortenMessages(denied(subject{kind: "IPClaim", name: long}.invalid(field.Invalid(field.NewPath(long), long, long))).WithWarnings(long))
	for _, text := range []string{response.Result.Message, response.Result.Details.Name, response.Result.Details.Causes[0].Message, response.Result.Details.Causes[0].Field, response.Warnings[0]} {
		if len(text) > maxMessageBytes+3 || !strings.HasSuffix(text, "ä...") {
			t.Errorf("the answer has a text of %d bytes that ends with %q", len(text), text[len(text)-9:])
		}
	}
}
