package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// createRequest represents one create call.
type createRequest struct {
	draft   *draft
	dryRun  bool
	user    authenticationv1.UserInfo
	subject subject
	// grant is the right of the user to use the named pool, or the parent; nil if there is none.
	grant *ipam.Grant
	// atDrop is called with the function that drops the block of a dry run, which is held until then; nil:
	// the block is not held.
	atDrop func(drop func())
}

func isDryRun(req admission.Request) bool { return req.DryRun != nil && *req.DryRun }

// unreadable answers an object that cannot be decoded: with the errors of the schema, which name
// the field, or else with the error of the decoder.
func (s *services) unreadable(kind string, d *draft, cause error) admission.Response {
	if errs := append(s.schemas.Errors(kind, d.object), durations(d)...); len(errs) > 0 {
		return denied(subject{kind: kind, name: d.text("metadata", "name")}.invalid(errs...))
	}
	return admission.Errored(http.StatusBadRequest, cause)
}

// durations refuses times that cannot be read. To a schema they are strings.
func durations(d *draft) field.ErrorList {
	var errs field.ErrorList
	for _, name := range []string{"reuseDelay", "retentionPeriod"} {
		text, isStated, _ := unstructured.NestedString(d.object, "spec", name)
		if _, err := time.ParseDuration(text); err != nil && isStated {
			errs = append(errs, field.Invalid(field.NewPath("spec", name), text, "is not a duration: write one such as 90s or 36h"))
		}
	}
	return errs
}

// generatedPrefix is the length of generateName that the API server itself would use.
const generatedPrefix = 58

// nameFor returns the name of an object that is being created. With generateName the API server
// would make a name only after admission, too late for a record to carry it; 8 random characters
// instead of its 5 make a collision so unlikely that no retry is needed.
func nameFor(meta metav1.Object) string {
	prefix := meta.GetGenerateName()
	if meta.GetName() != "" || prefix == "" {
		return meta.GetName()
	}
	return prefix[:min(len(prefix), generatedPrefix)] + rand.String(8)
}

// metadataErrors returns the errors for which the API server will refuse the metadata, after
// admission.
func metadataErrors(meta metav1.Object, namespaced bool) field.ErrorList {
	return validation.ValidateObjectMetaAccessor(meta, namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// refuseExisting returns a refusal if the object exists.
func (s *services) refuseExisting(ctx context.Context, cached client.Reader, obj client.Object, target subject) error {
	isPresent, err := exists(ctx, cached, s.Live, obj)
	switch {
	case err != nil:
		return target.refusal(err)
	case isPresent:
		return target.alreadyExists()
	}
	return nil
}

// exists reports whether an object exists. If the cache shows the object, it asks the API server
// again, because the object may have been deleted since.
func exists(ctx context.Context, cached, live client.Reader, obj client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(obj)
	for _, reader := range []client.Reader{cached, live} {
		err := reader.Get(ctx, key, obj)
		if kubeutil.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking whether %q exists: %w", key.Name, err)
		}
	}
	return true, nil
}

// withGrant returns the request with the right of the user to use the pool that it names. It asks
// for the right if the request lacks it, and if the pool or the namespace is not known yet. It
// ignores the grant in the request: an object states that, and its creator must not decide it.
func (s *services) withGrant(ctx context.Context, user authenticationv1.UserInfo, request ipam.Request) (ipam.Request, error) {
	request.Grant = nil
	if !s.Catalog.LacksRight(request) {
		return request, nil
	}
	pool, _ := s.Catalog.Pool(request.Pool)
	isAllowed, err := s.Rights.MayUse(ctx, user, request.Pool)
	if isAllowed {
		request.Grant = &ipam.Grant{PoolUID: pool.Spec.UID}
	}
	return request, err
}

// refreshed calls resolve. If an object is missing, it reads the objects of the request live, because
// the caches may be behind, and calls resolve again. If then a pool is not ready because its own
// record is on its way, it waits for that, and calls resolve a last time.
func refreshed[T any](ctx context.Context, s *services, request ipam.Request, resolve func() (T, error)) (T, error) {
	resolved, err := resolve()
	if _, ok := errors.AsType[*ipam.MissingError](err); !ok {
		return resolved, err
	}
	if err := s.Catalog.Refresh(ctx, s.Live, request); err != nil {
		return resolved, err
	}
	resolved, err = resolve()
	if s.Catalog.AwaitRecords(ctx, err) {
		return resolve()
	}
	return resolved, err
}

// previewOrAllocate records the block of an order. For a dry run it only returns the record that would
// be made, without a name.
func (s *services) previewOrAllocate(ctx context.Context, r *createRequest, order allocator.Order) (ipam.Record, error) {
	if r.dryRun {
		record, err := s.preview(r, order)
		record.Name = ipam.Name{}
		return record, err
	}
	record, err := s.Allocator.Allocate(ctx, order)
	if err == nil && ctx.Err() != nil { // the caller is gone, and cannot take it
		s.Allocator.Discard(ctx, record)
		return ipam.Record{}, ipam.ErrUnconfirmed
	}
	return record, err
}

func (s *services) preview(r *createRequest, order allocator.Order) (ipam.Record, error) {
	if r.atDrop == nil {
		return s.Allocator.Preview(order)
	}
	record, drop, err := s.Allocator.PreviewHeld(order)
	r.atDrop(drop)
	return record, err
}
