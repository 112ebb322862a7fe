package explain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Candidate represents a pool that could serve a claim, and the obstacle.
type Candidate struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	CIDR string `json:"cidr,omitempty"`
	// Reason is one of the reasons in the status.candidates of an IPClaim, or NotVisible if the
	// claim cannot use the pool.
	Reason  v1alpha1.CandidateReason `json:"reason"`
	Message string                   `json:"message"`
	// LargestFreePrefix has the form /20; it is empty if nothing is free or if that is not known.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// Available is the number of addresses that can still be handed out; it is empty if that is
	// not known.
	Available string `json:"available,omitempty"`

	// pool is nil if the caller cannot read it.
	pool *register.Pool
}

// reasonNotVisible means that the claim cannot use the pool.
const reasonNotVisible v1alpha1.CandidateReason = "NotVisible"

// candidates returns the pools that could serve a claim as far as names go, each with its
// obstacle. If the caller can list all objects that the operator watches, the operator's own code
// decides, and complete is true; otherwise complete is false, and the candidates come from the
// status of the claim.
func candidates(ctx context.Context, question *Question, knowledge *Knowledge) (all []Candidate, terms ipam.Terms, complete bool) {
	terms.Length = question.request.Length
	if knowledge.operator != nil && question.invalid == nil {
		complete = true
		all, terms = knowledge.considered(ctx, question)
		all = append(all, knowledge.hidden(question.request, all)...)
	}
	for _, entry := range question.candidates {
		all = knowledge.mergeEntry(all, entry)
	}
	return all, terms, complete
}

// considered returns the pools that the claim can use, as the operator's own code decides. It
// returns no pool for a claim that names nothing, because a flag of the operator sets the family
// of that claim.
func (k *Knowledge) considered(ctx context.Context, question *Question) ([]Candidate, ipam.Terms) {
	request := question.request
	if request.Pool == (ipam.PoolKey{}) && request.Class == "" && request.Selects == nil {
		return nil, ipam.Terms{Length: request.Length}
	}
	resolution, err := k.operator.Resolve(ctx, request)
	results := ipam.PoolsOf(err)
	if err == nil {
		results = k.operator.Consider(allocator.Order{
			Resolution: resolution, Origin: allocator.OriginController,
			Holder: question.holder(), HolderUID: string(question.Obj.GetUID()),
			Waiting: queue.Waiter{Since: question.Obj.GetCreationTimestamp().Time, Holder: question.holder(), Request: request},
		}, len(resolution.Pools))
	}
	var all []Candidate
	for _, result := range results {
		candidate := k.candidate(convert.Candidate(result))
		switch candidate.Reason {
		case v1alpha1.CandidateFits:
			candidate.Message = "has a free block: the claim is served soon, unless its conditions give a reason why not"
		case v1alpha1.CandidateInUse:
			candidate.Message = inTheWay(candidate, resolution.Terms.Block)
		}
		all = append(all, candidate)
	}
	if resolution.Terms.Family == "" { // the resolution has no terms
		resolution.Terms.Length = request.Length
	}
	return all, resolution.Terms
}

// inTheWay names the holder of the first block that overlaps the requested block. A status does
// not name it.
func inTheWay(c Candidate, block netip.Prefix) string {
	for _, record := range c.pool.Overlapping(block) {
		return fmt.Sprintf("%s is held by %s", record.Block, holderOf(record))
	}
	return c.Message
}

// candidate adds the known facts about a pool to the given entry for it.
func (k *Knowledge) candidate(entry v1alpha1.CandidatePool) Candidate {
	pool := k.Register.Pool(convert.PoolKey(k.Namespace, entry.PoolRef))
	cidr := ""
	if pool != nil && pool.CIDR.IsValid() {
		cidr = pool.CIDR.String()
		usage, ok := pool.UsageOfStatus()
		if k.operator != nil { // the caller can list all allocations
			usage, ok = pool.Usage()
		}
		if ok {
			convert.SetFree(&entry, usage.LargestFree, usage.Free)
		}
	}
	return Candidate{
		Kind: string(entry.PoolRef.Kind), Name: entry.PoolRef.Name, CIDR: cidr, Reason: entry.Reason, Message: entry.Message,
		LargestFreePrefix: entry.LargestFreePrefix, Available: entry.Available, pool: pool,
	}
}

// mergeEntry takes over the operator's entry for a pool from the status of the claim, if its reason
// differs or the pool is missing: the operator knows more than can be listed, such as which
// project is the platform's.
func (k *Knowledge) mergeEntry(all []Candidate, entry v1alpha1.CandidatePool) []Candidate {
	at := slices.IndexFunc(all, func(c Candidate) bool { return c.Kind == string(entry.PoolRef.Kind) && c.Name == entry.PoolRef.Name })
	switch {
	case at < 0:
		return append(all, k.candidate(entry))
	case all[at].Reason != entry.Reason:
		all[at] = k.candidate(entry)
	}
	return all
}

// hidden returns the other pools that the request names, by name, class or labels, and cannot use.
func (k *Knowledge) hidden(request ipam.Request, existing []Candidate) []Candidate {
	request.Tenant, _ = k.operator.Catalog.Tenant(k.Namespace)
	var all []Candidate
	for _, pool := range k.Register.Pools {
		why := whyHidden(request, pool)
		if why != "" && names(request, pool) && !slices.ContainsFunc(existing, func(c Candidate) bool { return c.pool == pool }) {
			all = append(all, k.candidate(v1alpha1.CandidatePool{PoolRef: *convert.PoolReference(pool.Key), Reason: reasonNotVisible, Message: why}))
		}
	}
	return all
}

// names reports whether a request leads to a pool by its name, its class or its labels.
func names(request ipam.Request, pool *register.Pool) bool {
	return request.Pool == pool.Key || request.Class != "" && pool.Names(request.Class) || request.Selects != nil && request.Selects(pool.Labels)
}

// whyHidden returns the reason why a request cannot use a pool of the platform, or "" if it can.
func whyHidden(request ipam.Request, pool *register.Pool) string {
	switch {
	case !pool.IsKnown(), pool.Key.Namespace != "", request.MayName(pool.Pool), request.Class != "" && request.MayUse(pool.Pool):
		return ""
	case pool.Visibility == ipam.VisibilityPlatform:
		return "is for the platform's own project (visibility Platform): which one that is only the operator knows (--platform-project)"
	case !request.MayUse(pool.Pool):
		return fmt.Sprintf("is for project %s (visibility Consumer), and the namespace is of project %s", pool.Project, request.Tenant.Project)
	default:
		return fmt.Sprintf("belongs to project %s: to name it takes the right to use it", pool.Project)
	}
}

// holderOf names the holder of a record, or describes how it is held without a holder.
func holderOf(record *register.Record) string {
	switch record.State {
	case ipam.StateRetained:
		return fmt.Sprintf("IPAllocation %s (retained)", record.Name)
	case ipam.StateCooling:
		return fmt.Sprintf("IPAllocation %s (cooling down)", record.Name)
	default:
		return record.Holder.String()
	}
}

// Knowledge holds the objects that the caller can read to explain a claim.
type Knowledge struct {
	Register  *register.Register
	Namespace string
	// addressClaims are the IPAddressClaims that the caller can list.
	addressClaims []ipamv1.IPAddressClaim
	// operator simulates the operator with the listed objects; nil if the caller cannot list all
	// objects that the operator watches.
	operator *allocator.Simulator
}

// Read reads the objects that the register does not have. It leaves out objects that the caller
// cannot read.
func (k *Knowledge) Read(ctx context.Context, c client.Client) error {
	list := &ipamv1.IPAddressClaimList{}
	err := c.List(ctx, list)
	if apierrors.IsForbidden(err) {
		err = c.List(ctx, list, client.InNamespace(k.Namespace))
	}
	if err == nil { // Cluster API is optional
		k.addressClaims = list.Items
	}
	if slices.ContainsFunc([]string{"ippools", "localippools", "ipallocations"}, k.Register.Lacks) {
		return ctx.Err()
	}
	classes, namespaces := &v1alpha1.IPClassList{}, &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	for _, list := range []client.ObjectList{classes, namespaces} {
		if err := c.List(ctx, list); apierrors.IsForbidden(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("listing classes and namespaces: %w", err)
		}
	}
	return k.load(classes.Items, namespaces.Items)
}

// load simulates the operator with the listed objects.
func (k *Knowledge) load(classes []v1alpha1.IPClass, namespaces []metav1.PartialObjectMetadata) error {
	listed := allocator.Snapshot{Waiting: k.Register.Waiting, Waiters: k.addressWaiters()}
	for _, pool := range k.Register.Pools {
		if pool.IsKnown() {
			listed.Objects = append(listed.Objects, pool.Object)
		}
	}
	for i := range classes {
		listed.Objects = append(listed.Objects, &classes[i])
	}
	for i := range namespaces {
		listed.Objects = append(listed.Objects, &namespaces[i])
	}
	for _, record := range k.Register.Records() {
		listed.Records = append(listed.Records, record.Record)
	}
	var err error
	k.operator, err = allocator.NewSimulator(listed)
	return err
}

// Close ends the simulation.
func (k *Knowledge) Close() {
	if k.operator != nil {
		k.operator.Close()
	}
}

// addressWaiters returns the IPAddressClaims that wait for room.
func (k *Knowledge) addressWaiters() []queue.Waiter {
	var all []queue.Waiter
	for i := range k.addressClaims {
		claim := &k.addressClaims[i]
		ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
		if claim.Status.AddressRef.Name != "" || ready == nil || ready.Reason != v1alpha1.ReasonPoolExhausted || !convert.IsTarget(claim.Spec.PoolRef.APIGroup, claim.Spec.PoolRef.Kind) {
			continue
		}
		if request, err := addressRequest(claim); err == nil {
			all = append(all, queue.Waiter{
				Since: claim.CreationTimestamp.Time, Holder: convert.HolderOfAddressClaim(request.Claim), Request: request, Reason: queue.ReasonNoRoom,
			})
		}
	}
	return all
}
