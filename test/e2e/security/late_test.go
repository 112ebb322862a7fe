package security

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// late holds an object of each kind that waits for the right to use one pool, created by one
// user in one namespace.
type late struct {
	w     *world
	claim *v1alpha1.IPClaim
	alien *ipamv1.IPAddressClaim
	child *v1alpha1.LocalIPPool
}

// created creates one object of each kind.
func (w *world) created(user, namespace, pool string) *late {
	w.Helper()
	l := &late{w: w,
		claim: build.Claim(namespace, "late").Pool(pool).Length(32).Obj(),
		alien: build.AddressClaim(namespace, "late").Pool(pool).Obj(),
		child: build.Pool("late").Child(pool, 28).In(namespace),
	}
	for _, obj := range l.all() {
		suite.Must(w, w.As(user).Create(w.Context(), obj))
	}
	return l
}

// waits creates one object of each kind, and waits until each says that it may not use
// the pool, as if it did not exist. Then it replaces each with its manifest, which leaves it as it is.
func (w *world) waits(user, namespace, pool string) *late {
	w.Helper()
	l := w.created(user, namespace, pool)
	message := fmt.Sprintf("there is no IPPool %q that this namespace may use", pool)
	w.Await("all of them report why they wait", func(ctx context.Context) bool {
		l.refresh(ctx)
		return says(l.claim.Status.Conditions, message) && says(l.alien.Status.Conditions, message) && says(l.child.Status.Conditions, message)
	})
	for _, obj := range l.all() {
		suite.Must(w, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(obj), obj))
			obj.SetAnnotations(nil)
			obj.SetFinalizers(nil)
			return w.As(user).Update(w.Context(), obj)
		}))
		if requester := obj.GetAnnotations()[v1alpha1.AnnotationRequestedBy]; requester != user {
			w.Errorf("%T names %q as its creator, want %q", obj, requester, user)
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

// isServed waits until all of them are served.
func (l *late) isServed() {
	l.w.Helper()
	l.w.Await("all of them are served", func(ctx context.Context) bool {
		l.refresh(ctx)
		return l.claim.Status.Phase == v1alpha1.ClaimBound && l.alien.Status.AddressRef.Name != "" && l.child.Status.Phase == v1alpha1.PoolReady
	})
}

// isNotServed expects that none of them is served, or has a right.
func (l *late) isNotServed() {
	l.w.Helper()
	l.refresh(l.w.Context())
	if l.claim.Status.Phase != v1alpha1.ClaimPending || l.alien.Status.AddressRef.Name != "" || l.child.Status.Phase != v1alpha1.PoolPending {
		l.w.Errorf("served: the claim is %s, the IPAddressClaim has the address %q, the pool is %s", l.claim.Status.Phase, l.alien.Status.AddressRef.Name, l.child.Status.Phase)
	}
	for _, obj := range l.all() {
		if granted := obj.GetAnnotations()[v1alpha1.AnnotationUseGranted]; granted != "" {
			l.w.Errorf("%T is granted %s", obj, granted)
		}
	}
}

// ends deletes all of them.
func (l *late) ends() {
	l.w.Deleted(l.claim, l.alien)
	l.w.Gone(l.claim)
	l.w.Gone(l.alien)
	l.w.letGoOf(l.child)
}

// lateUser lets a user create claims of all kinds and pools in namespaces.
func (w *world) lateUser(name string, namespaces ...string) {
	w.Helper()
	w.Created(build.ClusterRole(name,
		rbacv1.PolicyRule{APIGroups: []string{ipamv1.GroupVersion.Group}, Resources: []string{"ipaddressclaims"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ipclaims", "localippools"}, Verbs: []string{"*"}},
	))
	for _, namespace := range namespaces {
		w.bound(name, namespace, name)
	}
}

// mayUse gives a user the right to use pools.
func (w *world) mayUse(user string, pools ...string) {
	w.Helper()
	name := user + "-" + pools[0]
	w.Created(build.ClusterBinding(name, name, build.User(user)), build.ClusterRole(name, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ippools"}, ResourceNames: pools, Verbs: []string{"use"},
	}))
}

// deployer is a service account.
const deployer = "system:serviceaccount:late-bound:deployer"

// aLateRightCounts has objects that wait for the right to use a pool served when the right
// comes: for a service account by a binding; and for every user by the label of the namespace,
// and by the pool's visibility.
func (w *world) aLateRightCounts() {
	owned := func(s *v1alpha1.IPPoolSpec) { s.Project = "late-owner" }
	hidden := func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "late-owner" }
	for _, name := range []string{"late-people", "late-bound", "late-labeled", "late-seen"} {
		w.Namespace(name)
	}
	w.Pools(build.Pool("late-owned").CIDR("10.40.0.0/24").With(owned).Obj(),
		build.Pool("late-hidden").CIDR("10.40.1.0/24").With(hidden).Obj(),
		build.Pool("late-shown").CIDR("10.40.2.0/24").With(hidden).Obj())
	w.lateUser(deployer, "late-bound")
	w.lateUser("late-user", "late-people", "late-labeled", "late-seen")
	// A namespace's own child pool takes the right to use its parent in any namespace.
	w.mayUse("late-user", "late-hidden", "late-shown")

	people, bound := w.waits("late-user", "late-people", "late-owned"), w.waits(deployer, "late-bound", "late-owned")
	w.nobodyForges(bound)
	w.editsGrantNothing(people, bound)
	w.mayUse("late-user", "late-owned")
	w.mayUse(deployer, "late-owned")
	bound.isServed()
	bound.ends()
	people.isNotServed()
	people.ends()
	again := w.created("late-user", "late-people", "late-owned")
	again.isServed()
	again.ends()

	labeled := w.waits("late-user", "late-labeled", "late-hidden")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late-labeled"}}
	suite.Must(w, w.Patch(w.Context(), namespace, build.Merge(`{"metadata":{"labels":{"`+v1alpha1.LabelProject+`":"late-owner"}}}`)))
	labeled.isServed()
	labeled.ends()

	seen := w.waits("late-user", "late-seen", "late-shown")
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "late-shown"}}
	suite.Must(w, w.Patch(w.Context(), pool, build.Merge(`{"spec":{"visibility":"Shared","project":null}}`)))
	seen.isServed()
	seen.ends()
}

// nobodyForges has a user try to write a creator and a right: into a new object, and by a change.
func (w *world) nobodyForges(l *late) {
	ctx, as := w.Context(), w.As(deployer)
	forged := build.Claim(l.claim.Namespace, "forged").Pool("late-owned").Length(32).Obj()
	forged.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: "system:serviceaccount:other:other", v1alpha1.AnnotationUseGranted: "late-owned"}
	suite.Must(w, as.Create(ctx, forged))
	if has := forged.Annotations; has[v1alpha1.AnnotationRequestedBy] != deployer || has[v1alpha1.AnnotationUseGranted] != "" {
		w.Errorf("a new claim keeps the annotations of its creator: %v", has)
	}
	w.Deleted(forged)
	for _, obj := range l.all() {
		for _, name := range []string{v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationUseGranted} {
			patch := build.Merge(`{"metadata":{"annotations":{"` + name + `":"system:serviceaccount:other:other"}}}`)
			err := as.Patch(ctx, obj.DeepCopyObject().(client.Object), patch)
			if !apierrors.IsForbidden(err) && (err == nil || !strings.Contains(err.Error(), "is written by the operator alone")) {
				w.Errorf("%T: %s is forged: %v", obj, name, err)
			}
		}
	}
}
