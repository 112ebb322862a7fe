package installation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// askedAtOnce is the number of questions about rights that are asked at a time.
const askedAtOnce = 8

// operatorRights asks whether the operator's service account has the rights that its roles give
// it.
func (d *Doctor) operatorRights(ctx context.Context) []Check {
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
		return []Check{skipped(name, "you may not ask for the rights of others")}
	case err != nil:
		return []Check{unread(name, "rights", err)}
	case len(missing) > 0:
		return []Check{failed(name, remedyManifests+"; where the operator runs under another service account, bind the ClusterRole and the Role cadastre-manager to it", "%s may not %s", user, ipam.FirstFew(missing))}
	}
	return []Check{ok(name, "%s has all %d that it needs", user, len(questions))}
}

// ownRights asks, for each role for people, whether the caller has all of its rights, if the
// caller has the right that only this role gives.
func (d *Doctor) ownRights(ctx context.Context) []Check {
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
			return []Check{unread(name, "your rights", err)}
		}
		if len(missing) > 0 {
			return []Check{warned(name, "ask to be bound to the ClusterRole "+roles[i].Name, "you have some of %s, and may not %s", roles[i].Name, ipam.FirstFew(missing))}
		}
		held = append(held, roles[i].Name)
	}
	if len(held) == 0 {
		return []Check{warned(name, "ask to be bound to one of them, or to edit or view", "you have none of the roles ipam-viewer, ipam-user, ipam-pool-admin and ipam-admin in namespace %s", d.Namespace)}
	}
	return []Check{ok(name, "you have the rights of %s in namespace %s", strings.Join(held, ", "), d.Namespace)}
}

// sign returns the right that identifies the holder of a role.
func (d *Doctor) sign(role string) *authorizationv1.ResourceAttributes {
	const group = "ipam.cadastre.dev"
	switch role {
	case "ipam-admin":
		return &authorizationv1.ResourceAttributes{Group: group, Resource: "ipallocations", Verb: "delete"}
	case "ipam-pool-admin":
		return &authorizationv1.ResourceAttributes{Group: group, Resource: "ippools", Verb: "create"}
	case "ipam-user":
		return &authorizationv1.ResourceAttributes{Group: group, Resource: "ipclaims", Verb: "create", Namespace: d.Namespace}
	case "ipam-viewer":
		return &authorizationv1.ResourceAttributes{Group: group, Resource: "ipclaims", Verb: "list", Namespace: d.Namespace}
	}
	return nil
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
