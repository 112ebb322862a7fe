package webhooks

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// What an object may have. Kubernetes bounds neither the number of labels nor that of owners, and
// allows an object of 3 MiB. A pool with the most ranges, reserved addresses and classes that its
// schema allows, and with all of that once more in an annotation of kubectl apply, is within the
// bounds. So is, with what admission adds to it, what etcd stores (1.5 MiB by default): no block is
// recorded for an object that is too large to be stored.
const (
	maxObjectBytes = 512 << 10
	maxLabels      = 256
	maxAnnotations = 256
	maxOwners      = 64
	maxFinalizers  = 64
	// maxEntries bounds the list items and fields of an object, at any depth.
	maxEntries = 4096
	// maxStringBytes bounds each string but annotations and those of the status. The longest that a
	// schema allows is a user's name of 1,024 characters.
	maxStringBytes = 4 << 10
)

// What an answer may have.
const (
	maxErrors       = 10
	maxMessageBytes = 4 << 10
)

// bounded refuses objects that are larger than the bounds, before anything of them is decoded, and
// leaves out of all others what the handler does not read. An update is refused only if the object
// grew beyond a bound: what is stored can be edited. So can what is being deleted, and the operator
// writes its status in any case.
type bounded struct {
	handler admission.Handler
	// operator is the user name of the operator itself.
	operator string
}

// Handle implements admission.Handler.
func (b bounded) Handle(ctx context.Context, req admission.Request) admission.Response {
	object, old := measure(req.Object.Raw), measure(req.OldObject.Raw)
	if !object.deleted && req.UserInfo.Username != b.operator {
		if errs := object.exceeded(old); len(errs) > 0 {
			s := subject{group: req.Kind.Group, kind: req.Kind.Kind, name: req.Name}
			return denied(s.invalid(errs...))
		}
	}
	creates := req.Operation == admissionv1.Create
	req.Object.Raw, req.OldObject.Raw = withoutUnread(req.Object.Raw, creates), withoutUnread(req.OldObject.Raw, creates)
	return shortened(b.handler.Handle(ctx, req))
}

// measured is how large an object is.
type measured struct {
	// bytes are those without managed fields, which are others with each user that writes; whole is
	// with them.
	bytes, whole                                     int
	labels, annotations, owners, finalizers, entries int
	longest                                          int
	deleted                                          bool
}

// measure measures an object. Of what is not one, only the bytes are counted: the handler refuses it.
func measure(text []byte) measured {
	m := measured{bytes: len(text), whole: len(text)}
	_ = eachMember(text, func(name, value []byte) {
		if string(name) == "metadata" {
			_ = eachMember(value, m.addMetadata)
			return
		}
		c := count(value)
		m.entries += c.all
		if string(name) != "status" {
			m.longest = max(m.longest, c.longest)
		}
	})
	return m
}

func (m *measured) addMetadata(name, value []byte) {
	if string(name) == "managedFields" {
		m.bytes -= len(`"managedFields":`) + len(value) + len(`,`)
		return
	}
	c := count(value)
	m.entries += c.all
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
	case "finalizers":
		m.finalizers = c.direct
	case "deletionTimestamp":
		m.deleted = true
	}
}

// whole names all of an object that is bounded, in place of a field.
const whole = "metadata and spec"

// exceeded returns an error for each bound that an object exceeds. The older object, whose measure
// is zero if there is none, may exceed it as much.
func (m measured) exceeded(old measured) field.ErrorList {
	var errs field.ErrorList
	size := m.bytes
	if old.whole == 0 {
		size = m.whole // what is stored
	}
	if size > maxObjectBytes && size > old.bytes {
		errs = append(errs, &field.Error{
			Type: field.ErrorTypeTooLong, Field: whole, BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("have %d bytes, and may have %d: remove annotations or list items", size, maxObjectBytes),
		})
	}
	if m.longest > maxStringBytes && m.longest > old.longest {
		errs = append(errs, &field.Error{
			Type: field.ErrorTypeTooLong, Field: whole, BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("have a name or a value of %d bytes, and each may have %d: make it shorter", m.longest, maxStringBytes),
		})
	}
	metadata := field.NewPath("metadata")
	for _, c := range []struct {
		path             *field.Path
		count, old, most int
	}{
		{metadata.Child("labels"), m.labels, old.labels, maxLabels},
		{metadata.Child("annotations"), m.annotations, old.annotations, maxAnnotations},
		{metadata.Child("ownerReferences"), m.owners, old.owners, maxOwners},
		{metadata.Child("finalizers"), m.finalizers, old.finalizers, maxFinalizers},
		{field.NewPath(whole), m.entries, old.entries, maxEntries},
	} {
		if c.count > c.most && c.count > c.old {
			tooMany := field.TooMany(c.path, c.count, c.most)
			tooMany.Detail += ": remove some"
			errs = append(errs, tooMany)
		}
	}
	return errs
}

// withoutUnread leaves out of an object what no handler reads: the managed fields, and, unless the
// object is created, labels, owners, finalizers, and annotations of others. A text that is not an
// object stays as it is.
func withoutUnread(text []byte, creates bool) []byte {
	annotations := func(to []byte, name string, value []byte) []byte {
		if !creates && !strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") {
			return nil
		}
		return append(to, value...)
	}
	metadata := func(to []byte, name string, value []byte) []byte {
		switch name {
		case "managedFields":
			return nil
		case "labels", "ownerReferences", "finalizers":
			if !creates {
				return nil
			}
		case "annotations":
			return appendMembers(to, value, annotations)
		}
		return append(to, value...)
	}
	read, err := appendObject(make([]byte, 0, len(text)), text, func(to []byte, name string, value []byte) []byte {
		if name == "metadata" {
			return appendMembers(to, value, metadata)
		}
		return append(to, value...)
	})
	if err != nil {
		return text
	}
	return read
}

// appendMembers appends the value of a member that is an object as appendObject does, and any other as
// it is.
func appendMembers(to, value []byte, appendValue func(to []byte, name string, value []byte) []byte) []byte {
	read, err := appendObject(to, value, appendValue)
	if err != nil {
		return append(to, value...)
	}
	return read
}

// shortened returns an answer without what makes it long: it may quote an object's values.
func shortened(response admission.Response) admission.Response {
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
