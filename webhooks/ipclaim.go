package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// A replica can end, or fail to answer in time, while it is asked about the create of an IPClaim.
// The API server calls a webhook once. Then it refuses the object with an internal error, which
// clients do not retry, or ignores the failure and stores a claim without block and status. So two
// webhooks have the same handler, and the API server calls them in this order:
//
//   - create.ipclaim.ipam.cadastre.dev, whose failure is ignored,
//   - retry.ipclaim.ipam.cadastre.dev, whose failure refuses the claim. It is called only if the
//     first one has not answered: its match condition, has-no-answer in
//     config/webhook/match_conditions.yaml, is that the claim has no UID.
//
// An answer writes a UID as its mark. The API server removes the UID that a client sends, and writes
// its own when it stores the object. So no client can set the mark, and it is never stored.
//
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=true,failurePolicy=ignore,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=ipclaims,verbs=create,versions=v1alpha1,name=create.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=ipclaims,verbs=create,versions=v1alpha1,name=retry.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclaims,verbs=update,versions=v1alpha1,name=update.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclaims,verbs=update,versions=v1alpha1,name=update.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// claimMutator implements a webhook that gives a claim its block and its status when it is created,
// and restores both when an update leaves them out.
type claimMutator struct{ *services }

// Handle implements admission.Handler.
func (m *claimMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		sent := d.text("spec", "allocationName")
		response := d.restoreResponse(req.OldObject.Raw, [][]string{{"status"}, {"spec", "allocationName"}}, "className", "ipFamily", "prefixLength", "cidr", "reclaimPolicy")
		if kept := d.text("spec", "allocationName"); sent != "" && sent != kept {
			response = response.WithWarnings(fmt.Sprintf("spec.allocationName: is chosen by the operator, and stays %s: leave it out", kept))
		}
		return response
	}
	claim := &v1alpha1.IPClaim{}
	if err := m.decoder.Decode(req, claim); err != nil {
		return m.unreadable("IPClaim", d, err)
	}
	claim.Namespace = req.Namespace
	claim.Name = nameFor(claim)
	r := &claimRequest{claim: claim, createRequest: createRequest{
		draft: d, dryRun: isDryRun(req), user: req.UserInfo, subject: claimSubject(claim.Name),
	}}
	if req.UserInfo.Username == m.Operator {
		r.setPurpose()
	}
	response := m.create(ctx, r)
	if !response.Allowed && response.Result != nil {
		log.FromContext(ctx).V(1).Info("Refused a claim", "claim", r.holder().String(), "code", response.Result.Code, "reason", response.Result.Message)
	}
	return response
}

func claimSubject(name string) subject {
	return subject{kind: "IPClaim", name: name, ifTaken: "leave cidr out to get a free block, or ask for another"}
}

// claimPurpose represents the reason for which the operator itself creates a claim.
type claimPurpose int

const (
	// forNewCluster is the purpose of a claim of a Cluster that is being created: it is refused if it
	// would have to wait.
	forNewCluster claimPurpose = iota + 1
	// forExistingCluster is the purpose of a claim of a Cluster that exists: it waits for its block,
	// whatever the reason, so that its condition shows the reason.
	forExistingCluster
)

// claimRequest represents the create call of a claim.
type claimRequest struct {
	createRequest
	claim *v1alpha1.IPClaim
	// purpose is 0 for the claim of a user.
	purpose claimPurpose
	// request is the request of the claim, and terms are the terms to which it is resolved.
	request ipam.Request
	terms   ipam.Terms
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
	if err := m.refuseExisting(ctx, m.claimReader(), r.claim.DeepCopy(), r.subject); err != nil {
		return denied(err)
	}
	resolution, err := m.refreshAndResolve(ctx, r, request)
	r.request, r.terms = request, resolution.Terms
	var record ipam.Record
	if err == nil {
		record, err = m.restoreOrAllocate(ctx, r, resolution)
	}
	if err == nil {
		outcome := convert.ClaimBound(record, m.poolOf(record, resolution))
		m.setCandidates(r, resolution, &outcome)
		return m.respond(ctx, r, outcome)
	}
	if !r.mayWait(err) {
		return denied(r.refusal(m.Catalog.Redact(r.claim.Namespace, err)))
	}
	if limitErr := m.Queue.MayWait(r.claim.Namespace, request); limitErr != nil {
		return denied(r.subject.refusal(limitErr))
	}
	outcome := convert.ClaimWaits(err)
	m.setCandidates(r, resolution, &outcome)
	warning := err.Error() + ": the claim waits"
	if !m.Queue.Serves(r.holder()) {
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
	pool, _ := m.Catalog.Pool(record.Pool)
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
	if m.Allocator.KnowsClaims() {
		return m.cached
	}
	return m.Live
}

// setPurpose sets the purpose of a claim that the operator creates for a Cluster, and the user for
// whom it does.
func (r *claimRequest) setPurpose() {
	annotations := r.claim.Annotations
	switch {
	case annotations[v1alpha1.AnnotationClusterNetwork] == "":
		return
	case annotations[v1alpha1.AnnotationAttempt] != "":
		r.purpose = forNewCluster
	default:
		r.purpose = forExistingCluster
	}
	r.user.Username = cmp.Or(annotations[v1alpha1.AnnotationRequestedBy], r.user.Username)
}

// mayWait reports whether the claim is stored without a block because of the error.
func (r *claimRequest) mayWait(err error) bool {
	switch r.purpose {
	case forNewCluster:
		return false
	case forExistingCluster:
		_, ok := errors.AsType[ipam.Unserved](err)
		return ok
	}
	return canWait(err) || r.waitsForPolicy(err)
}

// refusal returns the answer to an error for which the claim does not wait.
func (r *claimRequest) refusal(err error) error {
	missing, ok := errors.AsType[*ipam.MissingError](err)
	switch {
	case !ok:
		return r.subject.refusal(err)
	case missing.Reason == v1alpha1.ReasonClassNotFound:
		return r.subject.invalid(field.Invalid(field.NewPath("spec", "className"), r.claim.Spec.ClassName, missing.Message))
	}
	return r.subject.insufficient(missing.Message)
}

// waitsForPolicy reports whether a request that is against policy now may have been within it
// before: the claim returns from a backup, and the pool that its block is from may return after it.
func (r *claimRequest) waitsForPolicy(err error) bool {
	_, ok := errors.AsType[*ipam.PolicyError](err)
	return ok && r.claim.Spec.AllocationName != "" && r.claim.Spec.PoolRef == nil
}

// refreshAndResolve resolves the request, with the right to use the named pool if that needs one.
func (m *claimMutator) refreshAndResolve(ctx context.Context, r *claimRequest, request ipam.Request) (inventory.Resolution, error) {
	if err := m.Catalog.EnsureNamespace(ctx, m.Live, r.claim.Namespace); err != nil {
		return inventory.Resolution{}, err
	}
	return refreshed(ctx, m.services, request, func() (inventory.Resolution, error) {
		granted, err := m.withGrant(ctx, r.user, request)
		if err != nil {
			return inventory.Resolution{}, err
		}
		r.grant = granted.Grant
		return m.Allocator.Resolve(ctx, granted)
	})
}

// restoreOrAllocate returns the record that the claim had in its former life, if it names one, or a
// new one.
func (m *claimMutator) restoreOrAllocate(ctx context.Context, r *claimRequest, resolution inventory.Resolution) (ipam.Record, error) {
	order := r.order(resolution)
	if name := r.claim.Spec.AllocationName; name != "" && r.dryRun {
		if record, ok := m.Allocator.Restorable(order, name); ok {
			return record, nil
		}
	} else if name != "" {
		// A record is taken over only from a claim that certainly does not exist any more.
		if isPresent, err := exists(ctx, m.Live, m.Live, r.claim.DeepCopy()); isPresent || err != nil {
			return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
		}
		if record, ok := m.Allocator.Restore(ctx, order, name); ok {
			return record, nil
		}
	}
	return m.previewOrAllocate(ctx, &r.createRequest, order)
}

// fillDraft writes the decisions into the claim.
func fillDraft(r *claimRequest, terms ipam.Terms, record ipam.Record) error {
	d := r.draft
	d.setGrant(r.request.Pool, r.grant)
	d.setRequestedBy(r.user.Username, !record.Block.IsValid())
	errs := []error{
		d.set("answered", "metadata", "uid"), // the mark of an answer
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
	results := m.Allocator.Consider(r.order(resolution), convert.MostCandidates)
	outcome.Candidates, outcome.Omitted = convert.CandidatesNow(results)
	for i := range outcome.Candidates {
		if capacity, ok := m.Ledger.Capacity(results[i].Pool); ok {
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
	classes := m.Catalog.ClassesFor(r.request)
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

// updateClaim refuses a block that the operator did not fill in, and reclaimPolicy Retain if class
// and pool do not allow it. The claim's CEL rules check all that concerns one claim alone.
func (s *services) updateClaim(_ context.Context, req admission.Request, before, after *v1alpha1.IPClaim) (admission.Warnings, error) {
	if req.UserInfo.Username == s.Operator {
		return nil, nil
	}
	var errs field.ErrorList
	for _, f := range []struct{ name, before, after string }{
		{"className", before.Spec.ClassName, after.Spec.ClassName},
		{"cidr", before.Spec.CIDR, after.Spec.CIDR},
		{"allocationName", before.Spec.AllocationName, after.Spec.AllocationName},
	} {
		if f.before == "" && f.after != "" {
			errs = append(errs, field.Forbidden(field.NewPath("spec", f.name), "is filled in by the operator once the claim is bound: make a new claim to ask for it"))
		}
	}
	claim := claimSubject(after.Name)
	if len(errs) > 0 {
		return nil, claim.invalid(errs...)
	}
	if after.Spec.ReclaimPolicy != v1alpha1.ReclaimRetain || before.Spec.ReclaimPolicy == v1alpha1.ReclaimRetain {
		return nil, nil
	}
	request, errs := convert.Claim(after)
	if len(errs) > 0 {
		return nil, claim.invalid(errs...)
	}
	if err := s.Catalog.MayRetain(request, after.Spec.AllocationName); err != nil {
		return nil, claim.refusal(err)
	}
	return nil, nil
}
