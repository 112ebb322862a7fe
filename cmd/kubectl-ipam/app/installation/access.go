package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// removalPolicy is the policy that `manager remove-finalizers` installs.
const removalPolicy = "cadastre-removal"

// policies checks the policies that reserve the records, and the fields that the operator fills
// in, for the operator, and checks that they are bound.
func (d *Doctor) policies(ctx context.Context) []Check {
	var checks []Check
	shipped := manifests.Policies(d.account())
	for i := range shipped {
		checks = append(checks, d.policy(ctx, &shipped[i]))
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if d.Client.Get(ctx, client.ObjectKey{Name: removalPolicy}, binding) == nil {
		checks = append(checks, failed("policy/"+removalPolicy, "delete the ValidatingAdmissionPolicyBinding and the ValidatingAdmissionPolicy "+removalPolicy+" to go on", "Cadastre is being removed, and nothing is handed out"))
	}
	return checks
}

func (d *Doctor) policy(ctx context.Context, shipped *admissionv1.ValidatingAdmissionPolicy) Check {
	name, meta := "policy/"+shipped.Name, metav1.ObjectMeta{Name: shipped.Name}
	live := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta}
	for _, obj := range []client.Object{live, binding} {
		absent := failed(name, remedyManifests, ", so users other than the operator can write %s", protects(shipped))
		if bad := d.get(ctx, obj, absent); bad != nil {
			return *bad
		}
	}
	if wrong := append(manifests.PolicyDifferences(live, shipped), manifests.BindingDifferences(binding, shipped.Name)...); len(wrong) > 0 {
		return failed(name, remedyManifests, "%s, so users other than the operator may be able to write %s", strings.Join(wrong, "; "), protects(shipped))
	}
	if checked := live.Status.TypeChecking; checked != nil && len(checked.ExpressionWarnings) > 0 {
		warning := &checked.ExpressionWarnings[0]
		return warned(name, "apply the CRDs of the operator's version", "the API server warns of %s: %s", warning.FieldRef, warning.Warning)
	}
	return ok(name, "is as shipped, and bound")
}

// protects names the data that a policy reserves for the operator.
func protects(shipped *admissionv1.ValidatingAdmissionPolicy) string {
	if shipped.Name == "cadastre-allocations" {
		return "the register"
	}
	return "the fields that it fills in"
}

// flowControl checks that the operator's requests have a separate priority level.
func (d *Doctor) flowControl(ctx context.Context) Check {
	const name, level = "flowcontrol", "cadastre"
	const without = "the operator's requests share a priority level with those that wait for it: many creates at once can block each other"
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: level}}
	for _, obj := range []client.Object{
		&flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: level}},
		&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "cadastre-leader-election"}},
		schema,
	} {
		if bad := d.get(ctx, obj, warned(name, remedyManifests, ": %s", without)); bad != nil {
			return *bad
		}
	}
	if schema.Spec.PriorityLevelConfiguration.Name != level || !isFor(schema, d.account()) {
		return warned(name, remedyManifests, "the FlowSchema %s is not for the service account %s/%s, or of another level: %s", level, d.Operator, d.ServiceAccount, without)
	}
	return ok(name, "the operator's requests have their own priority level")
}

// isFor reports whether a FlowSchema applies to the operator's service account.
func isFor(schema *flowcontrolv1.FlowSchema, operator manifests.Account) bool {
	for i := range schema.Spec.Rules {
		for _, subject := range schema.Spec.Rules[i].Subjects {
			if account := subject.ServiceAccount; account != nil && account.Namespace == operator.Namespace && account.Name == operator.Name {
				return true
			}
		}
	}
	return false
}

// askedAtOnce is the number of questions about rights that are asked at a time.
const askedAtOnce = 8

// operatorRights asks whether the operator's service account has the rights that its roles give
// it.
func (d *Doctor) operatorRights(ctx context.Context) Check {
	const name = "rights/operator"
	user := "system:serviceaccount:" + d.Operator + ":" + d.ServiceAccount
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + d.Operator, "system:authenticated"}
	var questions []authorizationv1.ResourceAttributes
	roles := manifests.OperatorRoles(d.account())
	for _, namespace := range slices.Sorted(maps.Keys(roles)) {
		questions = append(questions, attributes(namespace, roles[namespace])...)
	}
	missing, err := ask(ctx, questions, func(ctx context.Context, q *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: q}}
		err := d.Client.Create(ctx, review)
		return review.Status.Allowed, err
	})
	switch {
	case apierrors.IsForbidden(err):
		return skipped(name, "you may not ask for the rights of others")
	case err != nil:
		return unread(name, "rights", err)
	case len(missing) > 0:
		return failed(name, remedyManifests+"; where the operator runs under another service account, bind the ClusterRole and the Role cadastre-manager to it", "%s may not %s", user, ipam.FirstFew(missing))
	}
	return ok(name, "%s has all %d that it needs", user, len(questions))
}

// ownRights asks, for each role for people, whether the caller has all of its rights, if the
// caller has the right that only this role gives.
func (d *Doctor) ownRights(ctx context.Context) Check {
	const name = "rights/you"
	mayDo := func(ctx context.Context, q *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: q}}
		err := d.Client.Create(ctx, review)
		return review.Status.Allowed, err
	}
	var held []string
	roles := manifests.UserRoles()
	for i := range roles {
		questions := d.promised(&roles[i])
		if sign := d.sign(roles[i].Name); sign != nil {
			if allowed, err := mayDo(ctx, sign); err != nil || !allowed {
				continue
			}
		}
		missing, err := ask(ctx, questions, mayDo)
		if err != nil {
			return unread(name, "your rights", err)
		}
		if len(missing) > 0 {
			return warned(name, "ask to be bound to the ClusterRole "+roles[i].Name, "you have some of %s, and may not %s", roles[i].Name, ipam.FirstFew(missing))
		}
		held = append(held, roles[i].Name)
	}
	if len(held) == 0 {
		return warned(name, "ask to be bound to one of them, or to edit or view", "you have none of the roles ipam-viewer, ipam-user, ipam-pool-admin and ipam-admin in namespace %s", d.Namespace)
	}
	return ok(name, "you have the rights of %s in namespace %s", strings.Join(held, ", "), d.Namespace)
}

// sign returns the right that identifies the holder of a role; nil if there is none.
func (d *Doctor) sign(role string) *authorizationv1.ResourceAttributes {
	return map[string]*authorizationv1.ResourceAttributes{
		"ipam-admin":      {Group: v1alpha1.GroupVersion.Group, Resource: "ipallocations", Verb: "delete"},
		"ipam-pool-admin": {Group: v1alpha1.GroupVersion.Group, Resource: "ippools", Verb: "create"},
		"ipam-user":       {Group: v1alpha1.GroupVersion.Group, Resource: "ipclaims", Verb: "create", Namespace: d.Namespace},
		"ipam-viewer":     {Group: v1alpha1.GroupVersion.Group, Resource: "ipclaims", Verb: "list", Namespace: d.Namespace},
	}[role]
}

// promised returns the rights that a role gives, for one namespace: the role may be bound in that
// namespace alone.
func (d *Doctor) promised(role *rbacv1.ClusterRole) []authorizationv1.ResourceAttributes {
	questions := attributes("", role.Rules)
	for i := range questions {
		if resource := questions[i].Resource; resource != "ippools" && resource != "ipclasses" {
			questions[i].Namespace = d.Namespace
		}
	}
	return questions
}

// attributes returns the questions that cover the rules.
func attributes(namespace string, rules []rbacv1.PolicyRule) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for i := range rules {
		rule := &rules[i]
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, sub, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, authorizationv1.ResourceAttributes{Namespace: namespace, Group: group, Resource: resource, Subresource: sub, Verb: verb, Name: name})
					}
				}
			}
		}
	}
	return all
}

// ask asks all questions, and returns the denied ones in order.
func ask(ctx context.Context, questions []authorizationv1.ResourceAttributes, may func(context.Context, *authorizationv1.ResourceAttributes) (bool, error)) ([]string, error) {
	allowed := make([]bool, len(questions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(askedAtOnce)
	for i := range questions {
		group.Go(func() (err error) {
			allowed[i], err = may(ctx, &questions[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var denied []string
	for i := range questions {
		if !allowed[i] {
			denied = append(denied, textOf(&questions[i]))
		}
	}
	return denied, nil
}

// textOf returns a right as text, such as delete ipallocations.ipam.cadastre.dev.
func textOf(q *authorizationv1.ResourceAttributes) string {
	what := q.Resource
	if q.Subresource != "" {
		what += "/" + q.Subresource
	}
	if q.Group != "" {
		what += "." + q.Group
	}
	if q.Name != "" {
		what += " " + q.Name
	}
	return fmt.Sprintf("%s %s", q.Verb, what)
}

// trialOfClaim asks for a block as a dry run: nothing is recorded.
func (d *Doctor) trialOfClaim(ctx context.Context) Check {
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "doctor-"}}
	err := d.Client.Create(ctx, claim, client.DryRunAll)
	return judgeTrial(claim, err)
}

const trialName = "trial/claim"

// judgeTrial judges the outcome of a claim that names no class and no pool.
func judgeTrial(claim *v1alpha1.IPClaim, err error) Check {
	const answered = "the webhooks answer"
	if err != nil {
		return judgeRefusal(claim, err)
	}
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case claim.Status.Phase == v1alpha1.ClaimBound:
		return ok(trialName, "%s: a claim in namespace %s would get %s", answered, claim.Namespace, claim.Status.AllocatedCIDR)
	case claim.Status.Phase == "" || ready == nil:
		return failed(trialName, remedyManifests, "no webhook answered, so claims get no block when they are created")
	}
	return warned(trialName, "see kubectl ipam pools and kubectl ipam default-class", "%s: a claim in namespace %s that names no class would wait: %s", answered, claim.Namespace, ready.Message)
}

func judgeRefusal(claim *v1alpha1.IPClaim, err error) Check {
	message := withoutPaths(err.Error())
	switch code := codeOf(err); {
	case apierrors.IsForbidden(err) && strings.Contains(message, "cannot create resource"):
		return skipped(trialName, "you may not create ipclaims in namespace %s", claim.Namespace)
	case apierrors.IsNotFound(err) && strings.Contains(message, "namespaces"):
		return skipped(trialName, "namespace %s does not exist: choose another with -n", claim.Namespace)
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return failed(trialName, "apply the CRDs", "the API server does not know IPClaims")
	case code >= http.StatusInternalServerError && code != http.StatusInsufficientStorage:
		return failed(trialName, "see whether the operator runs and can be reached: deployment, webhooks", "no replica answers: %s", message)
	case code == http.StatusInsufficientStorage || code == http.StatusTooManyRequests || code == http.StatusForbidden || code == http.StatusUnprocessableEntity:
		return warned(trialName, "see the message", "the webhooks answer, and refuse a claim in namespace %s that names no class: %s", claim.Namespace, message)
	}
	return failed(trialName, "try again", "creating a claim as a dry run: %s", message)
}

// codeOf returns the HTTP status of an error of the API server, or zero for any other error.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

var aURL = regexp.MustCompile(`https?://[^\s"]+`)

// withoutPaths removes the paths of URLs from a message: the path of a webhook is a secret.
func withoutPaths(message string) string {
	return aURL.ReplaceAllStringFunc(message, func(text string) string {
		parsed, err := url.Parse(text)
		if err != nil {
			return "…"
		}
		return parsed.Scheme + "://" + parsed.Host
	})
}

// trialOfRecord tries to forge an IPAllocation as a dry run. Only the operator can create one.
func (d *Doctor) trialOfRecord(ctx context.Context) Check {
	const name = "trial/record"
	record := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "doctor-"},
		Spec: v1alpha1.IPAllocationSpec{
			CIDR: "192.0.2.0/32", IPFamily: v1alpha1.IPv4, RoutingDomain: "doctor", Purpose: v1alpha1.PurposeClaim,
			ClaimRef: v1alpha1.ClaimReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Name: "doctor"},
		},
	}
	err := d.Client.Create(ctx, record, client.DryRunAll)
	switch {
	case err == nil:
		return failed(name, "see the checks of policies", "the register is not protected: you can make an IPAllocation")
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		return ok(name, "the register is protected: a forged record is refused")
	case apierrors.IsForbidden(err):
		return skipped(name, "you may not create ipallocations, so you cannot try it")
	}
	return skipped(name, "could not be tried: %s", withoutPaths(err.Error()))
}
