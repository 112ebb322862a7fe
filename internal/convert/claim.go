package convert

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Claim reads the request of an IPClaim.
func Claim(obj *v1alpha1.IPClaim) (ipam.Request, field.ErrorList) {
	path, spec := field.NewPath("spec"), &obj.Spec
	req := ipam.Request{
		Claim:   ipam.Name{Namespace: obj.Namespace, Name: obj.Name},
		Class:   spec.ClassName,
		Length:  ipam.NoLength,
		Reclaim: ipam.Reclaim(spec.ReclaimPolicy),

		RequestedBy: obj.Annotations[v1alpha1.AnnotationRequestedBy],
	}
	if spec.PoolRef != nil {
		req.Grant = grant(obj.Annotations, spec.PoolRef.Name)
	}
	errs := claimTarget(path, spec, &req)
	if spec.CIDR != "" {
		block, err := Block(path.Child("cidr"), spec.CIDR)
		req.Block = block
		errs = appendError(errs, err)
	}
	if spec.AllocationName != "" && spec.CIDR == "" {
		errs = append(errs, field.Forbidden(path.Child("allocationName"), "is filled in together with cidr: leave it out"))
	}
	if len(errs) > 0 {
		return req, errs
	}
	family, err := familyOf(path.Child("ipFamily"), ipam.Family(spec.IPFamily), req.Block)
	req.Family = family
	errs = appendError(errs, err)
	bits, err := length(path.Child("prefixLength"), spec.PrefixLength, family)
	req.Length = bits
	errs = appendError(errs, err)
	if len(errs) == 0 && req.Block.IsValid() && bits != ipam.NoLength && bits != req.Block.Bits() {
		errs = append(errs, field.Invalid(path.Child("prefixLength"), bits,
			fmt.Sprintf("cidr asks for a /%d: remove one of them", req.Block.Bits())))
	}
	return req, errs
}

// claimTarget reads the source of the block: a class, a pool or a selector.
func claimTarget(path *field.Path, spec *v1alpha1.IPClaimSpec, req *ipam.Request) field.ErrorList {
	count := 0
	var errs field.ErrorList
	if spec.ClassName != "" {
		count++
		errs = append(errs, objectName(path.Child("className"), spec.ClassName)...)
	}
	if spec.PoolRef != nil {
		count++
		errs = append(errs, objectName(path.Child("poolRef", "name"), spec.PoolRef.Name)...)
		req.Pool = PoolKey(req.Claim.Namespace, *spec.PoolRef)
	}
	if spec.PoolSelector != nil {
		count++
		path := path.Child("poolSelector")
		switch {
		case !isTooLarge(spec.PoolSelector):
			errs = appendError(errs, readSelector(path, spec.PoolSelector, req))
		case spec.AllocationName == "":
			errs = append(errs, tooLarge(path))
		default: // an earlier version has stored and bound it
			req.Selects = func(map[string]string) bool { return false }
		}
	}
	if count > 1 {
		errs = append(errs, field.Invalid(path, "className, poolRef, poolSelector", "exclude each other: keep one of them"))
	}
	return errs
}

// ClaimOutcome holds the result of an attempt to serve an IPClaim, for its status. Admission and
// the controller write the same status for the same outcome.
type ClaimOutcome struct {
	// Phase is empty if the attempt shows nothing about the claim.
	Phase           v1alpha1.ClaimPhase
	Reason, Message string
	// Record holds the block of a claim that is Bound.
	Record ipam.Record
	// Network is the network of the record's pool; nil if it has none.
	Network *ipam.Network
	// Conflict describes the other records on the block of a claim that is Bound; empty if there
	// are none.
	Conflict string
	// Candidates are the pools that the claim may use, Omitted is the number of further ones.
	Candidates []v1alpha1.CandidatePool
	Omitted    int
}

// ClaimBound returns the outcome for a claim whose block is held by a record of the pool.
func ClaimBound(record ipam.Record, pool ipam.Pool) ClaimOutcome {
	return ClaimOutcome{
		Phase: v1alpha1.ClaimBound, Reason: v1alpha1.ReasonBound, Message: fmt.Sprintf("%s of %s is held for this claim", record.Block, record.Pool),
		Record: record, Network: pool.Network,
	}
}

// ClaimWaits returns the outcome for a claim that is not served because of the error. It returns
// the zero ClaimOutcome if the error shows nothing about the claim.
func ClaimWaits(err error) ClaimOutcome {
	unserved, ok := errors.AsType[ipam.Unserved](err)
	if !ok {
		return ClaimOutcome{}
	}
	outcome := ClaimOutcome{Phase: v1alpha1.ClaimPending}
	outcome.Reason, outcome.Message = unserved.Condition(claimWording())
	outcome.Candidates, outcome.Omitted = Candidates(ipam.PoolsOf(err))
	if outcome.Reason == v1alpha1.ReasonPoolExhausted {
		outcome.Phase = v1alpha1.ClaimExhausted
	}
	return outcome
}

// claimWording returns the wording with which an IPClaim reports why it is not served.
func claimWording() ipam.Wording {
	return ipam.Wording{
		Policy: v1alpha1.ReasonPolicyViolation, Exhausted: v1alpha1.ReasonPoolExhausted, Taken: v1alpha1.ReasonConflict, Limit: v1alpha1.ReasonLimitReached,
		Provisioner: v1alpha1.ReasonWaitingForProvisioner,
		IfExhausted: "the claim is bound as soon as one is released",
		IfTaken:     "delete this claim and make a new one, or have the other released",
	}
}

// Status returns the status of the claim after the outcome, which is the status before it if the
// outcome shows nothing. Conditions keep the time of their last transition, and a claim that stays
// Bound keeps the network that it got when the block was handed out.
func (o ClaimOutcome) Status(previous v1alpha1.IPClaimStatus) v1alpha1.IPClaimStatus {
	if o.Phase == "" {
		return previous
	}
	status := v1alpha1.IPClaimStatus{
		Phase: o.Phase, Candidates: o.Candidates,
		CandidatesOmitted: int32(min(o.Omitted, math.MaxInt32)), //nolint:gosec // bounded, and not negative
	}
	if o.Phase == v1alpha1.ClaimBound {
		status.AllocatedCIDR, status.Address = o.Record.Block.String(), Address(o.Record.Block)
		status.PoolRef = PoolReference(o.Record.Pool)
		if name := o.Record.Name.Name; name != "" { // a dry run records nothing
			status.BoundAllocationRef = &v1alpha1.AllocationReference{Name: name}
		}
		if status.Network = previous.Network; previous.AllocatedCIDR != status.AllocatedCIDR {
			status.Network = ClaimNetwork(o.Network, o.Record)
		}
	}
	ready, phase := o.conditions()
	status.Conditions = slices.DeleteFunc(previous.DeepCopy().Conditions, func(c metav1.Condition) bool {
		return isPhase(c) && c.Type != phase.Type && (c.Status == metav1.ConditionTrue || !isStored(phase, previous.Conditions))
	})
	meta.SetStatusCondition(&status.Conditions, ready)
	meta.SetStatusCondition(&status.Conditions, phase)
	return status
}

// isPhase reports whether a condition is one of those of which a claim has the one that is True. Claims of
// earlier versions have the others as False until that one changes, so that an upgrade writes no claim.
func isPhase(c metav1.Condition) bool {
	return slices.Contains([]string{v1alpha1.ConditionPending, v1alpha1.ConditionBound, v1alpha1.ConditionExhausted}, c.Type)
}

// isStored reports whether a condition of the same type and message is among others.
func isStored(c metav1.Condition, in []metav1.Condition) bool {
	stored := meta.FindStatusCondition(in, c.Type)
	return stored != nil && stored.Message == c.Message
}

// conditions returns the conditions of a claim, without times: Ready, and the phase.
func (o ClaimOutcome) conditions() (ready, phase metav1.Condition) {
	phase = metav1.Condition{Type: string(o.Phase), Status: metav1.ConditionTrue, Reason: o.Reason, Message: o.Message}
	ready = phase
	if ready.Type = v1alpha1.ConditionReady; o.Phase != v1alpha1.ClaimBound {
		ready.Status = metav1.ConditionFalse
	}
	if o.Conflict != "" {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonConflict, o.Conflict
	}
	return ready, phase
}

// ClaimNetwork returns the settings that a host needs to use the block of a record, if the block is
// an address of a network.
func ClaimNetwork(network *ipam.Network, record ipam.Record) *v1alpha1.ClaimNetwork {
	if network == nil || !record.Block.IsSingleIP() {
		return nil
	}
	settings := &v1alpha1.ClaimNetwork{
		PrefixLength: int32(network.Length), //nolint:gosec // 0 to 128
		HostSettings: v1alpha1.HostSettings{
			SearchDomains: network.SearchDomains,
			MTU:           int32(network.MTU),  //nolint:gosec // as read from an int32
			VLAN:          int32(network.VLAN), //nolint:gosec // as read from an int32
		},
	}
	// The record's gateway, so that record and status agree. A record that is older than this field, or
	// of a dry run, has none.
	if gateway := cmp.Or(record.Gateway, network.Gateway); gateway.IsValid() {
		settings.Gateway = gateway.String()
	}
	for _, server := range network.DNSServers {
		settings.DNSServers = append(settings.DNSServers, server.String())
	}
	return settings
}

const (
	// MostCandidates is the greatest number of pools that a claim lists, and messageLength the
	// greatest length of the message of each, as in the schema.
	MostCandidates = 10
	messageLength  = 512
)

// Candidates returns the first of the pools that a claim may use, as its status lists them, and the
// number of further ones. They stay the same while the claim waits for the same reasons, and name
// no holder.
func Candidates(results []ipam.PoolResult) (candidates []v1alpha1.CandidatePool, omitted int) {
	return CandidatesNow(filterLasting(results))
}

// filterLasting returns the results without OutOfTurn, which only holds for a moment: a block was
// released, and its next holder is being served.
func filterLasting(results []ipam.PoolResult) []ipam.PoolResult {
	last := slices.Clone(results)
	for i, result := range last {
		if full, ok := errors.AsType[*ipam.ExhaustedError](result.Err); ok && full.OutOfTurn {
			stays := *full
			stays.OutOfTurn = false
			last[i].Err = &stays
		}
	}
	return last
}

// CandidatesNow returns the same pools as Candidates, but in their state at this moment, for the
// answer to a dry run.
func CandidatesNow(results []ipam.PoolResult) (candidates []v1alpha1.CandidatePool, omitted int) {
	firstResults := results[:min(len(results), MostCandidates)]
	for _, result := range firstResults {
		candidates = append(candidates, candidate(result))
	}
	return candidates, len(results) - len(firstResults)
}

// Candidate returns one pool as the status of a claim lists it.
func Candidate(result ipam.PoolResult) v1alpha1.CandidatePool {
	return candidate(filterLasting([]ipam.PoolResult{result})[0])
}

func candidate(result ipam.PoolResult) v1alpha1.CandidatePool {
	return v1alpha1.CandidatePool{
		PoolRef: *PoolReference(result.Pool), Reason: v1alpha1.CandidateReason(result.Verdict()), Message: truncate(candidateMessage(result)),
	}
}

// candidateMessage returns the reason why a claim is not served from a pool; empty if it is. The
// message does not name the holder of a block: the condition does, if the namespace can know it.
func candidateMessage(result ipam.PoolResult) string {
	err := result.Err
	if taken, ok := errors.AsType[*ipam.TakenError](err); ok {
		err = taken.Redacted()
	}
	if full, ok := errors.AsType[*ipam.ExhaustedError](err); ok && full.OutOfTurn {
		return fmt.Sprintf("a free /%d of %s is for a claim that waits already: the claim is bound as soon as it is its turn", full.Bits, result.Pool)
	}
	if unserved, ok := errors.AsType[ipam.Unserved](err); ok {
		_, message := unserved.Condition(claimWording())
		return message
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// truncate returns a message, cut if it is too long.
func truncate(message string) string {
	if runes := []rune(message); len(runes) > messageLength {
		return string(runes[:messageLength-1]) + "…"
	}
	return message
}

// SetFree writes the free space of a pool into the answer to a dry run.
func SetFree(c *v1alpha1.CandidatePool, largest int, available space.Count) {
	c.Available = available.String()
	if c.LargestFreePrefix = ""; largest != ipam.NoLength {
		c.LargestFreePrefix = fmt.Sprintf("/%d", largest)
	}
}

// CandidateReasons returns the same pools for the message of a condition, in the same order, each
// with its reason; empty if there are fewer than two, because the message itself is complete then.
func CandidateReasons(results []ipam.PoolResult) string {
	if len(results) < 2 {
		return ""
	}
	firstResults := filterLasting(results[:min(len(results), MostCandidates)])
	parts := make([]string, 0, len(firstResults)+1)
	for _, result := range firstResults {
		parts = append(parts, fmt.Sprintf("%s: %s", result.Pool, result.Verdict()))
	}
	if omitted := len(results) - len(firstResults); omitted > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", omitted))
	}
	return strings.Join(parts, ", ")
}

// maxLabelKey is the greatest length of the key of a label: a prefix of 253 characters, a slash and
// a name of 63.
const maxLabelKey = validation.DNS1123SubdomainMaxLength + 1 + validation.LabelValueMaxLength

// readSelector reads a selector that is within its bounds into a request.
func readSelector(path *field.Path, poolSelector *v1alpha1.PoolSelector, req *ipam.Request) *field.Error {
	selector, err := metav1.LabelSelectorAsSelector(poolSelector.LabelSelector())
	if err != nil {
		return field.Invalid(path, poolSelector, err.Error()+": correct the selector")
	}
	if selector.Empty() {
		return field.Invalid(path, "{}", "selects every pool: name at least one label")
	}
	hash := sha256.Sum256([]byte(selector.String()))
	req.Selects = func(l map[string]string) bool { return selector.Matches(labels.Set(l)) }
	req.Selector, req.SelectorBytes = string(hash[:]), selectorBytes(poolSelector)
	return nil
}

// tooLarge returns the error for a selector that is larger than the schema allows.
func tooLarge(path *field.Path) *field.Error {
	return field.Invalid(path, "the selector", fmt.Sprintf("may have %d labels and expressions, of %d values each, and keys and values as long as those of labels: make it smaller",
		v1alpha1.MaxSelectorTerms, v1alpha1.MaxSelectorValues))
}

// isTooLarge reports whether a selector is larger than the schema allows. It is called before any
// other part of a selector is read.
func isTooLarge(poolSelector *v1alpha1.PoolSelector) bool {
	if len(poolSelector.MatchLabels)+len(poolSelector.MatchExpressions) > v1alpha1.MaxSelectorTerms {
		return true
	}
	for key, value := range poolSelector.MatchLabels {
		if len(key) > maxLabelKey || len(value) > validation.LabelValueMaxLength {
			return true
		}
	}
	return slices.ContainsFunc(poolSelector.MatchExpressions, func(e v1alpha1.PoolSelectorExpression) bool {
		return len(e.Key) > maxLabelKey || len(e.Operator) > validation.LabelValueMaxLength || len(e.Values) > v1alpha1.MaxSelectorValues ||
			slices.ContainsFunc(e.Values, func(value v1alpha1.LabelValue) bool { return len(value) > validation.LabelValueMaxLength })
	})
}

// TrimSelector reduces a selector that is too large, which an earlier version has stored with a
// claim, to a minimal one that is still too large.
func TrimSelector(claim *v1alpha1.IPClaim) {
	if poolSelector := claim.Spec.PoolSelector; poolSelector != nil && isTooLarge(poolSelector) {
		claim.Spec.PoolSelector = &v1alpha1.PoolSelector{MatchExpressions: make([]v1alpha1.PoolSelectorExpression, v1alpha1.MaxSelectorTerms+1)}
	}
}

// selectorBytes returns the approximate memory, in bytes, that a selector takes while its claim
// waits.
func selectorBytes(poolSelector *v1alpha1.PoolSelector) int {
	const each = 64 // a string twice, once in the claim and once read, with overhead
	bytes := 0
	for key, value := range poolSelector.MatchLabels {
		bytes += each + len(key) + len(value)
	}
	for _, e := range poolSelector.MatchExpressions {
		bytes += each + len(e.Key)
		for _, value := range e.Values {
			bytes += each + len(value)
		}
	}
	return bytes
}
