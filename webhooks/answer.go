package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// reasonInsufficientStorage is the reason for HTTP 507 (RFC 4918 section 11.5).
const reasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// subject represents the object that an answer is about.
type subject struct {
	// group is empty if it is our own group.
	group, kind, name string
	// blockField is the field that asks for a block, by default spec.cidr, and ifTaken the advice if
	// another holder has it.
	blockField, ifTaken string
}

func (s subject) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: cmp.Or(s.group, v1alpha1.GroupVersion.Group), Kind: s.kind}
}

// refusal converts an error into the answer of admission. No other code decides the effect of an
// error there.
func (s subject) refusal(err error) error {
	var policy *ipam.PolicyError
	var taken *ipam.TakenError
	var exhausted *ipam.ExhaustedError
	var limit *ipam.LimitError
	var waiting *ipam.TooManyWaitingError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &limit):
		return withLimitCause(apierrors.NewForbidden(s.resource(), s.name, limit))
	case errors.As(err, &waiting):
		return withLimitCause(apierrors.NewTooManyRequests(err.Error(), 0)) // a retry in a second would not help
	case errors.As(err, &policy) && policy.Value == nil:
		return s.invalid(field.Required(field.NewPath(policy.Field), policy.Remedy))
	case errors.As(err, &policy):
		return s.invalid(field.Invalid(field.NewPath(policy.Field), policy.Value, policy.Remedy))
	case errors.As(err, &taken):
		return s.conflict(taken)
	case errors.As(err, &exhausted):
		return s.insufficient(exhausted.Error() + ": ask for a smaller block, release one, or add a pool")
	case errors.Is(err, ipam.ErrTooManyUnclaimed):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case ipam.IsTransient(err):
		return tryAgain(err)
	case errors.Is(err, ipam.ErrPoolInUse):
		return apierrors.NewConflict(s.resource(), s.name, errors.New("spec.cidr: blocks of an earlier pool of this name are in use: ask for its CIDR, or delete them first"))
	case apierrors.IsUnauthorized(err): // of the operator itself: to the client it would mean its own
		return tryAgain(errors.New("the API server has refused the credentials of the operator, which are renewed by Kubernetes"))
	case errors.As(err, &status):
		return err
	case errors.Is(err, context.DeadlineExceeded): // that of the request, or of one step of it
		return tryAgain(describeTimeout(err))
	default:
		return apierrors.NewInternalError(fmt.Errorf("%w: try again", err))
	}
}

// withLimitCause adds the cause by which a client distinguishes a limit from a missing right. The
// error must have details.
func withLimitCause(err *apierrors.StatusError) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: v1alpha1.CauseLimitReached, Message: err.ErrStatus.Message})
	return err
}

// describeTimeout describes in plain words, and without the address of the API server, the call that was not
// answered in time.
func describeTimeout(err error) error {
	cause := context.DeadlineExceeded.Error()
	if call, ok := errors.AsType[*url.Error](err); ok {
		cause = call.Error()
	}
	return errors.New(strings.Replace(err.Error(), cause, "the API server did not answer in time", 1))
}

func tryAgain(err error) error {
	return apierrors.NewTooManyRequests(err.Error()+": try again", 1)
}

// invalid returns an error with the first errors, and the number of the others: the library takes
// quadratic time to join them.
func (s subject) invalid(errs ...*field.Error) error {
	omittedCount := len(errs) - maxErrors
	err := apierrors.NewInvalid(s.groupKind(), s.name, errs[:min(len(errs), maxErrors)])
	if omittedCount > 0 {
		err.ErrStatus.Message += fmt.Sprintf("; and %s", ipam.FormatCount(omittedCount, "more error"))
	}
	return err
}

// alreadyExists returns the error that the API server would return a moment later. If the request
// passed and the object were deleted in that moment, the API server would store it without any
// decision.
func (s subject) alreadyExists() error { return apierrors.NewAlreadyExists(s.resource(), s.name) }

func (s subject) resource() schema.GroupResource {
	return schema.GroupResource{Group: s.groupKind().Group, Resource: ipam.Plural(strings.ToLower(s.kind))}
}

func (s subject) conflict(err error) error {
	return apierrors.NewConflict(s.resource(), s.name, fmt.Errorf("%s: %w: %s", cmp.Or(s.blockField, "spec.cidr"), err, s.ifTaken))
}

// waitingConflict returns the refusal to delete a class for which claims wait.
func (s subject) waitingConflict(waiting []ipam.Holder) error {
	return apierrors.NewConflict(s.resource(), s.name, fmt.Errorf("class %s is in use by %s (%s): delete %s first, or give the class a pool that has room",
		s.name, ipam.FormatCount(len(waiting), "waiting claim"), ipam.FormatList(waiting, maxListedHolders, ipam.Holder.String, ", "), pronoun(len(waiting))))
}

func (s subject) insufficient(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonInsufficientStorage,
		Message: message,
		Details: &metav1.StatusDetails{Group: v1alpha1.GroupVersion.Group, Kind: s.kind, Name: s.name},
	}}
}

// denied returns the response that carries an error's own status to the client.
func denied(err error) admission.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	result := status.Status()
	response := admission.Denied("")
	response.Result = &result
	return response
}

// canWait reports whether an error only means that the request must wait.
func canWait(err error) bool {
	var missing *ipam.MissingError
	if exhausted, ok := errors.AsType[*ipam.ExhaustedError](err); ok {
		return exhausted.OnExhaustion == ipam.OnExhaustionWait
	}
	return errors.As(err, &missing)
}

const (
	// maxOccupants bounds the number of holders that are checked to find the ones that are not
	// being deleted.
	maxOccupants = 64
	// maxListedHolders is the number of holders that a refusal names.
	maxListedHolders = 3
)

func pronoun(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// draft holds an object as it was sent, with the filled-in fields. It is edited as it is, not by
// way of our types, so that no field that a client sent is lost.
type draft struct {
	object map[string]any
	// changes has the edits, as the answer contains them (RFC 6902).
	changes []jsonpatch.JsonPatchOperation
}

func newDraft(raw []byte) (*draft, error) {
	d := &draft{}
	if err := json.Unmarshal(raw, &d.object); err != nil {
		return nil, err
	}
	if d.object == nil {
		return nil, errors.New("the object is null")
	}
	return d, nil
}

// set fills in a field, and the objects around it. It ignores the empty string and nil, and a
// string that the field has already.
func (d *draft) set(value any, path ...string) error {
	text, isText := value.(string)
	if value == nil || isText && (text == "" || text == d.text(path...)) {
		return nil
	}
	for i := 1; i < len(path); i++ {
		if parent, found, _ := unstructured.NestedFieldNoCopy(d.object, path[:i]...); !found || parent == nil {
			if err := d.add(map[string]any{}, path[:i]); err != nil {
				return err
			}
		}
	}
	return d.add(value, path)
}

func (d *draft) add(value any, path []string) error {
	if err := unstructured.SetNestedField(d.object, value, path...); err != nil {
		return err
	}
	d.changes = append(d.changes, jsonpatch.NewOperation("add", pointer(path), value))
	return nil
}

// pointer returns the JSON pointer of a path (RFC 6901).
func pointer(path []string) string {
	escaped := make([]string, len(path))
	for i, name := range path {
		escaped[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
	}
	return "/" + strings.Join(escaped, "/")
}

// addFinalizer adds a finalizer to the existing ones.
func (d *draft) addFinalizer(finalizers []string, finalizer string) error {
	if slices.Contains(finalizers, finalizer) {
		return nil
	}
	values := []any{}
	for _, f := range append(slices.Clone(finalizers), finalizer) {
		values = append(values, f)
	}
	return d.set(values, "metadata", "finalizers")
}

// text returns a field that is a string, or "".
func (d *draft) text(path ...string) string {
	text, _, _ := unstructured.NestedString(d.object, path...)
	return text
}

// remove removes a field.
func (d *draft) remove(path ...string) {
	if _, found, _ := unstructured.NestedFieldNoCopy(d.object, path...); !found {
		return
	}
	unstructured.RemoveNestedField(d.object, path...)
	d.changes = append(d.changes, jsonpatch.NewOperation("remove", pointer(path), nil))
}

// setGrant notes, in case the object must wait, that its creator can use a pool. It removes the
// object's own notes about that.
func (d *draft) setGrant(pool ipam.PoolKey, grant *ipam.Grant) {
	d.remove("metadata", "annotations", v1alpha1.AnnotationUseGranted)
	d.remove("metadata", "annotations", v1alpha1.AnnotationRequester)
	if grant != nil {
		_ = d.set(convert.GrantText(pool, *grant), "metadata", "annotations", v1alpha1.AnnotationUseGranted) // metadata is a map: the API server has read it
	}
}

// setRequestedBy notes in an object that waits the user that created it. It removes the object's own
// note about that.
func (d *draft) setRequestedBy(user string, isWaiting bool) {
	d.remove("metadata", "annotations", v1alpha1.AnnotationRequestedBy)
	if isWaiting {
		_ = d.set(convert.RequestedBy(user), "metadata", "annotations", v1alpha1.AnnotationRequestedBy) // metadata is a map: the API server has read it
	}
}

// restore restores fields of spec that were filled in, or are immutable, and that an update of an
// older object left out, so that an object can be replaced by the manifest it was created from.
func (d *draft) restore(old map[string]any, names ...string) error {
	for _, name := range names {
		if _, found, _ := unstructured.NestedFieldNoCopy(d.object, "spec", name); found {
			continue
		}
		value, _, err := unstructured.NestedFieldCopy(old, "spec", name)
		if err != nil {
			return err
		}
		if err := d.set(value, "spec", name); err != nil {
			return err
		}
	}
	return nil
}

// setStatus writes the status, whatever status the object had.
func (d *draft) setStatus(status v1alpha1.IPClaimStatus) {
	d.changes = append(d.changes, jsonpatch.NewOperation("add", "/status", status))
}

// putBack writes what an older object has over what an update states, or leaves out: fields that only the
// operator writes. An update can be of the object in another cluster, from which `clusterctl move`
// continues, or of a manifest that was exported before.
func (d *draft) putBack(old map[string]any, path ...string) error {
	was, found, _ := unstructured.NestedFieldNoCopy(old, path...)
	now, _, _ := unstructured.NestedFieldNoCopy(d.object, path...)
	if !found || reflect.DeepEqual(was, now) {
		return nil
	}
	return d.set(was, path...)
}

// restoreResponse returns the answer to an update: it restores the fields of spec of the older object, and
// puts back those of the operator, and its annotations about the creator of an object that waits.
func (d *draft) restoreResponse(oldText []byte, operatorFields [][]string, names ...string) admission.Response {
	operatorFields = append(slices.Clone(operatorFields),
		[]string{"metadata", "annotations", v1alpha1.AnnotationUseGranted}, []string{"metadata", "annotations", v1alpha1.AnnotationRequestedBy})
	old := map[string]any{}
	err := json.Unmarshal(oldText, &old)
	if err == nil {
		err = d.restore(old, names...)
	}
	for _, path := range operatorFields {
		if err == nil {
			err = d.putBack(old, path...)
		}
	}
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return d.response()
}

// response returns the patch from the sent object to the filled-in one.
func (d *draft) response(warnings ...string) admission.Response {
	return admission.Patched("", d.changes...).WithWarnings(warnings...)
}
