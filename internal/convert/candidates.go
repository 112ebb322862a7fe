package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

const (
	// MostCandidates is how many pools a claim lists, and messageLength how long the message
	// of each is at most, as the schema has it.
	MostCandidates = 10
	messageLength  = 512
)

// Candidates are the first of the pools that a claim may use, as its status lists them, and
// how many more there are. They stay the same while the claim waits for the same reasons,
// and name no holder.
func Candidates(results []ipam.PoolResult) (candidates []v1alpha1.CandidatePool, omitted int) {
	return CandidatesNow(lasting(results))
}

// lasting are the results without whose turn it is, which is so for a moment: a block was
// released, and its next holder is being served.
func lasting(results []ipam.PoolResult) []ipam.PoolResult {
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

// CandidatesNow are the same as they are at this moment, for the answer to a dry run.
func CandidatesNow(results []ipam.PoolResult) (candidates []v1alpha1.CandidatePool, omitted int) {
	listed := results[:min(len(results), MostCandidates)]
	for _, result := range listed {
		candidates = append(candidates, candidate(result))
	}
	return candidates, len(results) - len(listed)
}

// Candidate is one pool as the status of a claim lists it.
func Candidate(result ipam.PoolResult) v1alpha1.CandidatePool {
	return candidate(lasting([]ipam.PoolResult{result})[0])
}

func candidate(result ipam.PoolResult) v1alpha1.CandidatePool {
	return v1alpha1.CandidatePool{
		PoolRef: *PoolReference(result.Pool), Reason: v1alpha1.CandidateReason(result.Verdict()), Message: bounded(candidateMessage(result)),
	}
}

// candidateMessage says why a claim is not served from a pool; empty where it is. It does
// not name the holder of a block: the condition does, where the namespace may know it.
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

// bounded is a message, cut where it is too long.
func bounded(message string) string {
	if runes := []rune(message); len(runes) > messageLength {
		return string(runes[:messageLength-1]) + "…"
	}
	return message
}

// SetFree writes how much is free in a pool into the answer to a dry run.
func SetFree(c *v1alpha1.CandidatePool, largest int, available space.Count) {
	c.Available = available.String()
	if c.LargestFreePrefix = ""; largest != ipam.NoLength {
		c.LargestFreePrefix = fmt.Sprintf("/%d", largest)
	}
}

// CandidateReasons names the same pools in the message of a condition, in the same order,
// each with its reason; empty where there are fewer than two, of which the message itself
// says all.
func CandidateReasons(results []ipam.PoolResult) string {
	if len(results) < 2 {
		return ""
	}
	listed := lasting(results[:min(len(results), MostCandidates)])
	parts := make([]string, 0, len(listed)+1)
	for _, result := range listed {
		parts = append(parts, fmt.Sprintf("%s: %s", result.Pool, result.Verdict()))
	}
	if omitted := len(results) - len(listed); omitted > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", omitted))
	}
	return strings.Join(parts, ", ")
}
