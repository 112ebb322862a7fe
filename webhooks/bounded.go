package webhooks

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
)

// The bounds of an object. Kubernetes bounds neither the number of labels nor the number of owners,
// and allows an object of 3 MiB. A pool with the most ranges, reserved addresses and classes that
// its schema allows, and with all of that once more in an annotation of kubectl apply, is within
// the bounds. An object within the bounds, with the additions of admission, is also within the
// limit of etcd (1.5 MiB by default): no block is recorded for an object that is too large to be
// stored.
const (
	maxObjectBytes = 512 << 10
	maxLabels      = 256
	maxAnnotations = 256
	maxOwners      = 64
	maxFinalizers  = 64
	// maxEntries bounds the list items and fields of an object, at any depth.
	maxEntries = 4096
	// maxStringBytes bounds each string but annotations and the strings of the status. The longest
	// string that a schema allows is a user's name of 1,024 characters.
	maxStringBytes = 4 << 10
)

// The bounds of an answer.
const (
	maxErrors       = 10
	maxMessageBytes = 4 << 10
)

// boundedHandler implements a handler that refuses objects that are larger than the bounds, before any
// part of them is decoded, and removes from all others the parts that the handler does not read. It
// refuses an update only if the object grew beyond a bound: a stored object can be edited. An
// object that is being deleted can be edited too, and the operator writes its status in any case.
type boundedHandler struct {
	handler admission.Handler
	// operator is the user name of the operator itself.
	operator string
}

// Handle implements admission.Handler.
func (b boundedHandler) Handle(ctx context.Context, req admission.Request) admission.Response {
	object, old := measure(req.Object.Raw), measure(req.OldObject.Raw)
	if !object.deleted && req.UserInfo.Username != b.operator {
		if errs := object.checkBounds(old); len(errs) > 0 {
			s := subject{group: req.Kind.Group, kind: req.Kind.Kind, name: req.Name}
			return denied(s.invalid(errs...))
		}
	}
	creates := req.Operation == admissionv1.Create
	req.Object.Raw, req.OldObject.Raw = withoutUnread(req.Object.Raw, creates), withoutUnread(req.OldObject.Raw, creates)
	return shortenMessages(b.handler.Handle(ctx, req))
}

// measurements holds the size of an object.
type measurements struct {
	// bytes is the size without managed fields, which differ with each user that writes, and without
	// finalizers, which controllers add to what is stored; totalBytes is the size with both.
	bytes, totalBytes                       int
	labels, annotations, owners, finalizers int
	// entries and longest exclude both, too.
	entries, longest int
	deleted          bool
}

// measure returns the size of an object. If the text is not an object, it counts only the bytes:
// the handler refuses the text.
func measure(text []byte) measurements {
	m := measurements{bytes: len(text), totalBytes: len(text)}
	_ = eachMember(text, func(name, value []byte) {
		if string(name) == "metadata" {
			_ = eachMember(value, m.addMetadata)
			return
		}
		c := count(value)
		m.entries += c.total
		if string(name) != "status" {
			m.longest = max(m.longest, c.longest)
		}
	})
	return m
}

func (m *measurements) addMetadata(name, value []byte) {
	switch string(name) {
	case "finalizers":
		m.finalizers = count(value).direct
		fallthrough
	case "managedFields":
		m.bytes -= len(name) + len(`"":,`) + len(value)
		return
	}
	c := count(value)
	m.entries += c.total
	if string(name) != "annotations" {
		m.longest = max(m.longest, c.longest)
	}
	switch string(name) {
	case "labels":
		m.labels = c.direct
	case "annotations":
		m.annotations = c.direct
	case "ownerReferences":
		m.owners = c.direct
	case "deletionTimestamp":
		m.deleted = true
	}
}

// wholeObject is the name for all bounded parts of an object, in place of a field.
const wholeObject = "metadata and spec"

// checkBounds returns an error for each bound that an object exceeds. It accepts an excess that the
// older object has too; the measure of the older object is zero if there is none.
func (m measurements) checkBounds(old measurements) field.ErrorList {
	var errs field.ErrorList
	size := m.bytes
	if old.totalBytes == 0 {
		size = m.totalBytes // the size that is stored
	}
	if size > maxObjectBytes && size > old.bytes {
		errs = append(errs, &field.Error{
			Type: field.ErrorTypeTooLong, Field: wholeObject, BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("have %d bytes, and may have %d: remove annotations or list items", size, maxObjectBytes),
		})
	}
	if m.longest > maxStringBytes && m.longest > old.longest {
		errs = append(errs, &field.Error{
			Type: field.ErrorTypeTooLong, Field: wholeObject, BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("have a name or a value of %d bytes, and each may have %d: make it shorter", m.longest, maxStringBytes),
		})
	}
	metadata := field.NewPath("metadata")
	for _, c := range []struct {
		path              *field.Path
		count, old, limit int
	}{
		{metadata.Child("labels"), m.labels, old.labels, maxLabels},
		{metadata.Child("annotations"), m.annotations, old.annotations, maxAnnotations},
		{metadata.Child("ownerReferences"), m.owners, old.owners, maxOwners},
		{metadata.Child("finalizers"), m.finalizers, old.finalizers, maxFinalizers},
		{field.NewPath(wholeObject), m.entries, old.entries, maxEntries},
	} {
		if c.count > c.limit && c.count > c.old {
			tooMany := field.TooMany(c.path, c.count, c.limit)
			tooMany.Detail += ": remove some"
			errs = append(errs, tooMany)
		}
	}
	return errs
}

// withoutUnread removes from an object the parts that no handler reads: the managed fields, and,
// unless the object is created, labels, owners, finalizers, and annotations of others. It returns a
// text that is not an object unchanged.
func withoutUnread(text []byte, creates bool) []byte {
	annotations := func(dst []byte, name string, value []byte) []byte {
		if creates {
			return append(dst, value...)
		}
		return appendOurs(dst, name, value)
	}
	metadata := func(dst []byte, name string, value []byte) []byte {
		switch name {
		case "managedFields":
			return nil
		case "labels", "ownerReferences", "finalizers":
			if !creates {
				return nil
			}
		case "annotations":
			return appendMembers(dst, value, annotations)
		}
		return append(dst, value...)
	}
	read, err := appendObject(make([]byte, 0, len(text)), text, func(dst []byte, name string, value []byte) []byte {
		if name == "metadata" {
			return appendMembers(dst, value, metadata)
		}
		return append(dst, value...)
	})
	if err != nil {
		return text
	}
	return read
}

// appendOurs appends the value of a label or an annotation of our group, or of one that a handler reads
// of the in-cluster provider; it returns nil for others.
func appendOurs(to []byte, name string, value []byte) []byte {
	if !strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") && name != incluster.AnnotationSkipDeleteCheck {
		return nil
	}
	return append(to, value...)
}

// appendMembers appends the value of a member as appendObject does if it is an object, and
// otherwise unchanged.
func appendMembers(to, value []byte, appendValue func(to []byte, name string, value []byte) []byte) []byte {
	read, err := appendObject(to, value, appendValue)
	if err != nil {
		return append(to, value...)
	}
	return read
}

// shortenMessages returns an answer with its long parts cut: it can quote an object's values.
func shortenMessages(response admission.Response) admission.Response {
	for i, warning := range response.Warnings {
		response.Warnings[i] = shortText(warning)
	}
	if response.Result == nil {
		return response
	}
	result := response.Result.DeepCopy()
	result.Message = shortText(result.Message)
	if details := result.Details; details != nil {
		details.Name = shortText(details.Name)
		for i, cause := range details.Causes {
			details.Causes[i].Message, details.Causes[i].Field = shortText(cause.Message), shortText(cause.Field)
		}
	}
	response.Result = result
	return response
}

func shortText(text string) string {
	if len(text) <= maxMessageBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessageBytes], "") + "..."
}
