package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/config/policy"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=cadastre-allocations;cadastre-filled-in,verbs=list;watch

// policyWatch watches, each by its name alone, the admission policies that keep what the
// operator writes from others, and their bindings.
type policyWatch struct{ policies []guardedBy }

// guardedBy is one policy, and what the watches show of it.
type guardedBy struct {
	shipped            admissionv1.ValidatingAdmissionPolicy
	policies, bindings toolscache.SharedIndexInformer
}

// newPolicyWatch makes the watches, which run begins.
func newPolicyWatch(cfg *rest.Config, over *http.Client) (*policyWatch, error) {
	clients, err := kubernetes.NewForConfigAndClient(cfg, over)
	if err != nil {
		return nil, err
	}
	shipped, err := shippedPolicies()
	if err != nil {
		return nil, err
	}
	p := &policyWatch{}
	for _, policy := range shipped {
		of := func(resource string, example runtime.Object) toolscache.SharedIndexInformer {
			named := fields.OneTermEqualSelector("metadata.name", policy.Name)
			source := toolscache.NewListWatchFromClient(clients.AdmissionregistrationV1().RESTClient(), resource, "", named)
			return toolscache.NewSharedIndexInformer(source, example, 0, toolscache.Indexers{})
		}
		p.policies = append(p.policies, guardedBy{
			shipped:  policy,
			policies: of("validatingadmissionpolicies", &admissionv1.ValidatingAdmissionPolicy{}),
			bindings: of("validatingadmissionpolicybindings", &admissionv1.ValidatingAdmissionPolicyBinding{}),
		})
	}
	return p, nil
}

// shippedPolicies are the policies of the manifests, which hold for an operator of any
// namespace but for its name.
func shippedPolicies() ([]admissionv1.ValidatingAdmissionPolicy, error) {
	names, err := fs.Glob(policy.Manifests, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []admissionv1.ValidatingAdmissionPolicy
	for _, name := range names {
		manifest, err := policy.Manifests.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
			var policy admissionv1.ValidatingAdmissionPolicy
			err := documents.Decode(&policy)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
			if policy.Kind == "ValidatingAdmissionPolicy" {
				all = append(all, policy)
			}
		}
	}
	return all, nil
}

// run watches until ctx is done.
func (p *policyWatch) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, g := range p.policies {
		running.Go(func() { g.policies.RunWithContext(ctx) })
		running.Go(func() { g.bindings.RunWithContext(ctx) })
	}
	running.Wait()
}

// state reports of each policy whether it is in force, by its name; nothing of one that is
// not known, as the API server has not answered.
func (p *policyWatch) state() map[string]bool {
	state := map[string]bool{}
	for _, g := range p.policies {
		if g.policies.HasSynced() && g.bindings.HasSynced() {
			state[g.shipped.Name] = inForce(g.policies.GetStore().List(), g.bindings.GetStore().List(), &g.shipped)
		}
	}
	return state
}

// inForce reports whether a policy is there with all validations that are shipped, and a
// binding of it denies what they refuse, of every object.
func inForce(policies, bindings []any, shipped *admissionv1.ValidatingAdmissionPolicy) bool {
	same := func(a, b admissionv1.Validation) bool { return a.Expression == b.Expression }
	there := slices.ContainsFunc(policies, func(obj any) bool {
		live, ok := obj.(*admissionv1.ValidatingAdmissionPolicy)
		return ok && slices.EqualFunc(live.Spec.Validations, shipped.Spec.Validations, same) &&
			(live.Spec.FailurePolicy == nil || *live.Spec.FailurePolicy == admissionv1.Fail)
	})
	return there && slices.ContainsFunc(bindings, func(obj any) bool {
		live, ok := obj.(*admissionv1.ValidatingAdmissionPolicyBinding)
		return ok && live.Spec.PolicyName == shipped.Name && slices.Contains(live.Spec.ValidationActions, admissionv1.Deny) &&
			all(live.Spec.MatchResources)
	})
}

// all reports whether a binding leaves no object out. The API server fills in selectors that
// are empty.
func all(match *admissionv1.MatchResources) bool {
	if match == nil {
		return true
	}
	namespaces, objects := match.NamespaceSelector, match.ObjectSelector
	return len(match.ResourceRules) == 0 && len(match.ExcludeResourceRules) == 0 &&
		(namespaces == nil || len(namespaces.MatchLabels)+len(namespaces.MatchExpressions) == 0) &&
		(objects == nil || len(objects.MatchLabels)+len(objects.MatchExpressions) == 0)
}
