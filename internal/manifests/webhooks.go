package manifests

import "fmt"

// Differences returns the differences that change which requests reach the webhook, and their
// treatment.
func (w *Webhook) Differences(shipped *Webhook) []string {
	var all []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(!isEqual(w.FailurePolicy, shipped.FailurePolicy), "failurePolicy is %s and not %s", formatPointer(w.FailurePolicy), formatPointer(shipped.FailurePolicy))
	add(!isEqual(w.SideEffects, shipped.SideEffects), "sideEffects is %s and not %s", formatPointer(w.SideEffects), formatPointer(shipped.SideEffects))
	add(!isEqual(w.TimeoutSeconds, shipped.TimeoutSeconds), "timeoutSeconds is %s and not %s", formatPointer(w.TimeoutSeconds), formatPointer(shipped.TimeoutSeconds))
	add(shipped.Reinvocation != nil && !isEqual(w.Reinvocation, shipped.Reinvocation), "reinvocationPolicy is %s and not %s", formatPointer(w.Reinvocation), formatPointer(shipped.Reinvocation))
	add(!sameRules(w.Rules, shipped.Rules), "rules are not as shipped")
	add(!sameConditions(w.MatchConditions, shipped.MatchConditions), "matchConditions are not as shipped")
	add(selects(w.NamespaceSelector), "namespaceSelector leaves namespaces out")
	add(selects(w.ObjectSelector), "objectSelector leaves objects out")
	return all
}
