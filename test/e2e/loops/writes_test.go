package loops

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

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
	// says returns the message of the condition that must name the refusal, or of the events of a Cluster; nil if none can be
	// written, or the object is gone, or as good as before.
	says func(*scene) string
	// writers is the number of controllers that make the write, if there are several.
	writers int
	// waits is the time that the write is delayed on purpose after the cause has ended.
	waits time.Duration
	// served reports whether the write has had its effect.
	served func(*scene) bool
}

const (
	own  = "ipam.cadastre.dev"
	capi = "ipam.cluster.x-k8s.io"
)

func writes() []write {
	return slices.Concat(claimWrites(), addressWrites(), clusterWrites(), platformWrites(), grantWrites(), keeperWrites())
}

func claimWrites() []write {
	record := func(s *scene) bool { return s.claim().Spec.ReclaimPolicy == s.record().Spec.ReclaimPolicy }
	return []write{
		{does: "ipclaim: create IPAllocation", verb: "create", group: own, resource: "ipallocations", prepare: waitingClaim, begin: releasedHolder, says: ofClaim, served: isBound},
		{does: "ipclaim: patch IPClaim", verb: "patch", group: own, resource: "ipclaims", prepare: waitingClaim, begin: releasedHolder, served: isBound},
		{does: "ipclaim: patch IPAllocation", verb: "patch", group: own, resource: "ipallocations", prepare: boundClaim, begin: retainedClaim, served: record},
		{does: "orphan: delete IPAllocation", verb: "delete", group: own, resource: "ipallocations", prepare: boundClaim, begin: deletedClaim, served: isReleased},
		{does: "orphan: patch IPAllocation", verb: "patch", group: own, resource: "ipallocations", prepare: boundClaim, begin: deletedClaim, served: isReleased},
		{does: "ipclaim, and orphan after the grace: patch IPClaim", verb: "patch", group: own, resource: "ipclaims", prepare: waitingClaim, begin: holderReleasedForGrace, writers: 2, served: isBound},
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
// stays until then.
func clusterWrites() []write {
	return []write{
		{does: "clusternetwork: create IPClaim", verb: "create", group: own, resource: "ipclaims", prepare: storedCluster, begin: networkedCluster, says: ofCluster, served: isNetworkHeld, waits: grace},
		{does: "clusternetwork: patch IPClaim", verb: "patch", group: own, resource: "ipclaims", prepare: networkPool, begin: newCluster, says: ofCluster, served: isNetworkHeld},
		{does: "clusternetwork: patch IPClaim of a deleted Cluster", verb: "patch", group: own, resource: "ipclaims", prepare: heldNetwork, begin: deletedCluster, served: isNetworkReleased},
		{does: "clusternetwork: delete IPClaim of a Cluster that was not stored", verb: "delete", group: own, resource: "ipclaims", prepare: networkPool, begin: refusedCluster, served: hasNoClaims},
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
		{does: "ippool: patch IPPool without finalizer", verb: "patch", group: own, resource: "ippools", clusterScoped: true, prepare: pool, begin: poolWithoutFinalizer, says: ofPool, served: hasFinalizer},
		{does: "ippool: patch IPAllocation of a pool that is deleted", verb: "patch", group: own, resource: "ipallocations", clusterScoped: true, prepare: pool, begin: deletedPool, says: ofPool, served: isPoolGone},
		{does: "ippool: delete IPAllocation of ranges that were edited", verb: "delete", group: own, resource: "ipallocations", clusterScoped: true, prepare: rangesPool, begin: editedRanges, says: allocatedOfPool, served: hasOneRecord},
		{does: "ippool: patch IPAllocation of ranges that were edited", verb: "patch", group: own, resource: "ipallocations", clusterScoped: true, prepare: rangesPool, begin: editedRanges, says: allocatedOfPool, served: hasOneRecord},
		{does: "orphan: delete IPAllocation of a pool", verb: "delete", group: own, resource: "ipallocations", clusterScoped: true, prepare: pool, begin: deletedPool, served: isPoolReleased},
		{does: "ipclass: patch status", verb: "patch", group: own, resource: "ipclasses", subresource: "status", clusterScoped: true, prepare: nothing, begin: newClass, served: isClassReady},
	}
}

// grantWrites returns the writes that note that a service account may use a pool now.
func grantWrites() []write {
	return []write{
		{does: "ipclaim: patch IPClaim with a grant", verb: "patch", group: own, resource: "ipclaims", prepare: claimWithoutRight, begin: right, served: isBound},
		{does: "ipaddressclaim: patch IPAddressClaim with a grant", verb: "patch", group: capi, resource: "ipaddressclaims", prepare: addressClaimWithoutRight, begin: right, says: ofAddressClaim, served: hasAddress},
		{does: "ippool: patch LocalIPPool with a grant", verb: "patch", group: own, resource: "localippools", prepare: localPoolWithoutRight, begin: right, says: ofLocalPool, served: isLocalPoolReady},
	}
}

// keeperWrites returns the writes of the controllers of the webhooks' certificate and paths, which every replica
// runs.
func keeperWrites() []write {
	nothing := func(*scene) {}
	return []write{
		{does: "webhook-certificate: patch Secret", verb: "patch", resource: "secrets", object: certificate, prepare: nothing, begin: deletedSecrets(certificate), served: hasSecret},
		{does: "webhook-path: patch Secret", verb: "patch", resource: "secrets", object: paths, prepare: nothing, begin: deletedSecrets(paths), served: hasSecret},
		{does: "webhook-certificate and webhook-path: patch configuration", verb: "patch", group: "admissionregistration.k8s.io", resource: "validatingwebhookconfigurations", object: configuration, prepare: nothing, begin: bothRefused, writers: 2, served: bothWritten},
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

// holderReleasedForGrace waits until the record that was made for the waiting claim is given up: that is written into
// the claim, too.
func holderReleasedForGrace(s *scene) {
	releasedHolder(s)
	s.Await("its record is fenced", func(context.Context) bool {
		return slices.ContainsFunc(s.requests()[s.before:], func(a cluster.Audited) bool {
			return a.Verb == "get" && a.ObjectRef.Resource == "ipclaims" && a.ObjectRef.Name == s.name
		})
	})
	s.before = len(s.requests())
}

func deletedClaim(s *scene) { s.Deleted(build.Claim(s.name, s.name).Obj()) }

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

// refusedCluster has a Cluster created whose claim is stored, and which a policy refuses then. It waits until the
// claim is to be deleted.
func refusedCluster(s *scene) {
	policy, binding := build.Refusal("cluster-"+s.name, v1alpha1.LabelClusterNetworks, s.name)
	rule := &policy.Spec.MatchConstraints.ResourceRules[0].Rule
	rule.APIGroups, rule.Resources = []string{clusterv1.GroupVersion.Group}, []string{"clusters"}
	s.Created(policy, binding)
	cluster := build.Networked(s.cluster(), map[string]string{v1alpha1.AnnotationPods: s.name})
	s.Await("it is refused", func(ctx context.Context) bool { return s.Create(ctx, cluster.DeepCopy(), client.DryRunAll) != nil })
	s.Await("it has a claim", func(ctx context.Context) bool {
		return s.Create(ctx, cluster.DeepCopy()) != nil && len(s.networkClaims()) == 1
	})
	s.before = len(s.requests())
	s.awaitRefusal()
}

// ofCluster returns the events of the Cluster.
func ofCluster(s *scene) string {
	events, notes := &eventsv1.EventList{}, ""
	suite.Must(s, s.List(s.Context(), events, client.InNamespace(s.name)))
	for _, event := range events.Items {
		if event.Regarding.Kind == "Cluster" {
			notes += event.Note + "; "
		}
	}
	return notes
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

func hasNoClaims(s *scene) bool { return len(s.networkClaims()) == 0 }

func isNetworkReleased(s *scene) bool {
	claims := s.networkClaims()
	return len(claims) == 1 && len(claims[0].Finalizers) == 0
}

func poolWithoutFinalizer(s *scene) {
	suite.Must(s, s.Patch(s.Context(), s.pool().Obj(), build.Merge(`{"metadata":{"finalizers":null}}`)))
}

func hasFinalizer(s *scene) bool {
	return controllerutil.ContainsFinalizer(s.stored(), v1alpha1.FinalizerPool)
}

// poolRecords returns the number of records of the pool, which are in the operator's namespace.
func (s *scene) poolRecords() int {
	all := &v1alpha1.IPAllocationList{}
	suite.Must(s, s.List(s.Context(), all, client.InNamespace(cluster.Namespace)))
	isOther := func(record v1alpha1.IPAllocation) bool { return record.Spec.ClaimRef.Name != s.name }
	return len(slices.DeleteFunc(all.Items, isOther))
}

func isPoolReleased(s *scene) bool { return s.poolRecords() == 0 }
func hasOneRecord(s *scene) bool   { return s.poolRecords() == 1 }

func rangesPool(s *scene) {
	pool := build.Pool(s.name).Domain(s.name).CIDR("10.0.0.0/24").Occupies("10.0.0.1-10.0.0.9").Obj()
	s.Created(pool)
	s.Ready(pool)
}

// allocatedOfPool returns the message of the condition Allocated: such a pool stays ready.
func allocatedOfPool(s *scene) string {
	if allocated := meta.FindStatusCondition(s.stored().Status.Conditions, v1alpha1.ConditionAllocated); allocated != nil {
		return allocated.Message
	}
	return ""
}

func editedRanges(s *scene) {
	suite.Must(s, s.Patch(s.Context(), s.pool().Obj(), build.Merge(`{"spec":{"ranges":["10.0.0.1-10.0.0.5"]}}`)))
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

// right gives the maker of the objects the right to use the pool, and waits until the operator asks for it again.
func right(s *scene) {
	use := rbacv1.PolicyRule{APIGroups: []string{own}, Resources: []string{"ippools"}, ResourceNames: []string{s.name}, Verbs: []string{"use"}}
	s.Created(build.ClusterRole("use:"+s.name, use), build.ClusterBinding("use:"+s.name, "use:"+s.name, build.ServiceAccount(s.name, "maker")))
	s.awaitRefusal()
}

// createdWithoutRight creates an object under a service account that may not use the pool.
func (s *scene) createdWithoutRight(obj client.Object) {
	pool := s.pool().With(func(spec *v1alpha1.IPPoolSpec) { spec.Project = "another" }).Obj()
	s.Created(pool)
	s.Ready(pool)
	all := rbacv1.PolicyRule{APIGroups: []string{own, capi}, Resources: []string{"ipclaims", "ipaddressclaims", "localippools"}, Verbs: []string{"create"}}
	s.Created(build.ClusterRole("create:"+s.name, all), build.ClusterBinding("create:"+s.name, "create:"+s.name, build.ServiceAccount(s.name, "maker")))
	maker := s.As(serviceaccount.MakeUsername(s.name, "maker"), serviceaccount.MakeGroupNames(s.name)...)
	s.Await(obj.GetName()+" is created", func(ctx context.Context) bool {
		return client.IgnoreAlreadyExists(maker.Create(ctx, obj)) == nil
	})
}

func claimWithoutRight(s *scene) {
	s.createdWithoutRight(build.Claim(s.name, s.name).Pool(s.name).Length(30).Obj())
}

func addressClaimWithoutRight(s *scene) {
	s.createdWithoutRight(build.AddressClaim(s.name, s.name).Pool(s.name).Obj())
}

func localPoolWithoutRight(s *scene) {
	s.createdWithoutRight(build.Pool(s.name).Child(s.name, 31).In(s.name))
}

func (s *scene) localPool() *v1alpha1.LocalIPPool {
	pool := &v1alpha1.LocalIPPool{}
	suite.Must(s, s.Get(s.Context(), s.key(), pool))
	return pool
}

func isLocalPoolReady(s *scene) bool { return s.localPool().Status.Phase == v1alpha1.PoolReady }
func ofLocalPool(s *scene) string    { return readyOf(s.localPool().Status.Conditions) }

const (
	certificate   = "cadastre-webhook-server-cert"
	paths         = "cadastre-webhook-path"
	configuration = "cadastre-validating-webhook-configuration"
)

func deletedSecrets(names ...string) func(*scene) {
	return func(s *scene) {
		for _, name := range names {
			s.Deleted(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}})
		}
	}
}

func hasSecret(s *scene) bool {
	secret := &corev1.Secret{}
	err := s.Get(s.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: s.write.object}, secret)
	return !apierrors.IsNotFound(err) && len(secret.Data) > 0
}

// bothRefused replaces certificate and path, and waits until neither can be written into the configuration.
func bothRefused(s *scene) {
	deletedSecrets(certificate, paths)(s)
	s.Await("both are refused", func(context.Context) bool { return s.writers(s.isRefused) == 2 })
}

func bothWritten(s *scene) bool {
	return s.writers(func(a cluster.Audited) bool { return a.Verb == s.write.verb && a.ResponseStatus.Code == http.StatusOK }) == 2
}

// writers returns the number of controllers that have made such a request.
func (s *scene) writers(such func(cluster.Audited) bool) int {
	writers := sets.New[string]()
	for _, a := range s.requests()[s.before:] {
		if such(a) {
			writers.Insert(writer(a))
		}
	}
	return writers.Len()
}
