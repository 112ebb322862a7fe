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
	add(!same(w.FailurePolicy, shipped.FailurePolicy), "failurePolicy is %s and not %s", shown(w.FailurePolicy), shown(shipped.FailurePolicy))
	add(!same(w.SideEffects, shipped.SideEffects), "sideEffects is %s and not %s", shown(w.SideEffects), shown(shipped.SideEffects))
	add(!same(w.TimeoutSeconds, shipped.TimeoutSeconds), "timeoutSeconds is %s and not %s", shown(w.TimeoutSeconds), shown(shipped.TimeoutSeconds))
	add(shipped.Reinvocation != nil && !same(w.Reinvocation, shipped.Reinvocation), "reinvocationPolicy is %s and not %s", shown(w.Reinvocation), shown(shipped.Reinvocation))
	add(!sameRules(w.Rules, shipped.Rules), "rules are not as shipped")
	add(!sameConditions(w.MatchConditions, shipped.MatchConditions), "matchConditions are not as shipped")
	add(selects(w.NamespaceSelector), "namespaceSelector leaves namespaces out")
	add(selects(w.ObjectSelector), "objectSelector leaves objects out")
	return all
}
