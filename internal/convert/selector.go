package convert

import (
	"crypto/sha256"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
