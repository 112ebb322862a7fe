package cli

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/cli/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Candidate is a pool that could serve a claim, and what it lacks.
type Candidate struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	CIDR string `json:"cidr,omitempty"`
	// Reason is that of the claim's status.candidates where the operator has said why;
	// otherwise that of a condition: PoolExhausted, PoolNotReady, LimitReached and so on, or
	// HasRoom where the pool lacks nothing.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// LargestFreePrefix as in /20; empty where nothing is free, or that is not known.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// Available is how many addresses can still be handed out; empty where that is not known.
	Available string `json:"available,omitempty"`

	pool *register.Pool
}

// reasonNotVisible: the pool is for others.
const reasonNotVisible = "NotVisible"

// judge judges the pools that could serve a request.
type judge struct {
	*knowledge
	request ipam.Request
	terms   ipam.Terms
}

// candidates are the pools that could serve a request as far as names go, with what each
// lacks, in order of name. It is false where the caller may not read enough to say so.
func candidates(asked *question, known *knowledge) ([]Candidate, ipam.Terms, bool) {
	request := asked.request
	own := request.Pool.Kind == ipam.PoolKindLocalIPPool
	// The namespace's own pools are its own to read.
	if asked.invalid != nil || known.tenant == nil && !own || !known.mayList("ippools", false) && !own ||
		!known.mayList("localippools", own) || !known.mayList("ipallocations", own) {
		return nil, ipam.Terms{}, false
	}
	if request.Class != "" && known.class == nil {
		return nil, ipam.Terms{Length: request.Length}, true
	}
	if known.tenant != nil {
		request.Tenant = *known.tenant
	}
	pools := poolsFor(request, known.register)
	specs := make([]ipam.Pool, len(pools))
	for i, pool := range pools {
		specs[i] = pool.Pool
	}
	terms, err := ipam.Fold(request, known.class, specs)
	if err != nil {
		return nil, ipam.Terms{}, false // the condition says so
	}
	j := &judge{knowledge: known, request: request, terms: terms}
	var all []Candidate
	for _, pool := range pools {
		all = append(all, j.judge(pool))
	}
	return all, terms, true
}

// tell has candidates say what the operator says of the same pools: it knows more than can be
// listed, such as who waits.
func tell(all, told []Candidate) {
	for _, of := range told {
		for i := range all {
			if all[i].Kind == of.Kind && all[i].Name == of.Name {
				all[i].Reason, all[i].Message = of.Reason, of.Message
			}
		}
	}
}

// poolsFor are the pools that a request names, by name, class or labels.
func poolsFor(request ipam.Request, r *register.Register) []*register.Pool {
	var pools []*register.Pool
	for _, pool := range r.Pools {
		own := pool.Key.Namespace == "" || pool.Key.Namespace == request.Namespace()
		if !pool.IsKnown() || !own {
			continue
		}
		switch {
		case request.Pool != (ipam.PoolKey{}) && pool.Key == request.Pool,
			request.Class != "" && pool.Backs(request.Class),
			request.Selects != nil && request.Selects(pool.Labels):
			pools = append(pools, pool)
		}
	}
	slices.SortFunc(pools, func(a, b *register.Pool) int { return ipam.ByName(a.Pool, b.Pool) })
	return pools
}

func (j *judge) judge(pool *register.Pool) Candidate {
	c := Candidate{Kind: string(pool.Key.Kind), Name: pool.Key.Name, pool: pool}
	if usage, known := pool.Usage(); known {
		c.CIDR, c.Available = pool.CIDR.String(), usage.Free.String()
		if usage.LargestFree != ipam.NoLength {
			c.LargestFreePrefix = fmt.Sprintf("/%d", usage.LargestFree)
		}
	}
	for _, check := range []func(*register.Pool) (reason, message string){j.visible, j.policy, j.ready, j.size, j.block, j.limit, j.room} {
		if c.Reason, c.Message = check(pool); c.Reason != "" {
			return c
		}
	}
	c.Reason, c.Message = v1alpha1.ReasonHasRoom, "has room, for the claims that come first"
	return c
}

// visible says why the claim may not use the pool.
func (j *judge) visible(pool *register.Pool) (reason, message string) {
	switch {
	case pool.Key.Namespace != "":
		return "", ""
	case pool.Visibility == ipam.VisibilityPlatform:
		return reasonNotVisible, "is for the platform's own project (visibility Platform)"
	case !j.request.MayUse(pool.Pool):
		return reasonNotVisible, fmt.Sprintf("is for project %s (visibility Consumer), and the namespace is of project %s", pool.Project, j.request.Tenant.Project)
	case j.request.Pool == pool.Key && !j.request.MayName(pool.Pool):
		return reasonNotVisible, fmt.Sprintf("belongs to project %s: to name it takes the right to use it", pool.Project)
	}
	return "", ""
}

// policy says why the pool never hands out such a block.
func (j *judge) policy(pool *register.Pool) (reason, message string) {
	if _, _, err := j.terms.Fitting([]ipam.Pool{pool.Pool}); err != nil {
		return v1alpha1.ReasonPolicyViolation, err.Error()
	}
	return "", ""
}

// ready says why the pool hands out nothing.
func (j *judge) ready(pool *register.Pool) (reason, message string) {
	ready := meta.FindStatusCondition(pool.Object.PoolStatus().Conditions, v1alpha1.ConditionReady)
	switch {
	case pool.Terminating:
		return v1alpha1.ReasonPoolNotReady, "is being deleted"
	case pool.Paused:
		return v1alpha1.ReasonPoolNotReady, "is paused"
	case ready != nil && ready.Status == metav1.ConditionFalse:
		return v1alpha1.ReasonPoolNotReady, ready.Message
	case !pool.CIDR.IsValid():
		return v1alpha1.ReasonPoolNotReady, "has no CIDR yet"
	}
	return "", ""
}

// size says that the pool is too small, even when it is empty.
func (j *judge) size(pool *register.Pool) (reason, message string) {
	if j.terms.Block.IsValid() || j.terms.Length == ipam.NoLength {
		return "", ""
	}
	switch largest := pool.LargestBlock(); {
	case largest == ipam.NoLength:
		return v1alpha1.ReasonCannotFit, "withholds all of its addresses"
	case largest > j.terms.Length:
		return v1alpha1.ReasonCannotFit, fmt.Sprintf("is too small: its largest block is a /%d even when it is empty", largest)
	}
	return "", ""
}

// block says what is in the way of the very block that is asked for.
func (j *judge) block(pool *register.Pool) (reason, message string) {
	block := j.terms.Block
	if !block.IsValid() {
		return "", ""
	}
	for _, record := range pool.Records {
		if record.Block.Overlaps(block) {
			return v1alpha1.ReasonConflict, fmt.Sprintf("%s is held by %s", record.Block, holderOf(record))
		}
	}
	if !pool.Space().IsFree(block) {
		return v1alpha1.ReasonConflict, fmt.Sprintf("%s is not handed out: it is reserved, a gateway or edge address, or outside its ranges", block)
	}
	return "", ""
}

// limit says that the project holds as much as it may.
func (j *judge) limit(pool *register.Pool) (reason, message string) {
	project := j.request.Tenant.Project
	if j.terms.Length == ipam.NoLength || project == "" {
		return "", ""
	}
	more := ipam.UsageOf(netip.PrefixFrom(pool.CIDR.Addr(), j.terms.Length).Masked())
	if err := pool.Limit.Check(pool.Key.String(), project, heldBy(project, pool.Records), more); err != nil {
		return v1alpha1.ReasonLimitReached, err.Error()
	}
	if j.class == nil || !j.class.Limit.IsSet() {
		return "", ""
	}
	var held ipam.Usage
	for _, other := range j.register.Pools {
		held = held.Add(heldBy(project, ofClass(j.class.Name, other.Records)))
	}
	if err := j.class.Limit.Check("class "+j.class.Name, project, held, more); err != nil {
		return v1alpha1.ReasonLimitReached, err.Error()
	}
	return "", ""
}

func heldBy(project string, records []*register.Record) ipam.Usage {
	var held ipam.Usage
	for _, record := range records {
		if record.Project == project {
			held = held.Add(ipam.UsageOf(record.Block))
		}
	}
	return held
}

func ofClass(class string, records []*register.Record) []*register.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r *register.Record) bool { return r.Class != class })
}

// room says that no block of the length is free.
func (j *judge) room(pool *register.Pool) (reason, message string) {
	if j.terms.Length == ipam.NoLength {
		return "", ""
	}
	used := pool.Space()
	if _, ok := used.Find(space.FirstFit, j.terms.Length); ok {
		return "", ""
	}
	if largest, ok := used.LargestFree(); ok {
		return v1alpha1.ReasonPoolExhausted, fmt.Sprintf("has no free /%d: the largest free block is a /%d", j.terms.Length, largest)
	}
	return v1alpha1.ReasonPoolExhausted, "is full"
}

// holderOf names the holder of a record, or says how it is held without one.
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
