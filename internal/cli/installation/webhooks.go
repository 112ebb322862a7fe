package installation

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	kindMutating   = "MutatingWebhookConfiguration"
	kindValidating = "ValidatingWebhookConfiguration"
)

// webhooks checks the webhook configurations, and what they trust.
func (d *Doctor) webhooks(ctx context.Context) []Check {
	var checks []Check
	var all []*shippedWebhook
	for _, c := range []struct{ check, kind, name string }{
		{"webhooks/mutating", kindMutating, MutatingWebhook},
		{"webhooks/validating", kindValidating, ValidatingWebhook},
	} {
		live, err := readWebhooks(ctx, d.Client, c.kind, c.name)
		switch {
		case apierrors.IsNotFound(err):
			checks = append(checks, failed(c.check, remedyManifests, "there is no %s %s", c.kind, c.name))
		case err != nil:
			checks = append(checks, unread(c.check, c.kind+" "+c.name, err))
		default:
			checks = append(checks, judgeWebhooks(c.check, live, shippedWebhooks(c.kind, d.account())))
			all = append(all, live...)
		}
	}
	if len(all) > 0 {
		checks = append(checks, judgeTrust(all), d.service(ctx, all))
	}
	return checks
}

func readWebhooks(ctx context.Context, reader client.Reader, kind, name string) ([]*shippedWebhook, error) {
	var found []*shippedWebhook
	if kind == kindMutating {
		configuration := &admissionv1.MutatingWebhookConfiguration{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, configuration)
		for i := range configuration.Webhooks {
			found = append(found, common(&configuration.Webhooks[i]))
		}
		return found, err
	}
	configuration := &admissionv1.ValidatingWebhookConfiguration{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, configuration)
	for i := range configuration.Webhooks {
		found = append(found, &shippedWebhook{ValidatingWebhook: configuration.Webhooks[i]})
	}
	return found, err
}

// judgeWebhooks compares the webhooks of a configuration with those that are shipped.
func judgeWebhooks(name string, live []*shippedWebhook, shipped map[string]*shippedWebhook) Check {
	byName := map[string]*shippedWebhook{}
	for _, w := range live {
		byName[w.Name] = w
	}
	var wrong []string
	for _, want := range slices.Sorted(maps.Keys(shipped)) {
		got := byName[want]
		if got == nil {
			wrong = append(wrong, want+" is missing")
			continue
		}
		for _, difference := range got.differences(shipped[want]) {
			wrong = append(wrong, want+": "+difference)
		}
	}
	var others []string
	for _, w := range live {
		if shipped[w.Name] == nil {
			others = append(others, w.Name)
		}
	}
	switch {
	case len(wrong) > 0:
		return failed(name, remedyManifests, "%s", strings.Join(wrong, "; "))
	case len(others) > 0:
		return warned(name, "use a client of the operator's version, or apply the manifests of its version", "this client does not know %s", strings.Join(others, ", "))
	}
	return ok(name, "all %d are as shipped", len(live))
}

// differences are those that change which requests reach the webhook, and what becomes of
// them.
func (w *shippedWebhook) differences(shipped *shippedWebhook) []string {
	var all []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(!same(w.FailurePolicy, shipped.FailurePolicy), "failurePolicy is %s and not %s", shown(w.FailurePolicy), shown(shipped.FailurePolicy))
	add(!same(w.SideEffects, shipped.SideEffects), "sideEffects is %s and not %s", shown(w.SideEffects), shown(shipped.SideEffects))
	add(!same(w.TimeoutSeconds, shipped.TimeoutSeconds), "timeoutSeconds is %s and not %s", shown(w.TimeoutSeconds), shown(shipped.TimeoutSeconds))
	add(shipped.reinvocation != nil && !same(w.reinvocation, shipped.reinvocation), "reinvocationPolicy is %s and not %s", shown(w.reinvocation), shown(shipped.reinvocation))
	add(!sameRules(w.Rules, shipped.Rules), "rules are not as shipped")
	add(!sameConditions(w.MatchConditions, shipped.MatchConditions), "matchConditions are not as shipped")
	add(selects(w.NamespaceSelector), "namespaceSelector leaves namespaces out")
	add(selects(w.ObjectSelector), "objectSelector leaves objects out")
	return all
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func shown[T any](value *T) string {
	if value == nil {
		return "not set"
	}
	return fmt.Sprint(*value)
}

// selects reports whether a selector leaves anything out.
func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

func sameRules(a, b []admissionv1.RuleWithOperations) bool {
	return slices.EqualFunc(a, b, func(x, y admissionv1.RuleWithOperations) bool {
		return equality.Semantic.DeepEqual(x.Operations, y.Operations) && equality.Semantic.DeepEqual(x.APIGroups, y.APIGroups) &&
			equality.Semantic.DeepEqual(x.APIVersions, y.APIVersions) && equality.Semantic.DeepEqual(x.Resources, y.Resources) &&
			scopeOf(x) == scopeOf(y)
	})
}

// scopeOf is the scope of a rule; that which the API server writes where it is not set.
func scopeOf(rule admissionv1.RuleWithOperations) admissionv1.ScopeType {
	if rule.Scope == nil {
		return admissionv1.AllScopes
	}
	return *rule.Scope
}

// sameConditions compares expressions but for white space: kustomize folds lines otherwise
// than others do.
func sameConditions(a, b []admissionv1.MatchCondition) bool {
	return slices.EqualFunc(a, b, func(x, y admissionv1.MatchCondition) bool {
		return x.Name == y.Name && folded(x.Expression) == folded(y.Expression)
	})
}

func folded(text string) string { return strings.Join(strings.Fields(text), " ") }

// judgeTrust judges what the operator writes into the configurations: the bundle and the path.
func judgeTrust(all []*shippedWebhook) Check {
	const name, remedy = "webhooks/trust", "let the operator write it: it does so when it starts, and whenever that changes; see deployment and leader"
	first := all[0].ClientConfig.CABundle
	for _, w := range all {
		config := &w.ClientConfig
		switch {
		case len(config.CABundle) == 0:
			return failed(name, remedy, "%s has no caBundle, so the API server trusts no replica", w.Name)
		case len(certificatesIn(config.CABundle)) == 0:
			return failed(name, remedy, "the caBundle of %s has no certificate that can be read", w.Name)
		case !bytes.Equal(config.CABundle, first):
			return failed(name, remedy, "the caBundle of %s is not that of %s", w.Name, all[0].Name)
		case config.Service != nil && (config.Service.Path == nil || *config.Service.Path == "" || *config.Service.Path == "/"):
			return failed(name, remedy, "%s has no path", w.Name)
		}
	}
	return ok(name, "all %d trust one bundle, and have a path", len(all))
}

// service checks that the Service exists by which the webhooks are called.
func (d *Doctor) service(ctx context.Context, all []*shippedWebhook) Check {
	const name = "webhooks/service"
	reference := all[0].ClientConfig.Service
	if reference == nil {
		return warned(name, remedyManifests, "%s is called by a URL and not by a Service", all[0].Name)
	}
	what := "Service " + reference.Namespace + "/" + reference.Name
	err := d.Client.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, &corev1.Service{})
	switch {
	case apierrors.IsNotFound(err):
		return failed(name, remedyManifests, "there is no %s", what)
	case err != nil:
		return unread(name, what, err)
	}
	return ok(name, "%s exists", what)
}
