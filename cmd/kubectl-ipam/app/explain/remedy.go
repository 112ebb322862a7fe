package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// remediesShown bounds the number of blocks to release that are named, and the number of pools
// that could serve the claim.
const remediesShown = 3

// remedies returns the actions after which the claim would be served, judged by the objects that
// the caller can read.
func remedies(question *Question, knowledge *Knowledge, terms ipam.Terms, pools []Candidate) []string {
	var all []string
	add := func(remedies ...string) {
		for _, remedy := range remedies {
			if !slices.Contains(all, remedy) {
				all = append(all, remedy)
			}
		}
	}
	for _, c := range pools {
		if c.pool == nil { // created after the pools were listed
			continue
		}
		switch c.Reason {
		case v1alpha1.CandidateNoFreeBlock:
			add(releases(c, terms.Length)...)
			if c.LargestFreePrefix != "" {
				add(fmt.Sprintf("ask for a %s or smaller in a new claim: %s has one", c.LargestFreePrefix, c.pool.Key))
			}
		case v1alpha1.CandidatePaused:
			if c.pool.Paused { // otherwise its Cluster is paused
				add(fmt.Sprintf("have %s hand out blocks again: kubectl ipam resume %s", c.pool.Key, argumentOf(c)))
			}
		case v1alpha1.CandidateLimitReached:
			add("release blocks of the project: the limit counts its blocks in any state")
		case v1alpha1.CandidateInUse, v1alpha1.CandidateWithheld:
			add("ask for another block in a new claim, or leave spec.cidr out")
		}
	}
	_, isOfClass := knowledge.operator.Catalog.Class(question.request.Class)
	switch {
	case isOfClass:
		add(otherPools(question.request, knowledge, terms)...)
	case question.report.Reason == v1alpha1.ReasonNoDefaultClass:
		add("make a class the default: kubectl ipam default-class NAME", "name a class or a pool in a new claim")
	}
	return all
}

// argumentOf names a pool for a command.
func argumentOf(c Candidate) string {
	switch kind := c.pool.Key.Kind; {
	case kind == ipam.PoolKindIPPool:
		return c.Name
	case kind.IsNamespaced():
		return command.RefOfPool(c.pool.Key).Argument() + " -n " + c.pool.Key.Namespace
	}
	return command.RefOfPool(c.pool.Key).Argument()
}

// releases describes how to release the blocks of a pool whose release, each on its own, makes
// room for a block of the length. Blocks without a live holder come first.
func releases(c Candidate, length int) []string {
	used, empty := c.pool.Space(), space.NewWithout(c.pool.CIDR, c.pool.Withheld)
	type option struct {
		cost, bits int
		how        string
	}
	var helping []option
	for _, record := range c.pool.Records {
		if !record.IsFirst() || overlapped(record, c.pool.Records) {
			continue // after its release, another record would still hold it
		}
		isKept := func(block netip.Prefix) bool { // withheld, or still held by another record
			return !empty.IsFree(block) || block != record.Block && len(c.pool.Overlapping(block)) > 1
		}
		blocks := slices.DeleteFunc(record.Whole().Blocks(), isKept)
		for _, block := range blocks {
			used.Release(block)
		}
		_, ok := used.Find(space.FirstFit, length)
		for _, block := range blocks {
			used.Use(block)
		}
		if ok && len(blocks) > 0 {
			cost, how := release(c, record)
			helping = append(helping, option{cost, record.Block.Bits(), how})
		}
	}
	slices.SortStableFunc(helping, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.bits, a.bits))
	})
	var all []string
	for _, option := range helping[:min(len(helping), remediesShown)] {
		all = append(all, option.how)
	}
	switch more := len(helping) - remediesShown; {
	case more > 0:
		all = append(all, fmt.Sprintf("release one of %d other blocks of %s that are large enough", more, c.pool.Key))
	case len(helping) == 0 && len(c.pool.Records) > 0:
		all = append(all, fmt.Sprintf("release several blocks of %s that lie side by side: no single one makes room for a /%d", c.pool.Key, length))
	}
	return all
}

func overlapped(record *register.Record, all []*register.Record) bool {
	at := slices.Index(all, record) // in address order: a larger block around it precedes, a smaller one within it follows
	for _, i := range []int{at - 1, at + 1} {
		if i >= 0 && i < len(all) && all[i].Block.Overlaps(record.Block) {
			return true
		}
	}
	return false
}

// release describes how to release a block. The cost is a sort key: a block without a live holder
// costs least.
func release(c Candidate, record *register.Record) (cost int, how string) {
	block := fmt.Sprintf("%s of %s", record.Block, c.pool.Key)
	if n := len(record.Whole().AdditionalBlocks); n > 0 {
		block = fmt.Sprintf("%s and %s of %s", record.Block, ipam.FormatCount(n, "more block"), c.pool.Key)
	}
	switch {
	case record.State == ipam.StateCooling:
		return 0, fmt.Sprintf("wait: %s is free again after %s", block, record.ReleaseAfter.UTC().Format("2006-01-02T15:04:05Z"))
	case record.State == ipam.StateRetained:
		return 1, fmt.Sprintf("release %s, which is retained: kubectl ipam release ipallocation/%s -n %s", block, record.Name.Name, record.Name.Namespace)
	case record.Purpose == ipam.PurposePool:
		return 3, fmt.Sprintf("delete the child pool %s, which has %s", record.Holder.Name, block)
	default:
		return 2, fmt.Sprintf("release %s, held by %s: kubectl ipam release %s/%s -n %s", block, record.Holder, strings.ToLower(record.Holder.Kind), record.Holder.Name, record.Holder.Namespace)
	}
}

// otherPools describes pools with room that do not back the class, and could.
func otherPools(request ipam.Request, knowledge *Knowledge, terms ipam.Terms) []string {
	request.Tenant, _ = knowledge.operator.Catalog.Tenant(knowledge.Namespace)
	var all []string
	for _, pool := range knowledge.Register.Pools {
		if len(all) == remediesShown || terms.Length == ipam.NoLength {
			break
		}
		isShared := pool.IsKnown() && pool.Key.Namespace == "" && pool.Network == nil && request.MayUse(pool.Pool)
		if !isShared || pool.Names(request.Class) || knowledge.operator.Catalog.PoolReady(pool.Pool) != nil || !knowledge.operator.Ledger.HasRoom(pool.Key, terms.Length, terms.Block) {
			continue
		}
		if _, _, err := terms.Fitting([]ipam.Pool{pool.Pool}); err == nil {
			all = append(all, fmt.Sprintf("add the class to spec.classNames of %s, which has a free /%d", pool.Key, terms.Length))
		}
	}
	return append(all, fmt.Sprintf("make another pool for the class: kubectl ipam create pool NAME --class %s --parent PARENT --length N", request.Class))
}
