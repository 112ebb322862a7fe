package webhooks

import (
	"context"
	"errors"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// While no replica runs, IPAddressClaims are still made, and served later (failurePolicy ignore);
// but a claim that brings a grant is not admitted unchecked.
//
// +kubebuilder:webhook:path=/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddressclaim,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=create,versions=v1beta2,name=create.ipaddressclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddressclaim,mutating=true,failurePolicy=fail,sideEffects=None,groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=create,versions=v1beta2,name=grant.ipaddressclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddressclaim,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=update,versions=v1beta2,name=keep.ipaddressclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// addressClaimMutator implements a webhook that puts our finalizer on Cluster API's claims for our
// pools, and notes whether their creator can use the pool of another project. It restores the notes
// when an update leaves them out. Of Cluster API's types it knows only the fields that it reads.
type addressClaimMutator struct{ *services }

// Handle implements admission.Handler.
func (m *addressClaimMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		return d.restoreResponse(req.OldObject.Raw, nil)
	}
	obj := unstructured.Unstructured{Object: d.object}
	claim := convert.AddressClaim{
		Namespace: req.Namespace, Name: nameFor(&obj), PoolGroup: d.text("spec", "poolRef", "apiGroup"),
		PoolKind: d.text("spec", "poolRef", "kind"), PoolName: d.text("spec", "poolRef", "name"),
		Annotations: obj.GetAnnotations(),
	}
	if !convert.IsOwnTarget(claim.PoolGroup, claim.PoolKind) {
		return unservedResponse(claim)
	}
	request, errs := convert.AddressRequest(claim)
	if len(errs) > 0 {
		return denied(addressClaimSubject(claim.Name).invalid(errs...))
	}
	// Without the project of a new namespace the claim waits, and is judged later.
	_ = m.Catalog.EnsureNamespace(ctx, m.Live, req.Namespace)
	if _, ok := m.Catalog.Pool(request.Pool); request.Pool.Kind == ipam.PoolKindIPPool && !ok {
		_ = m.Catalog.Refresh(ctx, m.Live, request) // without the pool, the grant is for any pool of the name
	}
	request, err = m.withGrant(ctx, req.UserInfo, request)
	if err != nil {
		return denied(addressClaimSubject(claim.Name).refusal(err))
	}
	d.setGrant(request.Pool, request.Grant)
	d.setRequestedBy(req.UserInfo.Username, request.Grant != nil || m.Catalog.LacksRight(request))
	if err := d.addFinalizer(obj.GetFinalizers(), v1alpha1.FinalizerRelease); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return d.response()
}

func addressClaimSubject(name string) subject {
	return subject{group: convert.AddressClaimGroup, kind: convert.AddressClaimKind, name: name}
}

// unservedResponse admits a claim that names no pool or class of ours, with a warning if it uses our group.
func unservedResponse(claim convert.AddressClaim) admission.Response {
	if !convert.IsOurGroup(claim.PoolGroup) {
		return admission.Allowed("")
	}
	return admission.Allowed("").WithWarnings(convert.UnknownKind(claim.PoolKind).Error())
}

// While no replica runs, the IPAddresses of other makers are recorded later.
//
// +kubebuilder:webhook:path=/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddress,mutating=true,failurePolicy=ignore,sideEffects=NoneOnDryRun,groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=create,versions=v1beta2,name=create.ipaddress.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// addressMutator implements a webhook that records the address of an IPAddress that the operator
// does not make: a person, a restore or a move makes it. No other holder gets the address from then
// on. The webhook refuses none: an address in conflict is in use nevertheless, and the claim's
// condition reports the conflict.
type addressMutator struct{ *services }

// Handle implements admission.Handler.
func (m *addressMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	kind, pool := d.text("spec", "poolRef", "kind"), d.text("spec", "poolRef", "name")
	if !convert.IsOwnTarget(d.text("spec", "poolRef", "apiGroup"), kind) || isDryRun(req) {
		return admission.Allowed("")
	}
	key, class := convert.PoolOfAddress(kind, req.Namespace, pool), ""
	if key == (ipam.PoolKey{}) { // of a class: its controller finds the pool
		class = pool
		key = convert.PoolOfAddress(d.text("metadata", "labels", v1alpha1.LabelPoolKind), req.Namespace, d.text("metadata", "labels", v1alpha1.LabelPool))
	}
	// Without the project of a new namespace the address is recorded later.
	_ = m.Catalog.EnsureNamespace(ctx, m.Live, req.Namespace)
	name := ipam.Name{Namespace: req.Namespace, Name: d.text("metadata", "name")}
	address := allocator.Address{Address: d.text("spec", "address"), Gateway: d.text("spec", "gateway"), Class: class}
	record, err := m.Allocator.RecordAddress(ctx, name, key, address)
	if err != nil {
		return admission.Allowed("").WithWarnings(unrecordedWarning(m.Catalog.Redact(req.Namespace, err)))
	}
	_ = d.set(record.Name.Name, "metadata", "annotations", v1alpha1.AnnotationAllocation) // metadata is a map: the API server has read it
	return d.response()
}

// unrecordedWarning returns a warning with the reason why an address is not recorded yet, and the remedy.
func unrecordedWarning(err error) string {
	text := "the address is not recorded yet: " + err.Error()
	_, isTaken := errors.AsType[*ipam.TakenError](err)
	_, isUnserved := errors.AsType[ipam.Unserved](err)
	_, isInvalid := errors.AsType[*field.Error](err)
	switch {
	case isTaken:
		return text + ": delete this IPAddress, or have the other released"
	case isUnserved, isInvalid:
		return text
	default:
		return text + ": wait until it is tried again by itself"
	}
}
