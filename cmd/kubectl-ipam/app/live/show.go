package live

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// poolMessage returns the message of a pool, without its usage.
func poolMessage(pool *register.Pool) Pool {
	message := Pool{
		ID: poolID(pool.Key), Kind: string(pool.Key.Kind), Namespace: pool.Key.Namespace, Name: pool.Key.Name,
		Known: pool.IsKnown(), Domain: pool.Domain.Name(), Family: number(pool.Family), MinLength: -1, MaxLength: -1,
		Classes: []string{}, Labels: map[string]string{}, Withheld: []Withheld{},
	}
	if pool.Parent != nil {
		message.Parent = poolID(pool.Parent.Key)
	}
	if !pool.IsKnown() {
		return message
	}
	status := pool.Object.PoolStatus()
	message.Phase = string(status.Phase)
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		message.Message = ready.Message
	}
	message.Classes = append(message.Classes, pool.Classes...)
	message.Visibility, message.Project, message.Strategy = string(pool.Visibility), pool.Project, string(pool.Strategy)
	message.OnExhaustion, message.HostAddresses = string(pool.OnExhaustion), pool.Network != nil
	if pool.ReuseDelay > 0 {
		message.ReuseDelay = pool.ReuseDelay.String()
	}
	maps.Copy(message.Labels, pool.Labels)
	message.Limits = limitsOf(pool.Limit)
	if pool.CIDR.IsValid() {
		message.CIDR, message.MinLength, message.MaxLength = pool.CIDR.String(), pool.Lengths.Min, pool.Lengths.Max
		message.addRanges(pool)
		for _, w := range pool.WithheldIn(pool.CIDR) {
			message.Withheld = append(message.Withheld, Withheld{From: w.From.String(), To: w.To.String(), Reason: w.Reason})
		}
	}
	return message
}

// addRanges adds the first and the last address of a pool that occupies ranges of its CIDR, and what it
// does not hold between them.
func (p *Pool) addRanges(pool *register.Pool) {
	if pool.Occupied == nil {
		return
	}
	span := pool.Span()
	p.First, p.Last = span.From.String(), span.To.String()
	for _, r := range pool.Outside() {
		if span.From.Less(r.From) && r.To.Less(span.To) {
			p.Withheld = append(p.Withheld, Withheld{From: r.From.String(), To: r.To.String(), Reason: "not of this pool"})
		}
	}
}

func limitsOf(limit ipam.Limit) *Limits {
	if !limit.IsSet() {
		return nil
	}
	limits := &Limits{}
	if limit.Addresses.Set {
		limits.Addresses = limit.Addresses.Count.String()
	}
	if limit.Blocks.Set {
		blocks := int64(limit.Blocks.Count.Float64())
		limits.Blocks = &blocks
	}
	return limits
}

// usageMessage returns the message of a usage; retained and cooling addresses are known if the
// usage was counted.
func usageMessage(u register.Usage, isCounted bool) *Usage {
	usage := &Usage{
		Total: u.Total.String(), Free: u.Free.String(), Withheld: u.Withheld.String(), Held: u.Held.String(),
		Carved: u.Carved.String(), Drained: u.Drained.String(), Used: u.Used.String(),
		Blocks: u.Blocks, LargestFree: u.LargestFree,
	}
	if isCounted {
		usage.Retained, usage.Cooling = u.Retained.String(), u.Cooling.String()
	}
	return usage
}

// blockMessage returns the message of one block of a record, with its pool in a register, and the Cluster of its
// holder.
func blockMessage(r *register.Register, record *register.Record, cluster string) Block {
	block := Block{
		ID: blockID(record), CIDR: record.Block.String(), State: string(record.State), Child: childOf(record),
		Terminating: record.Terminating,
		Holder:      Object{Kind: record.Holder.Kind, Namespace: record.Holder.Namespace, Name: record.Holder.Name},
		Allocation:  record.Name.String(), Cluster: cluster, Project: record.Project, Class: record.Class, RequestedBy: record.RequestedBy,
		Since: stamp(record.Since), ReleaseAfter: stamp(record.ReleaseAfter),
	}
	if record.Purpose == ipam.PurposePool && record.State == ipam.StateBound {
		block.State = "Carved"
	}
	if !record.Pool.Kind.IsPool() {
		block.Domain = record.Pool.FullName()
		return block
	}
	block.Pool = poolID(record.Pool)
	if pool := r.Pool(record.Pool); pool != nil {
		block.Domain, block.Drained = pool.Domain.Name(), pool.Withheld.Overlaps(record.Block)
	}
	return block
}

// waiter represents a claim that waits: its message, to which a register adds its pools and its
// family, and its request, nil if it cannot be understood.
type waiter struct {
	Waiting
	request *ipam.Request
	// candidates holds the pools that the operator has tried.
	candidates []ipam.PoolKey
}

// waiterOfClaim returns the waiter of an IPClaim.
func waiterOfClaim(claim *v1alpha1.IPClaim) *waiter {
	request, errs := convert.Claim(claim)
	w := newWaiter(claim, "IPClaim", claim.Status.Conditions, request, len(errs) == 0)
	w.CIDR, w.Class = claim.Spec.CIDR, claim.Spec.ClassName
	if claim.Spec.PrefixLength != nil {
		w.Length = int(*claim.Spec.PrefixLength)
	}
	for _, candidate := range claim.Status.Candidates {
		w.candidates = append(w.candidates, convert.PoolKey(claim.Namespace, candidate.PoolRef))
	}
	return w
}

// waiterOfAddressClaim returns the waiter of an IPAddressClaim: it always asks for one address.
func waiterOfAddressClaim(claim *ipamv1.IPAddressClaim) *waiter {
	ref := claim.Spec.PoolRef
	request, errs := convert.AddressRequest(convert.AddressClaim{
		Namespace: claim.Namespace, Name: claim.Name,
		PoolGroup: ref.APIGroup, PoolKind: ref.Kind, PoolName: ref.Name, Annotations: claim.Annotations,
	})
	w := newWaiter(claim, convert.AddressClaimKind, claim.Status.Conditions, request, len(errs) == 0)
	if w.request != nil {
		w.Class = request.Class
		if request.Block.IsValid() {
			w.CIDR = request.Block.String()
		}
	}
	return w
}

func newWaiter(claim client.Object, kind string, conditions []metav1.Condition, request ipam.Request, isValid bool) *waiter {
	w := &waiter{Waiting: Waiting{
		ID: string(claim.GetUID()), Kind: kind, Namespace: claim.GetNamespace(), Name: claim.GetName(), Length: -1, Pools: []string{}, Cluster: convert.ClusterOfClaim(claim),
		Reason: "NoAnswer", Message: "no operator has answered it: see whether Cadastre runs", Since: stamp(claim.GetCreationTimestamp().Time),
	}}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		w.Reason, w.Message = ready.Reason, ready.Message
	}
	if isValid {
		w.request = &request
	}
	return w
}

// message returns the message with the pools that could serve the claim, and its family.
func (w *waiter) message(r *register.Register) Waiting {
	message, family := w.Waiting, ipam.Family("")
	if w.request != nil {
		family = w.request.Family
		for _, pool := range r.MayServe(*w.request) {
			message.Pools = append(message.Pools, poolID(pool.Key))
			family = cmp.Or(family, pool.Family)
		}
	}
	for _, key := range w.candidates {
		if id := poolID(key); r.Pool(key) != nil && !slices.Contains(message.Pools, id) {
			message.Pools = append(message.Pools, id)
		}
	}
	message.Family = number(family)
	if message.Kind == convert.AddressClaimKind {
		message.Length = map[int]int{4: 32, 6: 128}[message.Family]
	}
	return message
}

// number returns a family in the form of messages: IPv4 if it is not known, which is the
// operator's default.
func number(family ipam.Family) int {
	if family == ipam.IPv6 {
		return 6
	}
	return 4
}

// stamp returns a time in the form of messages; it is empty if there is none.
func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
