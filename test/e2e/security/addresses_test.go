package security

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

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
	for _, claim := range []*ipamv1.IPAddressClaim{byPool, byClass, byLocal} {
		w.Served(claim)
	}
	w.anAddressIsRepaired(byPool)
	w.anAddressIsMadeAgain(byPool)
	w.anAddressIsRestored()

	for _, claim := range []*ipamv1.IPAddressClaim{byPool, byClass, byLocal} {
		w.Deleted(claim)
		w.Gone(claim)
	}
	w.letGoOf(local)
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
	suite.Must(w, w.Patch(w.Context(), address, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))))
	w.Await("the IPAddress has its owners again", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKeyFromObject(address), address) == nil && len(address.OwnerReferences) == 2
	})
}

// anAddressIsMadeAgain expects that an IPAddress comes back that was removed by force.
func (w *world) anAddressIsMadeAgain(claim *ipamv1.IPAddressClaim) {
	address := w.addressOf(claim)
	was := address.UID
	w.Deleted(address)
	suite.Must(w, client.IgnoreNotFound(w.Patch(w.Context(), address, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
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
	suite.Must(w, w.Patch(w.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
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
