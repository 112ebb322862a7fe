package live

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

type count = space.Count

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
		for _, w := range pool.WithheldIn(pool.CIDR) {
			message.Withheld = append(message.Withheld, Withheld{From: w.From.String(), To: w.To.String(), Reason: w.Reason})
		}
	}
	return message
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

// blockMessage returns the message of a record, with its pool in a register.
func blockMessage(r *register.Register, record *register.Record) Block {
	block := Block{
		ID: record.UID, CIDR: record.Block.String(), State: string(record.State), Child: childOf(record),
		Terminating: record.Terminating,
		Holder:      Object{Kind: record.Holder.Kind, Namespace: record.Holder.Namespace, Name: record.Holder.Name},
		Allocation:  record.Name.String(), Project: record.Project, Class: record.Class, RequestedBy: record.RequestedBy,
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

// claimMessage returns the message of a waiting IPClaim.
func claimMessage(r *register.Register, claim *v1alpha1.IPClaim, request ipam.Request, valid bool) Waiting {
	message := Waiting{
		ID: string(claim.UID), Kind: "IPClaim", Namespace: claim.Namespace, Name: claim.Name, Length: -1, Pools: []string{},
		CIDR: claim.Spec.CIDR, Class: claim.Spec.ClassName, Since: stamp(claim.CreationTimestamp.Time),
	}
	if claim.Spec.PrefixLength != nil {
		message.Length = int(*claim.Spec.PrefixLength)
	}
	message.says(claim.Status.Conditions)
	message.served(r, request, valid)
	for _, candidate := range claim.Status.Candidates {
		key := convert.PoolKey(claim.Namespace, candidate.PoolRef)
		if id := poolID(key); r.Pool(key) != nil && !slices.Contains(message.Pools, id) {
			message.Pools = append(message.Pools, id)
		}
	}
	return message
}

// addressClaimMessage returns the message of a waiting IPAddressClaim: it always asks for one
// address.
func addressClaimMessage(r *register.Register, claim *ipamv1.IPAddressClaim, request ipam.Request, valid bool) Waiting {
	message := Waiting{
		ID: string(claim.UID), Kind: convert.AddressClaimKind, Namespace: claim.Namespace, Name: claim.Name, Pools: []string{},
		Class: request.Class, Since: stamp(claim.CreationTimestamp.Time),
	}
	if request.Block.IsValid() {
		message.CIDR = request.Block.String()
	}
	message.says(claim.Status.Conditions)
	message.served(r, request, valid)
	message.Length = map[int]int{4: 32, 6: 128}[message.Family]
	return message
}

// says takes over the reason and the message of the conditions of a claim.
func (w *Waiting) says(conditions []metav1.Condition) {
	w.Reason, w.Message = "NoAnswer", "no operator has answered it: see whether Cadastre runs"
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		w.Reason, w.Message = ready.Reason, ready.Message
	}
}

// served adds the pools that could serve the claim, and its family.
func (w *Waiting) served(r *register.Register, request ipam.Request, valid bool) {
	family := request.Family
	if valid {
		for _, pool := range r.MayServe(request) {
			w.Pools = append(w.Pools, poolID(pool.Key))
			family = cmp.Or(family, pool.Family)
		}
	}
	w.Family = number(family)
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
