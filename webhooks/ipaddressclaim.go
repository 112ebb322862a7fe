package webhooks

import (
	"context"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// While no replica runs, IPAddressClaims are made all the same and served later
// (failurePolicy ignore); but one that brings a grant is not let through unseen.
//
// +kubebuilder:webhook:path=/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddressclaim,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=create,versions=v1beta2,name=create.ipaddressclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddressclaim,mutating=true,failurePolicy=fail,sideEffects=None,groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=create,versions=v1beta2,name=grant.ipaddressclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// addressClaimMutator puts our finalizer on Cluster API's claims for our pools,
// and notes whether their maker may use the pool of another project. Of Cluster
// API's types it knows no more than the fields that it reads.
type addressClaimMutator struct {
	allocator *allocator.Allocator
	users     *users
}

// Handle implements admission.Handler.
func (m *addressClaimMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	obj := unstructured.Unstructured{Object: d.object}
	claim := adapt.AddressClaim{
		Namespace: req.Namespace, Name: obj.GetName(), PoolGroup: d.text("spec", "poolRef", "apiGroup"),
		PoolKind: d.text("spec", "poolRef", "kind"), PoolName: d.text("spec", "poolRef", "name"),
		Annotations: obj.GetAnnotations(),
	}
	if !adapt.IsOurs(claim.PoolGroup, claim.PoolKind) {
		return admission.Allowed("")
	}
	request, errs := adapt.AddressRequest(claim)
	if len(errs) > 0 {
		return denied(subject{group: allocator.AddressClaimGroup, kind: allocator.AddressClaimKind, name: claim.Name}.invalid(errs...))
	}
	request.Granted = false // what the claim says of it is not the user's to say
	granted := false
	if m.allocator.NeedsGrant(request) {
		if granted, err = m.users.may(ctx, req.UserInfo, request.Pool); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	d.grant(&v1alpha1.PoolReference{Name: claim.PoolName}, granted)
	if finalizers := obj.GetFinalizers(); !slices.Contains(finalizers, v1alpha1.FinalizerRelease) {
		obj.SetFinalizers(append(finalizers, v1alpha1.FinalizerRelease))
	}
	return d.response()
}

// Where no replica runs, IPAddresses of other makers are recorded later.
//
// +kubebuilder:webhook:path=/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddress,mutating=true,failurePolicy=ignore,sideEffects=NoneOnDryRun,groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=create,versions=v1beta2,name=create.ipaddress.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// addressMutator records the address of an IPAddress that somebody else than the
// operator makes: a person, a restore or a move. Nobody is given the address from
// then on. It refuses none: what is in conflict is in use all the same, and the
// claim's condition says so.
type addressMutator struct {
	allocator *allocator.Allocator
}

// Handle implements admission.Handler.
func (m *addressMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	kind, pool := d.text("spec", "poolRef", "kind"), d.text("spec", "poolRef", "name")
	if !adapt.IsOurs(d.text("spec", "poolRef", "apiGroup"), kind) || req.DryRun != nil && *req.DryRun {
		return admission.Allowed("")
	}
	key := adapt.PoolOfAddress(kind, req.Namespace, pool)
	if key == (ipam.PoolKey{}) { // of a class: its controller finds the pool
		key = adapt.PoolOfAddress(d.text("metadata", "labels", v1alpha1.LabelPoolKind), req.Namespace, d.text("metadata", "labels", v1alpha1.LabelPool))
	}
	name := ipam.Name{Namespace: req.Namespace, Name: d.text("metadata", "name")}
	record, err := m.allocator.EnterAddress(ctx, name, key, d.text("spec", "address"))
	if err != nil {
		return admission.Allowed("").WithWarnings("the address is not recorded yet: " + m.allocator.Redacted(req.Namespace, err).Error())
	}
	_ = d.set(record.Name.Name, "metadata", "annotations", v1alpha1.AnnotationAllocation) // metadata is a map: the API server has read it
	return d.response()
}
