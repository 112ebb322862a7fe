package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
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

// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclaims,verbs=update,versions=v1alpha1,name=update.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// claimMutator implements a webhook that gives a claim its block and its status when it is created,
// and restores both when an update leaves them out.
type claimMutator struct {
	ledger    *ledger.Ledger
	catalog   *inventory.Catalog
	queue     *queue.Queue
	allocator *allocator.Allocator
	cached    client.Reader
	live      client.Reader
	decoder   admission.Decoder
	schemas   schemas.Schemas
	rights    *authorize.Rights
}

// Handle implements admission.Handler.
func (m *claimMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		return restoreAnswer(d, req.OldObject.Raw)
	}
	claim := &v1alpha1.IPClaim{}
	if err := m.decoder.Decode(req, claim); err != nil {
		return unreadable(m.schemas, "IPClaim", d, err)
	}
	claim.Namespace = req.Namespace
	claim.Name = nameFor(claim)
	r := &claimRequest{
		claim: claim, draft: d, dryRun: req.DryRun != nil && *req.DryRun, user: req.UserInfo,
		subject: subject{
			kind: "IPClaim", plural: "ipclaims", name: claim.Name,
			ifTaken: "leave cidr out to get a free block, or ask for another",
		},
	}
	response := m.create(ctx, r)
	if !response.Allowed && response.Result != nil {
		log.FromContext(ctx).V(1).Info("Refused a claim", "claim", r.holder().String(), "code", response.Result.Code, "reason", response.Result.Message)
	}
	return response
}

// restoreAnswer restores the parts of the answer to a claim that an update left out.
func restoreAnswer(d *draft, old []byte) admission.Response {
	oldObject := map[string]any{}
	if err := json.Unmarshal(old, &oldObject); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := d.restoreFields(oldObject, "className", "ipFamily", "prefixLength", "cidr", "allocationName", "reclaimPolicy"); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := d.restoreStatus(oldObject); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return d.response()
}

// claimRequest represents one create call.
type claimRequest struct {
	claim   *v1alpha1.IPClaim
	draft   *draft
	dryRun  bool
	user    authenticationv1.UserInfo
	subject subject
	// request is the request of the claim, and terms are the terms to which it is resolved.
	request ipam.Request
	terms   ipam.Terms
	// grant is the right of the user to use the named pool; nil if there is none.
	grant *ipam.Grant
}

func (m *claimMutator) create(ctx context.Context, r *claimRequest) admission.Response {
	r.draft.remove("status") // whatever it is: the answer has one
	request, errs := convert.Claim(r.claim)
	errs = append(errs, metadataErrors(r.claim, true)...)
	if len(errs) == 0 {
		errs = m.schemas.Errors("IPClaim", r.draft.object)
	}
	if len(errs) > 0 {
		return denied(r.subject.invalid(errs...))
	}
	isPresent, err := exists(ctx, m.claimReader(), m.live, r.claim.DeepCopy())
	switch {
	case err != nil:
		return denied(r.subject.refusal(err))
	case isPresent:
		return denied(r.subject.alreadyExists())
	}
	resolution, err := m.refreshAndResolve(ctx, r, request)
	r.request, r.terms = request, resolution.Terms
	var record ipam.Record
	if err == nil {
		record, err = m.previewOrAllocate(ctx, r, resolution)
	}
	if err == nil {
		outcome := convert.ClaimBound(record, m.poolOf(record, resolution))
		m.setCandidates(r, resolution, &outcome)
		return m.respond(ctx, r, outcome)
	}
	if !canWait(err) && !r.waitsForPolicy(err) {
		return denied(r.subject.refusal(m.catalog.Redact(r.claim.Namespace, err)))
	}
	if limitErr := m.queue.MayWait(r.claim.Namespace, request); limitErr != nil {
		return denied(r.subject.refusal(limitErr))
	}
	outcome := convert.ClaimWaits(err)
	m.setCandidates(r, resolution, &outcome)
	warning := err.Error() + ": the claim waits"
	if !m.queue.Serves(r.holder()) {
		outcome.Reason = v1alpha1.ReasonNotServed
		outcome.Message = fmt.Sprintf("the operator that answers does not serve namespace %s (--namespace): run one that does", r.claim.Namespace)
		warning += ", and " + outcome.Message
	}
	return m.respond(ctx, r, outcome, append([]string{warning}, m.suggestClasses(r, err)...)...)
}

// respond returns the response that stores the claim with the decisions and its status.
func (m *claimMutator) respond(ctx context.Context, r *claimRequest, outcome convert.ClaimOutcome, warnings ...string) admission.Response {
	if err := fillDraft(r, r.terms, outcome.Record); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	r.draft.setStatus(outcome.Status(v1alpha1.IPClaimStatus{}))
	logAdmitted(ctx, r, outcome)
	return r.draft.response(warnings...)
}

func logAdmitted(ctx context.Context, r *claimRequest, outcome convert.ClaimOutcome) {
	l := log.FromContext(ctx).V(1)
	if !l.Enabled() {
		return
	}
	values := []any{"claim", r.holder().String(), "phase", outcome.Phase, "reason", outcome.Reason, "dryRun", r.dryRun}
	if record := outcome.Record; outcome.Phase == v1alpha1.ClaimBound {
		values = append(values, "pool", record.Pool.String(), "block", record.Block.String(), "record", record.Name.String())
	}
	l.Info("Admitted a claim", values...)
}

// poolOf returns the pool of a record, as the request was resolved or as it was seen.
func (m *claimMutator) poolOf(record ipam.Record, resolution inventory.Resolution) ipam.Pool {
	for _, pool := range resolution.Pools {
		if pool.Key == record.Pool {
			return pool
		}
	}
	pool, _ := m.catalog.Pool(record.Pool)
	return pool
}

func (r *claimRequest) holder() ipam.Holder {
	return convert.HolderOfClaim(ipam.Name{Namespace: r.claim.Namespace, Name: r.claim.Name})
}

func (r *claimRequest) order(resolution inventory.Resolution) allocator.Order {
	return allocator.Order{
		Resolution: resolution, Origin: allocator.OriginAdmission, Holder: r.holder(), RequestedBy: r.user.Username,
	}
}

// claimReader returns the cache once that has all claims: before, it would make the caller wait. Until
// then, claimReader returns a live reader.
func (m *claimMutator) claimReader() client.Reader {
	if m.allocator.KnowsClaims() {
		return m.cached
	}
	return m.live
}

// waitsForPolicy reports whether a request that is against policy now may have been within it
// before: the claim returns from a backup, and the pool that its block is from may return after it.
func (r *claimRequest) waitsForPolicy(err error) bool {
	_, ok := errors.AsType[*ipam.PolicyError](err)
	return ok && r.claim.Spec.AllocationName != "" && r.claim.Spec.PoolRef == nil
}

// refreshAndResolve resolves the request. If an object is missing, it reads that object live and resolves
// once more, because the caches may be behind.
func (m *claimMutator) refreshAndResolve(ctx context.Context, r *claimRequest, request ipam.Request) (inventory.Resolution, error) {
	if err := m.catalog.EnsureNamespace(ctx, m.live, r.claim.Namespace); err != nil {
		return inventory.Resolution{}, err
	}
	resolution, err := m.resolveWithGrant(ctx, r, request)
	if _, ok := errors.AsType[*ipam.MissingError](err); !ok {
		return resolution, err
	}
	if err := m.catalog.Refresh(ctx, m.live, request); err != nil {
		return resolution, err
	}
	return m.resolveWithGrant(ctx, r, request)
}

// resolveWithGrant resolves the request, with the right to use the named pool if that needs one.
func (m *claimMutator) resolveWithGrant(ctx context.Context, r *claimRequest, request ipam.Request) (inventory.Resolution, error) {
	var err error
	if request, err = withGrant(ctx, m.catalog, m.rights, r.user, request); err != nil {
		return inventory.Resolution{}, err
	}
	r.grant = request.Grant
	return m.allocator.Resolve(ctx, request)
}

func (m *claimMutator) previewOrAllocate(ctx context.Context, r *claimRequest, resolution inventory.Resolution) (ipam.Record, error) {
	order := r.order(resolution)
	if r.dryRun {
		record, err := m.allocator.Preview(order)
		record.Name = ipam.Name{} // no record exists
		return record, err
	}
	if r.claim.Spec.AllocationName != "" {
		// A record is taken over only from a claim that certainly does not exist any more.
		if isPresent, err := exists(ctx, m.live, m.live, r.claim.DeepCopy()); isPresent || err != nil {
			return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
		}
		if record, ok := m.allocator.Restore(ctx, order, r.claim.Spec.AllocationName); ok {
			return record, nil
		}
	}
	record, err := m.allocator.Allocate(ctx, order)
	if err == nil && ctx.Err() != nil { // the caller is gone, and cannot take it
		m.allocator.Discard(ctx, record)
		return ipam.Record{}, ipam.ErrUnconfirmed
	}
	return record, err
}

// fillDraft writes the decisions into the claim.
func fillDraft(r *claimRequest, terms ipam.Terms, record ipam.Record) error {
	d := r.draft
	d.setGrant(r.request.Pool, r.grant)
	d.setRequestedBy(r.user.Username, !record.Block.IsValid())
	errs := []error{
		d.markAnswered(),
		d.set(r.claim.Name, "metadata", "name"),
		d.set(string(terms.Reclaim), "spec", "reclaimPolicy"),
	}
	if r.claim.Spec.PoolRef == nil && r.claim.Spec.PoolSelector == nil {
		errs = append(errs, d.set(terms.Class, "spec", "className"))
	}
	if terms.Family != "" {
		errs = append(errs, d.set(string(terms.Family), "spec", "ipFamily"))
		if terms.Length != ipam.NoLength {
			errs = append(errs, d.set(int64(terms.Length), "spec", "prefixLength"))
		}
	}
	d.remove("spec", "allocationName") // a restored claim may have the name from its former life
	if record.Block.IsValid() {
		errs = append(errs,
			d.set(record.Block.String(), "spec", "cidr"),
			d.set(record.Name.Name, "spec", "allocationName"))
	}
	return errors.Join(errs...)
}

// setCandidates adds to the answer to a dry run the pools that the claim can use, whether or not it
// would be bound, and their free space. So tenants without the right to read pools learn what
// concerns them. The list is not stored: it changes with every claim.
func (m *claimMutator) setCandidates(r *claimRequest, resolution inventory.Resolution, outcome *convert.ClaimOutcome) {
	if !r.dryRun {
		return
	}
	results := m.allocator.Consider(r.order(resolution), convert.MostCandidates)
	outcome.Candidates, outcome.Omitted = convert.CandidatesNow(results)
	for i := range outcome.Candidates {
		if capacity, ok := m.ledger.Capacity(results[i].Pool); ok {
			convert.SetFree(&outcome.Candidates[i], capacity.LargestFree, capacity.Available)
		}
	}
}

// suggestClasses returns a warning that names the classes that a claim could name, if the claim
// names no class that exists for it. The warning is not part of the status, as it changes with
// every class.
func (m *claimMutator) suggestClasses(r *claimRequest, err error) []string {
	missing, ok := errors.AsType[*ipam.MissingError](err)
	if !ok || missing.Reason != v1alpha1.ReasonClassNotFound && missing.Reason != v1alpha1.ReasonNoDefaultClass {
		return nil
	}
	classes := m.catalog.ClassesFor(r.request)
	if len(classes) == 0 {
		return nil
	}
	names := ipam.FormatList(classes, ipam.MaxListed, func(class inventory.ClassEntry) string {
		if class.Default {
			return fmt.Sprintf("%s (default for %s)", class.Name, class.Family)
		}
		return class.Name
	}, ", ")
	return []string{fmt.Sprintf("namespace %s may use the IPClasses %s: name one of them in spec.className", r.claim.Namespace, names)}
}
