package story

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
)

// Entitled is a service account that can use all pools, and Deployer one that can use none.
const (
	Entitled = "system:serviceaccount:" + Team + ":entitled"
	Deployer = "system:serviceaccount:" + Team + ":deployer"
)

// Asker returns an asker that asks the API server for the rights of the service accounts that
// created an object.
func (w *World) Asker() *authorize.Asker {
	w.t.Helper()
	return authorize.NewAsker(authorize.NewRights(w.K8s), w.K8s, w.Clock)
}

// RequestedBy makes an object that is not stored yet name the user that created it, as admission
// does.
func (w *World) RequestedBy(obj client.Object, user string) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Annotations: obj.GetAnnotations()}
	metav1.SetMetaDataAnnotation(&meta, v1alpha1.AnnotationRequestedBy, user)
	obj.SetAnnotations(meta.Annotations)
}

// entitle gives the service account Entitled its right, and blocks until the authorizer knows it.
func (p *Plane) entitle(ctx context.Context) error {
	for _, obj := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "entitled"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ippools"}, Verbs: []string{"use"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "entitled"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "entitled"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Team, Name: "entitled"}},
		},
	} {
		if err := client.IgnoreAlreadyExists(p.admin.Create(ctx, obj)); err != nil {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, shownWithin, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: Entitled, ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "ippools", Verb: "use", Name: "p"},
		}}
		err := p.admin.Create(ctx, review)
		return review.Status.Allowed, err
	})
}
