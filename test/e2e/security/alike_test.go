package security

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// answersAreAlike asks for exact blocks as a tenant, and compares the information that they can get
// about those of another.
func (w *world) answersAreAlike() {
	w.Created(build.NamespaceOf("mine", "alike-mine"), build.NamespaceOf("theirs", "alike-theirs"))
	theirs := func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "theirs" }
	w.Pools(
		build.Pool("alike-shared").CIDR("10.1.0.0/24").Obj(),
		build.Pool("alike-owned").CIDR("10.2.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "theirs" }).Obj(),
		build.Pool("alike-hidden").CIDR("10.3.0.0/24").With(theirs).Obj())
	w.Pools(build.Pool("alike-child").Child("alike-shared", 28).Obj()) // 10.1.0.0/28
	w.Created(
		build.Claim("alike-theirs", "shared").Pool("alike-shared").CIDR("10.1.0.32/28").Obj(),
		build.Claim("alike-theirs", "owned").Pool("alike-owned").CIDR("10.2.0.32/28").Obj(),
		build.Claim("alike-theirs", "hidden").Pool("alike-hidden").CIDR("10.3.0.32/28").Obj())

	me := w.tenant("mallory", "alike-mine")
	for name, claims := range map[string][]*v1alpha1.IPClaim{
		"the holder of a taken block": {
			asks("alike-shared", "10.1.0.32/28"), asks("alike-shared", "10.1.0.0/28"),
			asks("alike-shared", "10.1.0.40/29"), asks("alike-shared", "10.1.0.32/27"),
		},
		"whether a block is taken, or exists, in a pool that may not be used": {
			asks("alike-hidden", "10.3.0.32/28"), asks("alike-hidden", "10.3.0.64/28"), asks("alike-hidden", "10.9.0.0/28"),
			asks("alike-owned", "10.2.0.32/28"), asks("alike-owned", "10.2.0.64/28"), asks("alike-owned", "10.9.0.0/28"),
			asks("alike-nothing", "10.3.0.32/28"),
		},
	} {
		var answers []string
		for _, claim := range claims {
			answers = append(answers, w.answer(me, claim))
		}
		w.tellNothing(name, answers)
	}
	var answers []string
	for _, parent := range []string{"alike-hidden", "alike-owned", "alike-nothing"} {
		answers = append(answers, w.answerToChild(me, parent))
	}
	w.tellNothing("the existing parents", answers)
}

// tellNothing expects answers to be the same, and to name no other tenant.
func (w *world) tellNothing(what string, answers []string) {
	w.Helper()
	if different := slices.Compact(slices.Sorted(slices.Values(answers))); len(different) > 1 {
		w.Errorf("an answer shows %s:\n%s", what, strings.Join(different, "\n"))
	}
	for _, secret := range []string{"theirs", "alike-child"} {
		if strings.Contains(answers[0], secret) {
			w.Errorf("an answer names %s: %s", secret, answers[0])
		}
	}
}

// answerToChild returns all that a tenant learns from making a child pool of a parent.
func (w *world) answerToChild(as client.Client, parent string) string {
	w.Helper()
	pool := build.Pool("child-of-"+parent).Child(parent, 28).In("alike-mine")
	substitutions := []string{pool.Name, "CHILD", parent, "POOL"}
	err := as.Create(w.Context(), pool)
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return plain(w, status.Status(), substitutions)
	}
	suite.Must(w, err)
	w.Await(pool.Name+" has its conditions", func(ctx context.Context) bool {
		return as.Get(ctx, client.ObjectKeyFromObject(pool), pool) == nil && len(pool.Status.Conditions) > 0
	})
	for i := range pool.Status.Conditions {
		pool.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return plain(w, []any{pool.Spec, pool.Status, pool.Annotations}, substitutions)
}

func asks(pool, block string) *v1alpha1.IPClaim {
	return build.Claim("alike-mine", "").Generated("probe-").Pool(pool).CIDR(block).Obj()
}

// tenant returns the client of a user who may do everything with claims in one namespace.
func (w *world) tenant(user, namespace string) client.Client {
	w.Helper()
	return w.bound(user, namespace, "ipam-user")
}

// bound returns the client of a user who is bound to a role in a namespace.
func (w *world) bound(user, namespace, role string) client.Client {
	w.Helper()
	w.Created(build.Binding(user, namespace, role))
	as := w.As(user)
	w.Await("the binding counts", func(ctx context.Context) bool {
		return as.List(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(namespace)) == nil
	})
	return as
}

// answer returns all that a tenant learns from asking: the refusal, or the fate of the claim;
// without the tenant's own words, and times.
func (w *world) answer(as client.Client, claim *v1alpha1.IPClaim) string {
	w.Helper()
	substitutions := []string{claim.Spec.CIDR, "BLOCK", claim.Spec.PoolRef.Name, "POOL"}
	err := as.Create(w.Context(), claim)
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		refusal := status.Status()
		if refusal.Details != nil {
			substitutions = append(substitutions, refusal.Details.Name, "CLAIM")
		}
		return plain(w, refusal, substitutions)
	}
	suite.Must(w, err)
	w.Await(claim.Name+" has a phase", func(ctx context.Context) bool {
		return as.Get(ctx, client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Phase != ""
	})
	for i := range claim.Status.Conditions {
		claim.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	substitutions = append(substitutions, claim.Name, "CLAIM")
	return plain(w, []any{claim.Spec, claim.Status, claim.Annotations, claim.Finalizers}, substitutions)
}

func plain(w *world, answer any, substitutions []string) string {
	w.Helper()
	text, err := json.Marshal(answer)
	suite.Must(w, err)
	return strings.NewReplacer(substitutions...).Replace(string(text))
}

// addressesAreMended expects that the operator corrects damage to claims and addresses of Cluster
// API, of all kinds of pools.
func (w *world) addressesAreMended() {
	w.Namespace("addresses")
	w.Pools(build.Pool("addresses").CIDR("10.8.4.0/30").Classes("addresses").Obj())
	w.Created(build.Class("addresses").Length(32).Obj())
	local := build.Pool("own").CIDR("10.8.5.0/30").In("addresses")
	w.Pools(local)

	w.Created(build.Cluster("addresses", "fleet"))
	byPool := build.AddressClaim("addresses", "by-pool").Pool("addresses").Cluster("fleet").Obj()
	byClass := build.AddressClaim("addresses", "by-class").Class("addresses").Obj()
	byLocal := build.AddressClaim("addresses", "by-local").From(v1alpha1.GroupVersion.Group, string(v1alpha1.PoolKindLocalIPPool), "own").Obj()
	w.Created(byPool, byClass, byLocal)
	w.Served(byPool, byClass, byLocal)
	w.anAddressIsRepaired(byPool)
	w.anAddressIsMadeAgain(byPool)
	w.anAddressIsRestored()

	w.Deleted(byPool, byClass, byLocal)
	w.Gone(byPool, byClass, byLocal)
	w.letGoOf(local)
}

// clustersGetNetworks expects that the operator claims the networks of a Cluster, and gives them up if it
// refuses the Cluster.
func (w *world) clustersGetNetworks() {
	w.Namespace("networks")
	w.Created(build.Class("networks").Length(28).Obj())
	w.Pools(build.Pool("networks").CIDR("10.8.6.0/24").Classes("networks").Obj())
	for name, services := range map[string]string{"refused": "missing", "networked": "networks"} {
		obj := build.Networked(build.Cluster("networks", name), map[string]string{v1alpha1.AnnotationPods: "networks", v1alpha1.AnnotationServices: services})
		if err := w.Create(w.Context(), obj); (err == nil) != (name == "networked") {
			w.Errorf("%s: %v", name, err)
		}
	}
	w.Await("the Cluster owns its claims, which are the only ones", func(ctx context.Context) bool {
		claims := &v1alpha1.IPClaimList{}
		suite.Must(w, w.List(ctx, claims, client.InNamespace("networks")))
		return len(claims.Items) == 2 && len(claims.Items[0].OwnerReferences)+len(claims.Items[1].OwnerReferences) == 2
	})
}

// letGoOf deletes a pool of which everything was released a moment ago: the replica that is asked
// may be about to see that.
func (w *world) letGoOf(pool client.Object) {
	w.Helper()
	w.Await(pool.GetName()+" may be deleted", func(ctx context.Context) bool {
		return client.IgnoreNotFound(w.Delete(ctx, pool)) == nil
	})
	w.Gone(pool)
}

// anAddressIsRepaired expects that the owners of an IPAddress are put back.
func (w *world) anAddressIsRepaired(claim *ipamv1.IPAddressClaim) {
	address := w.addressOf(claim)
	suite.Must(w, w.Patch(w.Context(), address, build.Merge(`{"metadata":{"ownerReferences":null}}`)))
	w.Await("the IPAddress has its owners again", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKeyFromObject(address), address) == nil && len(address.OwnerReferences) == 2
	})
}

// anAddressIsMadeAgain expects that an IPAddress comes back that was removed by force.
func (w *world) anAddressIsMadeAgain(claim *ipamv1.IPAddressClaim) {
	address := w.addressOf(claim)
	was := address.UID
	w.Deleted(address)
	suite.Must(w, client.IgnoreNotFound(w.Patch(w.Context(), address, build.Merge(`{"metadata":{"finalizers":null}}`))))
	w.Await("the IPAddress is made again", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKeyFromObject(address), address) == nil && address.UID != was
	})
}

// anAddressIsRestored creates an IPAddress and its claim without the finalizers.
func (w *world) anAddressIsRestored() {
	claim := build.AddressClaim("addresses", "restored").Pool("addresses").Obj()
	length := int32(30)
	w.Created(&ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		Spec:       ipamv1.IPAddressSpec{ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef, Address: "10.8.4.3", Prefix: &length},
	}, claim)
	w.Served(claim)
	suite.Must(w, w.Patch(w.Context(), claim, build.Merge(`{"metadata":{"finalizers":null}}`)))
	w.Await("the claim has its finalizer again", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKeyFromObject(claim), claim) == nil && slices.Contains(claim.Finalizers, v1alpha1.FinalizerRelease)
	})
	w.Deleted(claim)
	w.Gone(claim)
}

func (w *world) addressOf(claim *ipamv1.IPAddressClaim) *ipamv1.IPAddress {
	w.Helper()
	address := &ipamv1.IPAddress{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(claim), address))
	return address
}
