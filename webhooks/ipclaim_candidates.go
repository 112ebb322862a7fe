package webhooks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// sayWhatIsFree has the answer to a dry run list the pools that the claim may use, whether
// or not it would be bound, with what is free in each. A tenant learns so what concerns it,
// who may not read pools. None of it is stored: it changes with every claim.
func (m *claimMutator) sayWhatIsFree(r *claimRequest, resolution inventory.Resolution, outcome *convert.ClaimOutcome) {
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

// classesToName is a warning that names the classes which a claim could name, where it names
// none that there is for it. It is not part of the status, as it changes with every class.
func (m *claimMutator) classesToName(r *claimRequest, err error) []string {
	missing, ok := errors.AsType[*ipam.MissingError](err)
	if !ok || missing.Reason != v1alpha1.ReasonClassNotFound && missing.Reason != v1alpha1.ReasonNoDefaultClass {
		return nil
	}
	classes := m.Catalogue.ClassesFor(r.request)
	if len(classes) == 0 {
		return nil
	}
	var names []string
	for _, class := range classes[:min(len(classes), ipam.Named)] {
		name := class.Name
		if class.Default {
			name += fmt.Sprintf(" (default for %s)", class.Family)
		}
		names = append(names, name)
	}
	if more := len(classes) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return []string{fmt.Sprintf("namespace %s may use the IPClasses %s: name one of them in spec.className", r.claim.Namespace, strings.Join(names, ", "))}
}
