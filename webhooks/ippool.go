package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/manifests/schemas"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ippool,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=ippools,verbs=create,versions=v1alpha1,name=create.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-localippool,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=localippools,verbs=create,versions=v1alpha1,name=create.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ippool,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=update,versions=v1alpha1,name=keep.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-localippool,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=update,versions=v1alpha1,name=keep.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// poolMutator implements a webhook that records the CIDR of a pool of one kind when it is created:
// a root's in its routing domain, a child's in its parent. It restores filled-in fields when an
// update leaves them out.
type poolMutator struct {
	kind      v1alpha1.PoolKind
	ledger    *ledger.Ledger
	catalog   *inventory.Catalog
	queue     *queue.Queue
	allocator *allocator.Allocator
	live      client.Reader
	decoder   admission.Decoder
	schemas   schemas.Schemas
	rights    *authorize.Rights
}

// Handle implements admission.Handler.
func (m *poolMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		return restorePool(d, req.OldObject.Raw)
	}
	obj := v1alpha1.NewPool(m.kind)
	if err := m.decoder.Decode(req, obj); err != nil {
		return unreadable(m.schemas, string(m.kind), d, err)
	}
	obj.SetNamespace(req.Namespace) // empty for a cluster-scoped one
	obj.SetName(nameFor(obj))
	r := &poolRequest{obj: obj, draft: d, dryRun: req.DryRun != nil && *req.DryRun, user: req.UserInfo, subject: poolSubject(obj)}
	r.subject.ifTaken = "choose another cidr, make this pool a child of the other, or give it another routingDomain"
	return m.create(ctx, r)
}

// restorePool restores the fields that were filled into a pool and that an update left out.
func restorePool(d *draft, old []byte) admission.Response {
	oldObject := map[string]any{}
	if err := json.Unmarshal(old, &oldObject); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := d.restoreFields(oldObject, "cidr", "ipFamily", "routingDomain"); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return d.response()
}

// poolSubject returns a pool as the subject of an answer.
func poolSubject(obj v1alpha1.Pool) subject {
	kind := string(obj.PoolKind())
	return subject{kind: kind, plural: strings.ToLower(kind) + "s", name: obj.GetName()}
}

// poolRequest represents one create call.
type poolRequest struct {
	obj     v1alpha1.Pool
	draft   *draft
	dryRun  bool
	user    authenticationv1.UserInfo
	subject subject
	// grant is the right of the user to use the parent; nil if there is none.
	grant *ipam.Grant
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
	isPresent, err := exists(ctx, m.live, m.live, r.copy())
	switch {
	case err != nil:
		return denied(r.subject.refusal(err))
	case isPresent:
		return denied(r.subject.alreadyExists())
	}
	record, err := m.previewOrAllocate(ctx, r, pool)
	if record.Block.IsValid() {
		pool.Family = ipam.FamilyOf(record.Block)
	}
	if err != nil && !canWait(err) {
		return denied(r.subject.refusal(m.catalog.Redact(r.obj.GetNamespace(), err)))
	}
	if err != nil {
		if limitErr := m.queue.MayWait(r.obj.GetNamespace(), pool.ParentRequest()); limitErr != nil {
			return denied(r.subject.refusal(limitErr))
		}
	}
	if errs := m.checkCarvedBlock(ctx, r, record); len(errs) > 0 {
		return denied(r.subject.invalid(errs...))
	}
	if err := r.fillDraft(pool, record); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	warnings := slices.Concat(classWarnings(m.catalog, pool), gatewayWarnings, gatewayHeld(m.ledger, m.catalog, pool))
	if err != nil {
		warnings = append(warnings, err.Error()+": the pool waits")
	}
	return r.draft.response(warnings...)
}

// checkCycle refuses a pool that is among its own ancestors.
func (m *poolMutator) checkCycle(pool ipam.Pool) field.ErrorList {
	if !pool.IsChild() || !m.catalog.Descends(pool.Home, pool.Key) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "parentRef", "name"), pool.Home.Name,
		"is itself a descendant of this pool: name a parent outside its own subtree")}
}

// previewOrAllocate records the pool's CIDR. For a dry run it only returns the record that would be made.
func (m *poolMutator) previewOrAllocate(ctx context.Context, r *poolRequest, pool ipam.Pool) (ipam.Record, error) {
	if namespace := pool.Key.Namespace; namespace != "" {
		if err := m.catalog.EnsureNamespace(ctx, m.live, namespace); err != nil {
			return ipam.Record{}, err
		}
	}
	order, err := m.order(ctx, r, pool)
	if _, ok := errors.AsType[*ipam.MissingError](err); ok {
		if err := m.catalog.Refresh(ctx, m.live, ipam.Request{Pool: pool.Home}); err != nil {
			return ipam.Record{}, err
		}
		order, err = m.order(ctx, r, pool)
	}
	if err != nil {
		return ipam.Record{}, err
	}
	if r.dryRun {
		return m.allocator.Preview(order)
	}
	record, err := m.allocator.Allocate(ctx, order)
	if err == nil && ctx.Err() != nil { // the caller is gone, and cannot take it
		m.allocator.Discard(ctx, record)
		return ipam.Record{}, ipam.ErrUnconfirmed
	}
	return record, err
}

// order returns the order for the pool's CIDR, with the right to use its parent if that needs one.
func (m *poolMutator) order(ctx context.Context, r *poolRequest, pool ipam.Pool) (allocator.Order, error) {
	request, err := withGrant(ctx, m.catalog, m.rights, r.user, pool.ParentRequest())
	if err != nil {
		return allocator.Order{}, err
	}
	pool.ParentGrant, r.grant = request.Grant, request.Grant
	order, err := m.allocator.PoolOrder(pool)
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
		m.allocator.Discard(ctx, record)
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
	if record.Block.IsValid() {
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
func classWarnings(catalog *inventory.Catalog, pool ipam.Pool) []string {
	var unknown, notAllowed, other []string
	for _, name := range pool.Classes {
		class, ok := catalog.Class(name)
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
	switch len(unknown) {
	case 0:
	case 1:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: there is no IPClass %s: create it, or correct the name", listNames(unknown)))
	default:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: there are no IPClasses %s: create them, or correct the names", listNames(unknown)))
	}
	switch len(notAllowed) {
	case 0:
	case 1:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClass %s does not allow LocalIPPools and is not served from here: remove it, or ask for its spec.allowLocalPools", listNames(notAllowed)))
	default:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClasses %s do not allow LocalIPPools and are not served from here: remove them, or ask for their spec.allowLocalPools", listNames(notAllowed)))
	}
	switch len(other) {
	case 0:
	case 1:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClass %s does not hand out %s, the family of this pool: remove it, as it is not served from here", listNames(other), pool.Family))
	default:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClasses %s do not hand out %s, the family of this pool: remove them, as they are not served from here", listNames(other), pool.Family))
	}
	return warnings
}

// listNames returns the first few names, quoted, and the number of the others.
func listNames(names []string) string {
	return ipam.FormatList(names, maxListedClasses, strconv.Quote, ", ")
}
