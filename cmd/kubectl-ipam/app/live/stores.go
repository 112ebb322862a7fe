package live

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// store implements cache.ReflectorStore for one resource, which is a part of the state: objects of
// type T by keys of type K. All functions except read and key are called with the state locked.
type store[K comparable, T any] struct {
	live *Live
	// read returns an object that a Reflector delivers as a T.
	read func(obj any) (T, error)
	key  func(T) K
	// known returns the keys of the objects in the state.
	known  func() []K
	put    func(T)
	remove func(K)
}

var _ cache.ReflectorStore = &store[string, any]{}

// Add takes over an object.
func (s *store[K, T]) Add(obj any) error { return s.Update(obj) }

// Update takes over an object, or a new version of one.
func (s *store[K, T]) Update(obj any) error {
	object, err := s.read(obj)
	if err == nil {
		s.live.change(func() { s.put(object) })
	}
	return err
}

// Delete removes an object.
func (s *store[K, T]) Delete(obj any) error {
	object, err := s.read(obj)
	if err == nil {
		s.live.change(func() { s.remove(s.key(object)) })
	}
	return err
}

// Replace makes the state equal to a list, in one step.
func (s *store[K, T]) Replace(objs []any, _ string) error {
	objects, listed := make([]T, len(objs)), make(map[K]bool, len(objs))
	for i, obj := range objs {
		object, err := s.read(obj)
		if err != nil {
			return err
		}
		objects[i], listed[s.key(object)] = object, true
	}
	s.live.change(func() {
		for _, object := range objects {
			s.put(object)
		}
		for _, key := range s.known() {
			if !listed[key] {
				s.remove(key)
			}
		}
	})
	return nil
}

// Resync does nothing: the state is whole as it is.
func (s *store[K, T]) Resync() error { return nil }

func (l *Live) poolStore(kind ipam.PoolKind) cache.ReflectorStore {
	return &store[ipam.PoolKey, v1alpha1.Pool]{
		live: l, read: as[v1alpha1.Pool], key: convert.KeyOf, put: l.state.putPool, remove: l.state.removePool,
		known: func() []ipam.PoolKey {
			keys := slices.Collect(maps.Keys(l.state.pools))
			return slices.DeleteFunc(keys, func(key ipam.PoolKey) bool { return key.Kind != kind })
		},
	}
}

// listed holds a record of a list, as an object for a Reflector: either the record, or the
// reason why it could not be read.
type listed struct {
	runtime.Object
	uid    string
	record *register.Record
	err    error
}

// readRecord reads an IPAllocation. Records share the texts that many of them have in common.
func readRecord(obj *v1alpha1.IPAllocation) runtime.Object {
	record, err := register.NewRecord(obj)
	if err != nil {
		return &listed{uid: string(obj.UID), err: err}
	}
	for _, text := range []*string{
		&record.Name.Namespace, &record.Holder.Group, &record.Holder.Kind, &record.Holder.Namespace,
		&record.Pool.Namespace, &record.Pool.Name, &record.Class, &record.Project, &record.RequestedBy,
	} {
		*text = unique.Make(*text).Value()
	}
	record.Purpose, record.Reclaim = ipam.Purpose(unique.Make(string(record.Purpose)).Value()), ipam.Reclaim(unique.Make(string(record.Reclaim)).Value())
	record.State = ipam.State(unique.Make(string(record.State)).Value())
	record.Pool.Kind = ipam.PoolKind(unique.Make(string(record.Pool.Kind)).Value())
	return &listed{uid: record.UID, record: record}
}

func (l *Live) recordStore() cache.ReflectorStore {
	return &store[string, *listed]{
		live: l, put: l.state.putListed, remove: l.state.removeRecord,
		read: func(obj any) (*listed, error) {
			if allocation, ok := obj.(*v1alpha1.IPAllocation); ok { // of a watch: a list has been read
				obj = readRecord(allocation)
			}
			return as[*listed](obj)
		},
		key: func(read *listed) string { return read.uid },
		known: func() []string {
			return slices.AppendSeq(slices.Collect(maps.Keys(l.state.records)), maps.Keys(l.state.invalid))
		},
	}
}

// keyed returns the store of objects that are kept as they are in a map, except those that keep
// refuses.
func keyed[T client.Object](l *Live, objectsByKey map[string]T, key func(T) string, keep func(T) bool) cache.ReflectorStore {
	dirty := func() { l.state.structure, l.state.built = true, nil }
	remove := func(key string) {
		if _, has := objectsByKey[key]; has {
			delete(objectsByKey, key)
			dirty()
		}
	}
	return &store[string, T]{
		live: l, read: as[T], key: key, remove: remove,
		known: func() []string { return slices.Collect(maps.Keys(objectsByKey)) },
		put: func(object T) {
			if !keep(object) {
				remove(key(object))
				return
			}
			objectsByKey[key(object)] = trim(object)
			dirty()
		},
	}
}

func uidOf[T client.Object](obj T) string { return string(obj.GetUID()) }

func (l *Live) claimStore() cache.ReflectorStore {
	return keyed(l, l.state.claims, uidOf, func(claim *v1alpha1.IPClaim) bool { return claim.Status.Phase != v1alpha1.ClaimBound })
}

// clusterClaimStore returns the store of the IPClaims of Clusters, of which only the Cluster is kept.
func (l *Live) clusterClaimStore() cache.ReflectorStore {
	holder := func(claim *v1alpha1.IPClaim) ipam.Holder {
		return convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name})
	}
	return &store[ipam.Holder, *v1alpha1.IPClaim]{
		live: l, read: as[*v1alpha1.IPClaim], key: holder,
		known:  func() []ipam.Holder { return slices.Collect(maps.Keys(l.state.clusters)) },
		put:    func(claim *v1alpha1.IPClaim) { l.state.putCluster(holder(claim), convert.ClusterOfClaim(claim)) },
		remove: func(claim ipam.Holder) { l.state.putCluster(claim, "") },
	}
}

func (l *Live) classStore() cache.ReflectorStore {
	return keyed(l, l.state.classes, (*v1alpha1.IPClass).GetName, func(*v1alpha1.IPClass) bool { return true })
}

func (l *Live) addressClaimStore() cache.ReflectorStore {
	return keyed(l, l.state.addressClaims, uidOf, waits)
}

// waits reports whether an IPAddressClaim asks for an address of ours and has none.
func waits(claim *ipamv1.IPAddressClaim) bool {
	return claim.Status.AddressRef.Name == "" && convert.IsTarget(claim.Spec.PoolRef.APIGroup, claim.Spec.PoolRef.Kind)
}

// trim removes the fields that no caller asks for.
func trim[T client.Object](obj T) T {
	obj.SetManagedFields(nil)
	annotations := obj.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	return obj
}

// dropped trims the objects of a list as they arrive.
func dropped(obj any) (any, error) {
	object, err := as[client.Object](obj)
	if err == nil {
		trim(object)
	}
	return obj, err
}

// short reduces an IPAddressClaim that does not wait to the fields that show that.
func short(obj any) (any, error) {
	claim, err := as[*ipamv1.IPAddressClaim](obj)
	if err != nil || waits(claim) {
		return obj, err
	}
	kept := &ipamv1.IPAddressClaim{}
	kept.UID, kept.Status.AddressRef.Name = claim.UID, "has one"
	return kept, nil
}

// identified reduces an IPClaim of a Cluster to its identity and its Cluster's.
func identified(obj any) (any, error) {
	claim, err := as[*v1alpha1.IPClaim](obj)
	if err != nil {
		return obj, err
	}
	kept := &v1alpha1.IPClaim{}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = claim.Namespace, claim.Name, claim.UID, claim.ResourceVersion
	kept.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: claim.Annotations[v1alpha1.AnnotationClusterNetwork]}
	return kept, nil
}

// as returns an object that a Reflector delivers as the type that it must have.
func as[T any](obj any) (T, error) {
	object, ok := obj.(T)
	if !ok {
		return object, fmt.Errorf("%T is not a %s", obj, strings.TrimPrefix(fmt.Sprintf("%T", new(T)), "*"))
	}
	return object, nil
}
