package story

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Applied creates objects as they leave admission: a pool with a CIDR has its family and our
// finalizer, and the record of that CIDR exists.
func (w *World) Applied(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		if pool, ok := obj.(v1alpha1.Pool); ok && pool.PoolSpec().CIDR != "" {
			controllerutil.AddFinalizer(pool, v1alpha1.FinalizerPool)
			read, errs := convert.Pool(pool)
			suite.Must(w.t, errs.ToAggregate())
			pool.PoolSpec().IPFamily = v1alpha1.IPFamily(read.Family)
			blocks := read.Blocks()
			w.Recorded(ipam.Record{
				Name: convert.RecordOfPool(System, read.Key), Block: blocks[0], AdditionalBlocks: blocks[1:], Pool: read.Home, Holder: convert.HolderOfPool(read.Key),
				Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
			})
		}
		w.Created(obj)
	}
}

// Created creates objects as if there were no admission. It fails the story if the order of two
// of them, or of one and an earlier one, depends on the second in which they are created: see
// checkOrder.
func (w *World) Created(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		suite.Must(w.t, w.checkOrder(obj))
		suite.Must(w.t, w.K8s.Create(w.t.Context(), obj))
	}
	w.Seen()
}

// Recorded creates the record of a block.
func (w *World) Recorded(record ipam.Record) {
	w.t.Helper()
	w.Created(convert.Allocation(record))
}

// Block returns the record of a block that an IPClaim of the team was given when it was
// created.
func Block(claim, pool, cidr string) ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: Team, Name: claim + "-12345678"}, Block: netip.MustParsePrefix(cidr), Pool: ipam.PoolNamed(pool),
		Holder: Claim(claim), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, Project: Team,
	}
}

// Claim returns an IPClaim of the team as a holder.
func Claim(name string) ipam.Holder {
	return convert.HolderOfClaim(ipam.Name{Namespace: Team, Name: name})
}

// Stored returns an object as it is stored now.
func Stored[T client.Object](w *World, obj T) T {
	w.t.Helper()
	suite.Must(w.t, w.K8s.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj))
	return obj
}

// Edited changes an object as another actor: it calls edit with the stored object.
func Edited[T client.Object](w *World, obj T, edit func(T)) {
	w.t.Helper()
	edit(Stored(w, obj))
	suite.Must(w.t, w.K8s.Update(w.t.Context(), obj))
	w.Seen()
}

// Gone expects that an object is not stored any more.
func (w *World) Gone(obj client.Object) {
	w.t.Helper()
	if w.isStored(obj) {
		w.t.Fatalf("%T %s is still there", obj, client.ObjectKeyFromObject(obj))
	}
}

// isStored reads an object, and reports whether it exists.
func (w *World) isStored(obj client.Object) bool {
	w.t.Helper()
	err := w.K8s.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj)
	suite.Must(w.t, client.IgnoreNotFound(err))
	return err == nil
}

// Deleted deletes an object. If it has finalizers, it stays.
func (w *World) Deleted(obj client.Object) {
	w.t.Helper()
	suite.Must(w.t, w.K8s.Delete(w.t.Context(), obj))
	w.Seen()
}

// Forced deletes an object, whatever finalizers it has.
func (w *World) Forced(obj client.Object) {
	w.t.Helper()
	suite.Must(w.t, force(w.t.Context(), w.K8s, obj))
	w.Seen()
}

// Collected treats the records of a holder that is gone as the collection of orphans does.
func (w *World) Collected(holder ipam.Holder) {
	w.t.Helper()
	for _, record := range w.RecordsOf(holder) {
		switch next := ipam.NextState(record, ipam.Keeping{}, w.Clock.Now()); {
		case next.Release:
			suite.Must(w.t, w.Allocator.Release(w.t.Context(), record))
		default:
			suite.Must(w.t, w.Allocator.ApplyTransition(w.t.Context(), record, next))
		}
	}
	w.Seen()
}

// RecordsOf returns the records of a holder.
func (w *World) RecordsOf(holder ipam.Holder) []ipam.Record { return w.Ledger.HeldBy(holder) }

// Passes lets time pass on the controller's clock.
func (w *World) Passes(d time.Duration) { w.Clock.Step(d) }

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
		build.ClusterRole("entitled", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ippools"}, Verbs: []string{"use"}}),
		build.ClusterBinding("entitled", "entitled", build.ServiceAccount(Team, "entitled")),
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

// checkOrder returns an error if the object comes, by its name, before one of the same order that
// was created earlier. Creation times are whole seconds, and the name decides between objects
// of the same age: in any other order the older object would be the first only if a second
// began in between.
func (w *World) checkOrder(obj client.Object) error {
	w.t.Helper()
	if orderOf(obj) == noOrder {
		return nil
	}
	for _, earlier := range w.ordered {
		if orderOf(earlier) == orderOf(obj) && compareNames(obj, earlier) < 0 && w.counts(earlier) {
			return fmt.Errorf("%s %s is created after %s %s, which comes first by name if they are of the same second: rename one of them, so that the older one comes first",
				kindOf(obj), client.ObjectKeyFromObject(obj), kindOf(earlier), client.ObjectKeyFromObject(earlier))
		}
	}
	w.ordered = append(w.ordered, obj)
	return nil
}

// order represents an order in which the operator puts objects, by their age and then by their
// names.
type order int

const (
	noOrder order = iota
	// queueOrder has the objects that wait for a block.
	queueOrder
	// defaultOrder has the classes that are the default.
	defaultOrder
)

func orderOf(obj client.Object) order {
	switch obj := obj.(type) {
	case *v1alpha1.IPClaim, *ipamv1.IPAddressClaim:
		return queueOrder
	case v1alpha1.Pool:
		if obj.PoolSpec().ParentRef != nil {
			return queueOrder
		}
	case *v1alpha1.IPClass:
		if inventory.IsDefault(obj) {
			return defaultOrder
		}
	}
	return noOrder
}

func compareNames(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(kindOf(a), kindOf(b)))
}

// counts reports whether an object still has its position in its order: it is stored, and has
// no block yet.
func (w *World) counts(obj client.Object) bool {
	w.t.Helper()
	now := obj.DeepCopyObject().(client.Object)
	err := w.plane.admin.Get(w.t.Context(), client.ObjectKeyFromObject(obj), now)
	suite.Must(w.t, client.IgnoreNotFound(err))
	if err != nil || now.GetUID() != obj.GetUID() {
		return false
	}
	switch now := now.(type) {
	case *v1alpha1.IPClaim:
		return now.Status.AllocatedCIDR == ""
	case *ipamv1.IPAddressClaim:
		return now.Status.AddressRef.Name == ""
	case v1alpha1.Pool:
		return now.PoolStatus().AllocatedCIDR == ""
	}
	return true
}
