package security

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// late holds the objects that wait for the right to use one pool: an object of each kind, made by
// one user in one namespace.
type late struct {
	w     *world
	as    client.Client
	claim *v1alpha1.IPClaim
	alien *ipamv1.IPAddressClaim
	child *v1alpha1.LocalIPPool
}

// waits makes one object of each kind, and waits until each reports that it may not use the pool,
// as if it did not exist.
func (w *world) waits(as client.Client, namespace, pool string) *late {
	w.Helper()
	l := &late{w: w, as: as,
		claim: build.Claim(namespace, "late").Pool(pool).Length(32).Obj(),
		alien: build.AddressClaim(namespace, "late").Pool(pool).Obj(),
		child: build.Pool("late").Child(pool, 28).In(namespace),
	}
	for _, obj := range l.all() {
		suite.Must(w, as.Create(w.Context(), obj))
	}
	told := fmt.Sprintf("there is no IPPool %q that this namespace may use", pool)
	w.Await("all of them report why they wait", func(ctx context.Context) bool {
		l.refresh(ctx)
		return says(l.claim.Status.Conditions, told) && says(l.alien.Status.Conditions, told) && says(l.child.Status.Conditions, told)
	})
	for _, obj := range l.all() {
		if sealed := obj.GetAnnotations()[v1alpha1.AnnotationRequester]; sealed == "" || strings.Contains(sealed, "late-user") {
			w.Errorf("%T has its maker recorded: %q", obj, sealed)
		}
	}
	return l
}

func (l *late) all() []client.Object { return []client.Object{l.claim, l.alien, l.child} }

func (l *late) refresh(ctx context.Context) {
	for _, obj := range l.all() {
		suite.Must(l.w, l.w.Get(ctx, client.ObjectKeyFromObject(obj), obj))
	}
}

func says(conditions []metav1.Condition, text string) bool {
	for _, c := range conditions {
		if strings.Contains(c.Message, text) {
			return true
		}
	}
	return false
}

// isServed waits until all of them are served, and do not have the annotation with their requester
// any more.
func (l *late) isServed() {
	l.w.Helper()
	l.w.Await("all of them are served", func(ctx context.Context) bool {
		l.refresh(ctx)
		served := l.claim.Status.Phase == v1alpha1.ClaimBound && l.alien.Status.AddressRef.Name != "" && l.child.Status.Phase == v1alpha1.PoolReady
		for _, obj := range l.all() {
			served = served && obj.GetAnnotations()[v1alpha1.AnnotationRequester] == ""
		}
		return served
	})
}

// ends deletes all of them.
func (l *late) ends() {
	l.w.Deleted(l.claim, l.alien)
	l.w.Gone(l.claim)
	l.w.Gone(l.alien)
	l.w.letGoOf(l.child)
}

// lateUser makes claims of all kinds and pools in a namespace.
func (w *world) lateUser(name string, namespaces ...string) client.Client {
	w.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{ipamv1.GroupVersion.Group}, Resources: []string{"ipaddressclaims"}, Verbs: []string{"*"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ipclaims", "localippools"}, Verbs: []string{"*"}},
	}}
	w.Created(role)
	as := w.As(name)
	for _, namespace := range namespaces {
		w.Created(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})
		w.Await("the binding counts", func(ctx context.Context) bool {
			return as.List(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(namespace)) == nil
		})
	}
	return as
}

// mayUse gives a user the right to use pools.
func (w *world) mayUse(user string, pools ...string) {
	w.Helper()
	w.Created(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + pools[0]}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ippools"}, ResourceNames: pools, Verbs: []string{"use"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user + "-" + pools[0]},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user + "-" + pools[0]},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
}

// aLateRightCounts expects that objects that wait for the right to use a pool are served when the
// right comes: by a binding, by the label of the namespace, by the pool's visibility.
func (w *world) aLateRightCounts() {
	owned := func(s *v1alpha1.IPPoolSpec) { s.Project = "late-owner" }
	hidden := func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "late-owner" }
	for _, name := range []string{"late-bound", "late-labeled", "late-seen"} {
		w.Namespace(name)
	}
	w.Pools(build.Pool("late-owned").CIDR("10.40.0.0/24").With(owned).Obj(),
		build.Pool("late-hidden").CIDR("10.40.1.0/24").With(hidden).Obj(),
		build.Pool("late-shown").CIDR("10.40.2.0/24").With(hidden).Obj())
	as := w.lateUser("late-user", "late-bound", "late-labeled", "late-seen")
	// A namespace's own child pool takes the right to use its parent, in any namespace.
	w.mayUse("late-user", "late-hidden", "late-shown")

	bound := w.waits(as, "late-bound", "late-owned")
	w.nobodyForges(as, bound)
	w.mayUse("late-user", "late-owned")
	bound.isServed()
	bound.ends()

	labelled := w.waits(as, "late-labeled", "late-hidden")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late-labeled"}}
	suite.Must(w, w.Patch(w.Context(), namespace, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"`+v1alpha1.LabelProject+`":"late-owner"}}}`))))
	labelled.isServed()
	labelled.ends()

	seen := w.waits(as, "late-seen", "late-shown")
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "late-shown"}}
	suite.Must(w, w.Patch(w.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"visibility":"Shared","project":null}}`))))
	seen.isServed()
	seen.ends()
}

// nobodyForges tries, as a user, to set the creator of an object: in a new one, by a copy of
// another's, and by a change.
func (w *world) nobodyForges(as client.Client, l *late) {
	ctx := w.Context()
	copied := build.Claim(l.claim.Namespace, "copied").Pool("late-owned").Length(32).Obj()
	copied.Annotations = map[string]string{v1alpha1.AnnotationRequester: l.claim.Annotations[v1alpha1.AnnotationRequester], v1alpha1.AnnotationUseGranted: "late-owned"}
	suite.Must(w, as.Create(ctx, copied))
	if got := copied.Annotations[v1alpha1.AnnotationRequester]; got == l.claim.Annotations[v1alpha1.AnnotationRequester] || copied.Annotations[v1alpha1.AnnotationUseGranted] != "" {
		w.Errorf("a new claim keeps the annotation that its maker wrote: %v", copied.Annotations)
	}
	for _, obj := range l.all() {
		forged := obj.DeepCopyObject().(client.Object)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationRequester+`":"v1.forged.AAAA"}}}`))
		if err := as.Patch(ctx, forged, patch); !apierrors.IsForbidden(err) && (err == nil || !strings.Contains(err.Error(), "is written by the operator alone")) {
			w.Errorf("%T: its maker is forged: %v", obj, err)
		}
	}
	removed := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationRequester+`":null}}}`))
	suite.Must(w, as.Patch(ctx, copied, removed))
	w.Deleted(copied)
}
