package webhooks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// classesNamed is how many classes a warning names.
const classesNamed = 5

// classWarnings say which of a pool's classNames have no effect: those that name no
// class, which may be created later, those that do not allow a namespace's own pools,
// and those of the other address family.
func classWarnings(catalogue *inventory.Catalogue, pool ipam.Pool) []string {
	var unknown, closed, other []string
	for _, name := range pool.Classes {
		class, ok := catalogue.Class(name)
		policy, _ := errors.AsType[*ipam.PolicyError](class.Excludes(pool))
		switch {
		case !ok:
			unknown = append(unknown, name)
		case policy != nil && policy.Verdict == ipam.LocalPoolNotAllowed:
			closed = append(closed, name)
		case policy != nil:
			other = append(other, name)
		}
	}
	var warnings []string
	switch len(unknown) {
	case 0:
	case 1:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: there is no IPClass %s: create it, or correct the name", firstOf(unknown)))
	default:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: there are no IPClasses %s: create them, or correct the names", firstOf(unknown)))
	}
	switch len(closed) {
	case 0:
	case 1:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClass %s does not allow LocalIPPools and is not served from here: remove it, or ask for its spec.allowLocalPools", firstOf(closed)))
	default:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClasses %s do not allow LocalIPPools and are not served from here: remove them, or ask for their spec.allowLocalPools", firstOf(closed)))
	}
	switch len(other) {
	case 0:
	case 1:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClass %s does not hand out %s, the family of this pool: remove it, as it is not served from here", firstOf(other), pool.Family))
	default:
		warnings = append(warnings, fmt.Sprintf("spec.classNames: IPClasses %s do not hand out %s, the family of this pool: remove them, as they are not served from here", firstOf(other), pool.Family))
	}
	return warnings
}

// firstOf names the first few, quoted.
func firstOf(names []string) string {
	quoted := make([]string, 0, classesNamed)
	for _, name := range names[:min(len(names), classesNamed)] {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	if more := len(names) - len(quoted); more > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(quoted, ", ")
}
