package operator

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// informer implements one that has listed these objects.
type informer struct {
	toolscache.SharedIndexInformer
	objects   []any
	isPending bool
}

func (i informer) HasSynced() bool { return !i.isPending }

func (i informer) GetStore() toolscache.Store {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, obj := range i.objects {
		_ = store.Add(obj)
	}
	return store
}

// newPolicyWatchInMemory returns a watch of the policies as shipped, of which all but the first have no binding.
func newPolicyWatchInMemory(t testing.TB) *policyWatch {
	t.Helper()
	p := &policyWatch{}
	for i, policy := range manifests.Policies(manifests.Account{}) {
		g := guardingPolicy{shippedPolicy: policy, policies: informer{objects: []any{&policy}}, bindings: informer{}}
		if i == 0 {
			g.bindings = informer{objects: []any{binding(policy.Name)}}
		}
		p.policies = append(p.policies, g)
	}
	return p
}

func binding(policy string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

func TestPolicyIsInForceOnlyAsShipped(t *testing.T) {
	shipped := manifests.Policies(manifests.Account{})
	if len(shipped) != 3 {
		t.Fatalf("%d policies", len(shipped))
	}
	for name, change := range map[string]struct {
		of   func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding)
		want bool
	}{
		"as shipped": {func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {}, true},
		"as the API server fills it in": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}
		}, true},
		"one validation is gone": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations = p.Spec.Validations[1:]
		}, false},
		"its failure is ignored": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.FailurePolicy = new(admissionv1.Ignore)
		}, false},
		"it matches fewer requests": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ResourceRules[0].Operations = p.Spec.MatchConstraints.ResourceRules[0].Operations[1:]
		}, false},
		"others are let through": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "others", Expression: "request.userInfo.username != 'mallory'"})
		}, false},
		"the binding only audits": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		}, false},
		"the binding is of another policy": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.PolicyName = "other"
		}, false},
		"the binding leaves namespaces out": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}, false},
	} {
		p, b := shipped[0].DeepCopy(), binding(shipped[0].Name)
		change.of(p, b)
		if got := inForce([]any{p}, []any{b}, &shipped[0]); got != change.want {
			t.Errorf("%s: in force is %t", name, got)
		}
	}
	p, b := &shipped[0], binding(shipped[0].Name)
	if inForce(nil, []any{b}, p) || inForce([]any{p}, nil, p) {
		t.Error("in force without policy or without binding")
	}
}

func TestPolicyHasNoStateUntilListed(t *testing.T) {
	for name, c := range map[string]guardingPolicy{
		"the policy":  {policies: informer{isPending: true}, bindings: informer{}},
		"its binding": {policies: informer{}, bindings: informer{isPending: true}},
	} {
		p := &policyWatch{policies: []guardingPolicy{c}}
		if got := p.state(); len(got) > 0 {
			t.Errorf("before %s is listed, the state is %v", name, got)
		}
	}
}

// TestRollbackIsSpread covers a source that has seen no event since its list, of a store that has gone back and passed
// that list. It lists again, as another source has noticed, or the view of records has.
func TestRollbackIsSpread(t *testing.T) {
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	counted, revision, view := newRollbacks(scheme, logr.Discard()), "7", spreadTo(0)
	counted.include(&view)
	lists := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &v1alpha1.IPPoolList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	idle, other := counted.newVerifiedSource(lists, &v1alpha1.IPClass{}), counted.newVerifiedSource(lists, &v1alpha1.IPPool{})
	for want, report := range []func(){
		func() { other.GoneBack("7", "5") },
		func() { counted.spread("5") }, // as the view does
	} {
		revision = "7"
		for _, source := range []*kubeutil.VerifiedSource{idle, other} {
			_, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
			suite.Must(t, err)
		}
		report()
		revision = "9"
		if _, err := idle.WatchWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
			t.Errorf("after report %d the watch of IPClasses begins with: %v", want+1, err)
		}
		if got := counted.byKind(); got["IPClass"] != want+1 || got["IPPool"] != want+1 || int(view) != want+1 {
			t.Errorf("after report %d: %v are counted, and the view has listed %d times", want+1, got, view)
		}
	}
}

// spreadTo represents the view of records at revision 7, which lists at once. It counts the reports to it.
type spreadTo int

func (*spreadTo) Revision() string       { return "7" }
func (s *spreadTo) GoneBack(_, _ string) { *s++ }

// TestRollbacksAreCountedByKind lists a store that has gone back from revision 7 to 5.
func TestRollbacksAreCountedByKind(t *testing.T) {
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	counted := newRollbacks(scheme, logr.Discard())
	revision := ""
	source := counted.newVerifiedSource(&toolscache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &v1alpha1.IPClaimList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}, nil
	}}, &v1alpha1.IPClaim{})
	for want, listed := range []string{"7", "5"} {
		revision = listed
		_, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
		suite.Must(t, err)
		if got := counted.byKind(); len(got) != 1 || got["IPClaim"] != want {
			t.Errorf("at revision %s %v are counted, want %d of IPClaim", listed, got, want)
		}
	}
}
