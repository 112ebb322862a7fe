package loops

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// write holds one that a controller makes.
type write struct {
	does string
	// verb, group, resource and subresource identify the request.
	verb, group, resource, subresource string
	clusterScoped                      bool
	// object is the name of the only object that is written to, if that is not of the scene.
	object string
	// prepare makes the objects that exist before the write is refused, and begin causes the write.
	prepare, begin func(*scene)
	// says returns the message of the condition Ready; nil if none can be written, or the object is
	// as good as before.
	says func(*scene) string
	// served reports whether the write has had its effect.
	served func(*scene) bool
}

const (
	own  = "ipam.cadastre.dev"
	capi = "ipam.cluster.x-k8s.io"
)

func writes() []write {
	return slices.Concat(claimWrites(), addressWrites(), clusterWrites(), platformWrites())
}

func claimWrites() []write {
	record := func(s *scene) bool { return s.claim().Spec.ReclaimPolicy == s.record().Spec.ReclaimPolicy }
	return []write{
		{does: "ipclaim: create IPAllocation", verb: "create", group: own, resource: "ipallocations", prepare: waitingClaim, begin: releasedHolder, says: ofClaim, served: isBound},
		{does: "ipclaim: patch IPClaim", verb: "patch", group: own, resource: "ipclaims", prepare: waitingClaim, begin: releasedHolder, served: isBound},
		{does: "ipclaim: patch IPAllocation", verb: "patch", group: own, resource: "ipallocations", prepare: boundClaim, begin: retainedClaim, served: record},
		{does: "orphan: delete IPAllocation", verb: "delete", group: own, resource: "ipallocations", prepare: boundClaim, begin: deletedClaim, served: isReleased},
		{does: "orphan: patch IPAllocation", verb: "patch", group: own, resource: "ipallocations", prepare: boundClaim, begin: deletedClaim, served: isReleased},
	}
}

func addressWrites() []write {
	return []write{
		{does: "ipaddressclaim: create IPAllocation", verb: "create", group: own, resource: "ipallocations", prepare: pool, begin: newAddressClaim, says: ofAddressClaim, served: hasAddress},
		{does: "ipaddressclaim: patch IPAllocation", verb: "patch", group: own, resource: "ipallocations", prepare: addressBefore, begin: newAddressClaim, says: ofAddressClaim, served: hasAddress},
		{does: "ipaddressclaim: create IPAddress", verb: "create", group: capi, resource: "ipaddresses", prepare: pool, begin: newAddressClaim, says: ofAddressClaim, served: hasAddress},
		{does: "ipaddressclaim: patch status", verb: "patch", group: capi, resource: "ipaddressclaims", subresource: "status", prepare: pool, begin: newAddressClaim, served: hasAddress},
		{does: "ipaddressclaim: patch IPAddressClaim", verb: "patch", group: capi, resource: "ipaddressclaims", prepare: servedAddressClaim, begin: deletedAddressClaim, says: ofAddressClaim, served: isAddressClaimGone},
		{does: "ipaddressclaim: delete IPAddress", verb: "delete", group: capi, resource: "ipaddresses", prepare: servedAddressClaim, begin: deletedAddressClaim, says: ofAddressClaim, served: isAddressClaimGone},
		{does: "ipaddressclaim: patch IPAddress", verb: "patch", group: capi, resource: "ipaddresses", prepare: servedAddressClaim, begin: deletedAddressClaim, says: ofAddressClaim, served: isAddressClaimGone},
	}
}

// clusterWrites returns the writes for Clusters, which have no condition of the operator. A claim that states its
// block and was refused is created only after the grace: the refused one could be stored late, and its record
// stays until then. The deletion of a claim that the create of a Cluster left also comes after the grace, and is
// not tested here.
func clusterWrites() []write {
	later := func(*scene) bool { return true }
	return []write{
		{does: "clusternetwork: create IPClaim", verb: "create", group: own, resource: "ipclaims", prepare: storedCluster, begin: networkedCluster, served: later},
		{does: "clusternetwork: patch IPClaim", verb: "patch", group: own, resource: "ipclaims", prepare: networkPool, begin: newCluster, served: isNetworkHeld},
		{does: "clusternetwork: patch IPClaim of a deleted Cluster", verb: "patch", group: own, resource: "ipclaims", prepare: heldNetwork, begin: deletedCluster, served: isNetworkReleased},
	}
}

func platformWrites() []write {
	nothing := func(*scene) {}
	return []write{
		{does: "ippool: create IPAllocation", verb: "create", group: own, resource: "ipallocations", clusterScoped: true, prepare: childPool, begin: parentPool, says: ofPool, served: isReady},
		{does: "ippool: patch IPAllocation", verb: "patch", group: own, resource: "ipallocations", clusterScoped: true, prepare: nothing, begin: newPool, says: ofPool, served: isReady},
		{does: "ippool: patch IPPool", verb: "patch", group: own, resource: "ippools", clusterScoped: true, prepare: childPool, begin: parentPool, says: ofPool, served: isReady},
		{does: "ippool: patch status", verb: "patch", group: own, resource: "ippools", subresource: "status", clusterScoped: true, prepare: nothing, begin: newPool, served: isReady},
		{does: "ippool: patch IPPool that is deleted", verb: "patch", group: own, resource: "ippools", clusterScoped: true, prepare: pool, begin: deletedPool, says: ofPool, served: isPoolGone},
		{does: "ipclass: patch status", verb: "patch", group: own, resource: "ipclasses", subresource: "status", clusterScoped: true, prepare: nothing, begin: newClass, served: isClassReady},
		{does: "webhook-certificate: patch Secret", verb: "patch", resource: "secrets", object: certificate, prepare: nothing, begin: deletedCertificate, served: hasCertificate},
	}
}

func (s *scene) key() client.ObjectKey { return client.ObjectKey{Namespace: s.name, Name: s.name} }

func (s *scene) pool() *build.PoolBuilder {
	return build.Pool(s.name).Domain(s.name).CIDR("10.0.0.0/30").With(func(spec *v1alpha1.IPPoolSpec) { spec.AllowRetain = true })
}

func pool(s *scene) {
	pool := s.pool().Obj()
	s.Created(pool)
	s.Ready(pool)
}

func (s *scene) claim() *v1alpha1.IPClaim {
	claim := &v1alpha1.IPClaim{}
	suite.Must(s, client.IgnoreNotFound(s.Get(s.Context(), s.key(), claim)))
	return claim
}

func (s *scene) record() *v1alpha1.IPAllocation {
	all := &v1alpha1.IPAllocationList{}
	suite.Must(s, s.List(s.Context(), all, client.InNamespace(s.name)))
	if len(all.Items) == 0 {
		return &v1alpha1.IPAllocation{}
	}
	return &all.Items[0]
}

func boundClaim(s *scene) {
	pool(s)
	s.Created(build.Claim(s.name, s.name).Pool(s.name).Length(30).Obj())
}

func waitingClaim(s *scene) {
	pool(s)
	s.Created(build.Claim(s.name, "holder").Pool(s.name).Length(30).Obj(), build.Claim(s.name, s.name).Pool(s.name).Length(30).Obj())
}

func releasedHolder(s *scene) { s.Deleted(build.Claim(s.name, "holder").Obj()) }
func deletedClaim(s *scene)   { s.Deleted(build.Claim(s.name, s.name).Obj()) }

func retainedClaim(s *scene) {
	suite.Must(s, s.Patch(s.Context(), build.Claim(s.name, s.name).Obj(), build.Merge(`{"spec":{"reclaimPolicy":"Retain"}}`)))
}

func isBound(s *scene) bool    { return s.claim().Status.Phase == v1alpha1.ClaimBound }
func isReleased(s *scene) bool { return s.record().Name == "" }
func ofClaim(s *scene) string  { return readyOf(s.claim().Status.Conditions) }

func readyOf(all []metav1.Condition) string {
	if ready := meta.FindStatusCondition(all, v1alpha1.ConditionReady); ready != nil {
		return ready.Message
	}
	return ""
}

func newAddressClaim(s *scene) { s.Created(build.AddressClaim(s.name, s.name).Pool(s.name).Obj()) }

func servedAddressClaim(s *scene) {
	pool(s)
	newAddressClaim(s)
	s.Await("the claim has an address", func(context.Context) bool { return hasAddress(s) })
}

// addressBefore makes the IPAddress before its claim, as a restore does.
func addressBefore(s *scene) {
	pool(s)
	s.Created(&ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.name}, Spec: ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: s.name}, PoolRef: build.AddressClaim(s.name, s.name).Pool(s.name).Obj().Spec.PoolRef,
		Address: "10.0.0.1", Prefix: new(int32(30)),
	}})
	s.Await("the address is recorded", func(context.Context) bool { return s.record().Name != "" })
}

func deletedAddressClaim(s *scene) { s.Deleted(build.AddressClaim(s.name, s.name).Obj()) }

func (s *scene) addressClaim() *ipamv1.IPAddressClaim {
	claim := &ipamv1.IPAddressClaim{}
	suite.Must(s, client.IgnoreNotFound(s.Get(s.Context(), s.key(), claim)))
	return claim
}

func hasAddress(s *scene) bool         { return s.addressClaim().Status.AddressRef.Name != "" }
func isAddressClaimGone(s *scene) bool { return s.addressClaim().Name == "" }
func ofAddressClaim(s *scene) string   { return readyOf(s.addressClaim().Status.Conditions) }

func (s *scene) cluster() *clusterv1.Cluster { return build.Cluster(s.name, s.name) }

func networkPool(s *scene) {
	pool := build.Pool(s.name).Domain(s.name).CIDR("10.0.0.0/24").Classes(s.name).Obj()
	s.Created(build.Class(s.name).Length(28).Obj(), pool)
	s.Ready(pool)
}

func newCluster(s *scene) {
	s.Created(build.Networked(s.cluster(), map[string]string{v1alpha1.AnnotationPods: s.name}))
}

func storedCluster(s *scene) {
	networkPool(s)
	cluster := s.cluster()
	cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"10.0.0.0/28"}
	s.Created(cluster)
}

// networkedCluster has the block claimed that a Cluster states.
func networkedCluster(s *scene) {
	suite.Must(s, s.Patch(s.Context(), s.cluster(), build.Merge(fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`,
		v1alpha1.LabelClusterNetworks, v1alpha1.ClusterNetworksEnabled, v1alpha1.AnnotationPods, s.name))))
}

func heldNetwork(s *scene) {
	networkPool(s)
	newCluster(s)
	s.Await("the Cluster has its claim", func(context.Context) bool { return isNetworkHeld(s) })
}

func deletedCluster(s *scene) { s.Deleted(s.cluster()) }

// networkClaims returns the claims of the Cluster. No garbage collector deletes them here.
func (s *scene) networkClaims() []v1alpha1.IPClaim {
	claims := &v1alpha1.IPClaimList{}
	suite.Must(s, s.List(s.Context(), claims, client.InNamespace(s.name)))
	return claims.Items
}

func isNetworkHeld(s *scene) bool {
	claims := s.networkClaims()
	return len(claims) == 1 && len(claims[0].OwnerReferences) == 1
}

func isNetworkReleased(s *scene) bool {
	claims := s.networkClaims()
	return len(claims) == 1 && len(claims[0].Finalizers) == 0
}

func newPool(s *scene)     { s.Created(s.pool().Obj()) }
func deletedPool(s *scene) { s.Deleted(s.pool().Obj()) }
func childPool(s *scene)   { s.Created(build.Pool(s.name).Child("parent-of-"+s.name, 30).Obj()) }
func parentPool(s *scene) {
	s.Created(build.Pool("parent-of-" + s.name).Domain(s.name).CIDR("10.0.0.0/24").Obj())
}

func (s *scene) stored() *v1alpha1.IPPool {
	pool := &v1alpha1.IPPool{}
	suite.Must(s, client.IgnoreNotFound(s.Get(s.Context(), client.ObjectKey{Name: s.name}, pool)))
	return pool
}

func isReady(s *scene) bool    { return s.stored().Status.Phase == v1alpha1.PoolReady }
func isPoolGone(s *scene) bool { return s.stored().Name == "" }
func ofPool(s *scene) string   { return readyOf(s.stored().Status.Conditions) }

func newClass(s *scene) { s.Created(build.Class(s.name).Obj()) }

func isClassReady(s *scene) bool {
	class := &v1alpha1.IPClass{}
	suite.Must(s, s.Get(s.Context(), client.ObjectKey{Name: s.name}, class))
	return readyOf(class.Status.Conditions) != ""
}

const certificate = "cadastre-webhook-server-cert"

func deletedCertificate(s *scene) {
	s.Deleted(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: certificate}})
}

func hasCertificate(s *scene) bool {
	secret := &corev1.Secret{}
	err := s.Get(s.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: certificate}, secret)
	return !apierrors.IsNotFound(err) && len(secret.Data[corev1.TLSCertKey]) > 0
}
