package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ippool,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=ippools,verbs=create,versions=v1alpha1,name=create.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-localippool,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=localippools,verbs=create,versions=v1alpha1,name=create.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ippool,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=update,versions=v1alpha1,name=keep.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-localippool,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=update,versions=v1alpha1,name=keep.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// poolMutator implements a webhook that records the CIDR of a pool of one kind when it is created:
// a root's in its routing domain, a child's in its parent. It restores filled-in fields when an
// update leaves them out.
type poolMutator struct {
	*services
	kind v1alpha1.PoolKind
}

// Handle implements admission.Handler.
func (m *poolMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		return d.restoreResponse(req.OldObject.Raw, nil, "cidr", "ipFamily", "routingDomain")
	}
	obj := convert.NewPool(ipam.PoolKind(m.kind))
	if err := m.decoder.Decode(req, obj); err != nil {
		return m.unreadable(string(m.kind), d, err)
	}
	obj.SetNamespace(req.Namespace) // empty for a cluster-scoped one
	obj.SetName(nameFor(obj))
	r := &poolRequest{createRequest{draft: d, dryRun: isDryRun(req), user: req.UserInfo, subject: poolSubject(obj)}, obj}
	return m.create(ctx, r)
}

// poolSubject returns a pool as the subject of an answer.
func poolSubject(obj v1alpha1.Pool) subject {
	s := subject{
		kind: string(obj.PoolKind()), name: obj.GetName(),
		ifTaken: "choose another cidr, make this pool a child of the other, or give it another routingDomain",
	}
	if obj.PoolSpec().Occupies == v1alpha1.OccupiesRanges {
		s.blockField, s.ifTaken = "spec.ranges", "leave it out of the ranges, or have it released"
	}
	return s
}

// poolRequest represents the create call of a pool.
type poolRequest struct {
	createRequest
	obj v1alpha1.Pool
}

func (r *poolRequest) copy() v1alpha1.Pool { return r.obj.DeepCopyObject().(v1alpha1.Pool) }

func (m *poolMutator) create(ctx context.Context, r *poolRequest) admission.Response {
	pool, errs := convert.Pool(r.obj)
	errs = append(errs, metadataErrors(r.obj, m.kind == v1alpha1.PoolKindLocalIPPool)...)
	errs = append(errs, m.checkCycle(pool)...)
	gatewayWarnings, gatewayErrs := edgeGateway(r.obj, pool.CIDR)
	errs = append(errs, gatewayErrs...)
	if len(errs) == 0 {
		errs = m.schemas.Errors(string(m.kind), r.draft.object)
	}
	if len(errs) > 0 {
		return denied(r.subject.invalid(errs...))
	}
	if err := m.refuseExisting(ctx, m.Live, r.copy(), r.subject); err != nil {
		return denied(err)
	}
	if err := m.checkProvision(ctx, r.user, r.obj, pool.Classes); err != nil {
		return denied(err)
	}
	record, err := m.record(ctx, r, pool)
	if record.Block.IsValid() {
		pool.Family = ipam.FamilyOf(record.Block)
	}
	if err != nil && !canWait(err) {
		return denied(r.subject.refusal(m.Catalog.Redact(r.obj.GetNamespace(), err)))
	}
	if err != nil {
		if limitErr := m.Queue.MayWait(r.obj.GetNamespace(), pool.ParentRequest()); limitErr != nil {
			return denied(r.subject.refusal(limitErr))
		}
	}
	if errs := m.checkCarvedBlock(ctx, r, record); len(errs) > 0 {
		return denied(r.subject.invalid(errs...))
	}
	if err := r.fillDraft(pool, record); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	warnings := slices.Concat(m.classWarnings(pool), gatewayWarnings, m.gatewayHeld(pool))
	if err != nil {
		warnings = append(warnings, err.Error()+": the pool waits")
	}
	return r.draft.response(warnings...)
}

// checkProvision refuses a cluster-scoped pool that would back a class that has a provisioner, or is not
// known yet, if the user does not have the verb provision on the class. A namespace's own pool serves that
// namespace alone, and only if the class allows it.
func (s *services) checkProvision(ctx context.Context, user authenticationv1.UserInfo, obj v1alpha1.Pool, added []string) error {
	names := slices.DeleteFunc(slices.Clone(added), func(name string) bool {
		class, ok := s.Catalog.Class(name)
		return ok && class.Provisioner == ""
	})
	if obj.GetNamespace() != "" || len(names) == 0 {
		return nil
	}
	subject := poolSubject(obj)
	for _, name := range append([]string{""}, names...) { // first for all classes: there may be many
		isAllowed, err := s.Rights.MayProvision(ctx, user, name)
		switch {
		case err != nil:
			return subject.refusal(err)
		case name == "" && isAllowed:
			return nil
		case name != "" && !isAllowed:
			return apierrors.NewForbidden(subject.resource(), subject.name, fmt.Errorf("spec.classNames: user %q cannot add pools to the IPClass %q, which has a provisioner or does not exist: remove it, or have the verb provision on that ipclass granted",
				user.Username, name))
		}
	}
	return nil
}

// checkCycle refuses a pool that is among its own ancestors.
func (m *poolMutator) checkCycle(pool ipam.Pool) field.ErrorList {
	if !pool.IsChild() || !m.Catalog.Descends(pool.Home, pool.Key) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "parentRef", "name"), pool.Home.Name,
		"is itself a descendant of this pool: name a parent outside its own subtree")}
}

// record records the pool's CIDR.
func (m *poolMutator) record(ctx context.Context, r *poolRequest, pool ipam.Pool) (ipam.Record, error) {
	if namespace := pool.Key.Namespace; namespace != "" {
		if err := m.Catalog.EnsureNamespace(ctx, m.Live, namespace); err != nil {
			return ipam.Record{}, err
		}
	}
	order, err := refreshed(ctx, m.services, ipam.Request{Pool: pool.Home}, func() (allocator.Order, error) { return m.order(ctx, r, pool) })
	if err != nil {
		return ipam.Record{}, err
	}
	return m.previewOrAllocate(ctx, &r.createRequest, order)
}

// order returns the order for the pool's CIDR, with the right to use its parent if that needs one.
func (m *poolMutator) order(ctx context.Context, r *poolRequest, pool ipam.Pool) (allocator.Order, error) {
	request, err := m.withGrant(ctx, r.user, pool.ParentRequest())
	if err != nil {
		return allocator.Order{}, err
	}
	pool.ParentGrant, r.grant = request.Grant, request.Grant
	order, err := m.Allocator.PoolOrder(pool)
	order.Origin, order.RequestedBy = allocator.OriginAdmission, r.user.Username
	return order, err
}

// checkCarvedBlock reads the pool again with its new CIDR, with which ranges, gateway and bounds must agree.
func (m *poolMutator) checkCarvedBlock(ctx context.Context, r *poolRequest, record ipam.Record) field.ErrorList {
	if !record.Block.IsValid() || r.obj.PoolSpec().CIDR != "" {
		return nil
	}
	candidate := r.copy()
	candidate.PoolSpec().CIDR = record.Block.String()
	_, errs := convert.Pool(candidate)
	_, gatewayErrs := edgeGateway(candidate, record.Block)
	if errs = append(errs, gatewayErrs...); len(errs) > 0 && record.UID != "" {
		m.Allocator.Discard(ctx, record)
	}
	return errs
}

// edgeGateway judges the gateway of a pool that is the network or broadcast address of its
// subnet: it returns an error, or a warning if these addresses are for hosts.
func edgeGateway(obj v1alpha1.Pool, cidr netip.Prefix) (warnings []string, errs field.ErrorList) {
	network := obj.PoolSpec().Network
	err := convert.EdgeGateway(network, cidr)
	switch {
	case err == nil:
		return nil, nil
	case network.AllocateEdgeAddresses:
		return []string{fmt.Sprintf("%s: %s %s, unless its routers have that one", err.Field, err.BadValue, err.Detail)}, nil
	default:
		return nil, field.ErrorList{err}
	}
}

// fillDraft writes the decisions into the pool.
func (r *poolRequest) fillDraft(pool ipam.Pool, record ipam.Record) error {
	r.draft.setGrant(pool.Home, r.grant)
	r.draft.setRequestedBy(r.user.Username, !record.Block.IsValid())
	errs := []error{r.draft.set(r.obj.GetName(), "metadata", "name"), r.draft.addFinalizer(r.obj.GetFinalizers(), v1alpha1.FinalizerPool)}
	if record.Block.IsValid() && pool.Occupied == nil {
		errs = append(errs, r.draft.set(record.Block.String(), "spec", "cidr"))
	}
	if !pool.IsChild() {
		errs = append(errs, r.draft.set(pool.Home.Name, "spec", "routingDomain"))
	}
	errs = append(errs, r.draft.set(string(pool.Family), "spec", "ipFamily"))
	return errors.Join(errs...)
}

// maxListedClasses is the number of classes that a warning names.
const maxListedClasses = 5

// classWarnings returns warnings about the classNames of a pool that have no effect: names without
// a class, which may be created later, classes that do not allow a namespace's own pools, and
// classes of the other address family.
func (s *services) classWarnings(pool ipam.Pool) []string {
	var unknown, notAllowed, other []string
	for _, name := range pool.Classes {
		class, ok := s.Catalog.Class(name)
		policy, _ := errors.AsType[*ipam.PolicyError](class.Excludes(pool))
		switch {
		case !ok:
			unknown = append(unknown, name)
		case policy != nil && policy.Verdict == ipam.LocalPoolNotAllowed:
			notAllowed = append(notAllowed, name)
		case policy != nil:
			other = append(other, name)
		}
	}
	var warnings []string
	warn := func(names []string, one, several string) {
		format := several
		if len(names) == 1 {
			format = one
		}
		if len(names) > 0 {
			warnings = append(warnings, "spec.classNames: "+fmt.Sprintf(format, ipam.FormatList(names, maxListedClasses, strconv.Quote, ", ")))
		}
	}
	warn(unknown, "there is no IPClass %s: create it, or correct the name", "there are no IPClasses %s: create them, or correct the names")
	warn(notAllowed, "IPClass %s does not allow LocalIPPools and is not served from here: remove it, or ask for its spec.allowLocalPools",
		"IPClasses %s do not allow LocalIPPools and are not served from here: remove them, or ask for their spec.allowLocalPools")
	warn(other, "IPClass %s does not hand out "+string(pool.Family)+", the family of this pool: remove it, as it is not served from here",
		"IPClasses %s do not hand out "+string(pool.Family)+", the family of this pool: remove them, as they are not served from here")
	return warnings
}
