package webhooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// maxRequestBytes bounds one request: two objects, of which the API server accepts 3 MiB each,
	// and the rest of the request.
	maxRequestBytes = 7 << 20
	// smallRequestBytes is the size below which nearly all requests are.
	smallRequestBytes = 64 << 10
	// smallBytes and largeBytes bound the bytes of the small and of the other requests that are
	// read or handled at the same time. The two bounds are separate, so that large requests do not
	// keep small ones from being handled.
	smallBytes, largeBytes = 16 << 20, 16 << 20
	// maxUIDOffset is the length of the beginning of a request that contains its UID: an API server
	// writes the UID near the beginning.
	maxUIDOffset = 1 << 10
)

var errTooManyBytes = errors.New("too many large requests are being handled")

// inFlight bounds the requests that are handled at the same time by their bytes. Only one large
// request is handled at a time: each costs less than a tenth of a second.
type inFlight struct{ small, large, turn *semaphore.Weighted }

func newInFlight() *inFlight {
	return &inFlight{semaphore.NewWeighted(smallBytes), semaphore.NewWeighted(largeBytes), semaphore.NewWeighted(1)}
}

// reviewer implements the HTTP handler of a webhook. In contrast to the webhook's own method it
// bounds the bytes in flight, reads the body into one buffer, and does not copy the objects in it.
type reviewer struct {
	hook     *admission.Webhook
	inFlight *inFlight
	refusals refusals
}

// ServeHTTP implements http.Handler.
func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size := r.ContentLength
	if size < 0 {
		size = maxRequestBytes
	}
	if size > maxRequestBytes {
		v.refuse(w, r, admissionv1.AdmissionRequest{}, admission.Errored(http.StatusRequestEntityTooLarge, fmt.Errorf("the request has %d bytes, and may have %d: make the object smaller", size, maxRequestBytes)))
		return
	}
	lane := v.inFlight.small
	if size > smallRequestBytes {
		lane = v.inFlight.large
	}
	// A body that waits to be read blocks all others on its connection (RFC 9113 section 5.2).
	if !lane.TryAcquire(size) {
		start, _ := io.ReadAll(io.LimitReader(r.Body, maxUIDOffset))
		v.refuse(w, r, admissionv1.AdmissionRequest{UID: uidIn(start)}, denied(tryAgain(errTooManyBytes)))
		return
	}
	defer lane.Release(size)
	req, err := read(r.Body, size)
	if err != nil {
		v.refuse(w, r, req, admission.Errored(http.StatusBadRequest, err))
		return
	}
	ctx := r.Context()
	if size > smallRequestBytes {
		if err := v.inFlight.turn.Acquire(ctx, 1); err != nil {
			v.refuse(w, r, req, denied(tryAgain(errTooManyBytes)))
			return
		}
		defer v.inFlight.turn.Release(1)
	}
	if v.hook.WithContextFunc != nil {
		ctx = v.hook.WithContextFunc(ctx, r)
	}
	answer(w, r, req.UID, v.hook.Handle(ctx, admission.Request{AdmissionRequest: req}))
}

// refuse answers a request that reaches no handler, and counts the refusal. Resource and operation
// are empty if the request was not read.
func (v *reviewer) refuse(w http.ResponseWriter, r *http.Request, req admissionv1.AdmissionRequest, response admission.Response) {
	v.refusals.count(req, response)
	answer(w, r, req.UID, response)
}

// read reads an admission request of at most size bytes. The objects in it are parts of one buffer.
func read(body io.Reader, size int64) (admissionv1.AdmissionRequest, error) {
	buffer := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := buffer.ReadFrom(io.LimitReader(body, size)); err != nil {
		return admissionv1.AdmissionRequest{}, fmt.Errorf("reading the request: %w", err)
	}
	var text, object, old []byte
	err := eachMember(buffer.Bytes(), func(name, value []byte) {
		if string(name) == "request" {
			text = value
		}
	})
	if err != nil {
		return admissionv1.AdmissionRequest{}, fmt.Errorf("reading the request: %w", err)
	}
	rest, err := appendObject(nil, text, func(dst []byte, name string, value []byte) []byte {
		switch name {
		case "object":
			object = value
		case "oldObject":
			old = value
		default:
			return append(dst, value...)
		}
		return nil
	})
	if err != nil {
		return admissionv1.AdmissionRequest{}, fmt.Errorf("reading the request: %w", err)
	}
	var req admissionv1.AdmissionRequest
	if err := json.Unmarshal(rest, &req); err != nil {
		return req, fmt.Errorf("reading the request: %w", err)
	}
	req.Name = shortText(req.Name)
	if string(object) != "null" {
		req.Object.Raw = object
	}
	if string(old) != "null" {
		req.OldObject.Raw = old
	}
	return req, nil
}

// uidIn returns the UID from the beginning of a request.
func uidIn(start []byte) types.UID {
	_, suffix, _ := bytes.Cut(start, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(suffix, []byte(`"`))
	return types.UID(uid)
}

// answer writes the answer to a request.
func answer(w http.ResponseWriter, r *http.Request, uid types.UID, response admission.Response) {
	response.UID = uid
	review := admissionv1.AdmissionReview{Response: &response.AdmissionResponse}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	if err := json.NewEncoder(w).Encode(review); err != nil {
		log.FromContext(r.Context()).V(1).Info("Could not write an answer", "requestID", uid, "error", err.Error())
	}
}

// Objects are measured and cut as text, before any part of them is decoded: a decoded object takes
// many times the memory and the time. The API server has encoded the text, so that each name occurs
// once, and without escapes that it does not need.

var errNoObject = errors.New("the text is not a JSON object")

// eachMember calls f with the name and the value of each member of a JSON object, in order.
func eachMember(text []byte, f func(name, value []byte)) error {
	pos := afterSpace(text, 0)
	if charAt(text, pos) != '{' {
		return errNoObject
	}
	if pos = afterSpace(text, pos+1); charAt(text, pos) == '}' {
		return nil
	}
	for charAt(text, pos) == '"' {
		name := afterString(text, pos)
		colon := afterSpace(text, name)
		if charAt(text, colon) != ':' {
			return errNoObject
		}
		value := afterSpace(text, colon+1)
		end := afterValue(text, value)
		if end > len(text) {
			return errNoObject
		}
		f(text[pos+1:name-1], text[value:end])
		switch pos = afterSpace(text, end); charAt(text, pos) {
		case ',':
			pos = afterSpace(text, pos+1)
		case '}':
			return nil
		default:
			return errNoObject
		}
	}
	return errNoObject
}

// appendObject appends a JSON object to a text, with the value of each member as appendValue appends
// it; a member for which that returns nil is left out.
func appendObject(to, object []byte, appendValue func(to []byte, name string, value []byte) []byte) ([]byte, error) {
	to = append(to, '{')
	begin := len(to)
	err := eachMember(object, func(name, value []byte) {
		end := len(to)
		if end > begin {
			to = append(to, ',')
		}
		to = append(append(append(to, '"'), name...), '"', ':')
		if extended := appendValue(to, string(name), value); extended != nil {
			to = extended
		} else {
			to = to[:end]
		}
	})
	return append(to, '}'), err
}

// counts holds the numbers of elements in a JSON text.
type counts struct {
	// direct counts the members of the outermost object, or the items of the outermost list; all
	// also counts those within them.
	direct, total int
	// longest is the length of the longest string, name or number.
	longest int
}

func count(text []byte) counts {
	c, depth := counts{}, 0
	add := func() {
		c.total++
		if depth == 1 {
			c.direct++
		}
	}
	for pos := 0; pos < len(text); pos++ {
		begin := pos
		switch text[pos] {
		case '"':
			pos = afterString(text, pos) - 1
			c.longest = max(c.longest, pos-begin-1)
		case ',':
			add()
		case '{', '[':
			depth++
			if next := charAt(text, afterSpace(text, pos+1)); next != '}' && next != ']' {
				add()
			}
		case '}', ']':
			depth--
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			pos = endOrInvalid(text, pos, afterValue(text, pos)) - 1
			c.longest = max(c.longest, pos-begin+1)
		}
	}
	return c
}

// afterValue returns the position after the JSON value that begins at a position. It is beyond the
// end of the text if the value has no end.
func afterValue(text []byte, pos int) int {
	begin, depth := pos, 0
	for ; pos < len(text); pos++ {
		switch text[pos] {
		case '"':
			if pos = afterString(text, pos) - 1; depth == 0 {
				return pos + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return pos + 1
			}
			if depth < 0 {
				return endOrInvalid(text, begin, pos)
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return endOrInvalid(text, begin, pos)
			}
		}
	}
	return len(text) + 1
}

// endOrInvalid returns the end of a number or a word, which has at least one character.
func endOrInvalid(text []byte, begin, end int) int {
	if begin == end {
		return len(text) + 1
	}
	return end
}

// afterString returns the position after the string that begins at a position. It is beyond the end
// of the text if the string has no end.
func afterString(text []byte, pos int) int {
	for pos++; pos < len(text); pos++ {
		quote := bytes.IndexByte(text[pos:], '"')
		if quote < 0 {
			break
		}
		pos += quote
		escapes := 0
		for text[pos-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return pos + 1
		}
	}
	return len(text) + 1
}

func afterSpace(text []byte, pos int) int {
	for pos < len(text) && (text[pos] == ' ' || text[pos] == '\n' || text[pos] == '\t' || text[pos] == '\r') {
		pos++
	}
	return pos
}

// charAt returns the character at a position; 0 beyond the end.
func charAt(text []byte, pos int) byte {
	if pos >= len(text) {
		return 0
	}
	return text[pos]
}
