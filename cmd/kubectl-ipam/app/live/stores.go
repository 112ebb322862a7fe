package live

import (
	"fmt"
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

// store implements cache.ReflectorStore for one resource, which is a part of the state. Its
// functions are called with the state locked.
type store struct {
	live *Live
	// put takes over an object, remove removes one, and replace takes over objects and removes
	// all others.
	put, remove func(obj any) error
	replace     func(objs []any) error
}

var _ cache.ReflectorStore = &store{}

// Add takes over an object.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update takes over an object, or a new version of one.
func (s *store) Update(obj any) error {
	return s.live.change(func() error { return s.put(obj) })
}

// Delete removes an object.
func (s *store) Delete(obj any) error {
	return s.live.change(func() error { return s.remove(obj) })
}

// Replace makes the state equal to a list, in one step.
func (s *store) Replace(objs []any, _ string) error {
	return s.live.change(func() error { return s.replace(objs) })
}

// Resync does nothing: the state is whole as it is.
func (s *store) Resync() error { return nil }

func (l *Live) poolStore(kind ipam.PoolKind) *store {
	return &store{
		live: l,
		put: func(obj any) error {
			pool, err := as[v1alpha1.Pool](obj)
			if err == nil {
				l.state.putPool(trim(pool))
			}
			return err
		},
		remove: func(obj any) error {
			pool, err := as[v1alpha1.Pool](obj)
			if err == nil {
				l.state.removePool(convert.KeyOf(pool))
			}
			return err
		},
		replace: func(objs []any) error {
			pools := make([]v1alpha1.Pool, 0, len(objs))
			for _, obj := range objs {
				pool, err := as[v1alpha1.Pool](obj)
				if err != nil {
					return err
				}
				pools = append(pools, trim(pool))
			}
			l.state.replacePools(kind, pools)
			return nil
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

func (l *Live) recordStore() *store {
	return &store{
		live: l,
		put: func(obj any) error {
			allocation, err := as[*v1alpha1.IPAllocation](obj)
			if err != nil {
				return err
			}
			read, err := as[*listed](readRecord(allocation))
			switch {
			case err != nil:
				return err
			case read.err != nil:
				l.state.removeRecord(read.uid)
				l.state.invalid[read.uid] = read.err
			default:
				l.state.putRecord(read.record)
			}
			return nil
		},
		remove: func(obj any) error {
			allocation, err := as[*v1alpha1.IPAllocation](obj)
			if err == nil {
				l.state.removeRecord(string(allocation.UID))
			}
			return err
		},
		replace: func(objs []any) error {
			records, invalid := make([]*register.Record, 0, len(objs)), map[string]error{}
			for _, obj := range objs {
				read, err := as[*listed](obj)
				switch {
				case err != nil:
					return err
				case read.err != nil:
					invalid[read.uid] = read.err
				default:
					records = append(records, read.record)
				}
			}
			l.state.replaceRecords(records, invalid)
			return nil
		},
	}
}

// keyed returns the store of objects that are kept as they are in a map, except those that keep
// refuses.
func keyed[T client.Object](l *Live, objectsByKey map[string]T, key func(T) string, keep func(T) bool) *store {
	dirty := func() { l.state.structure, l.state.built = true, nil }
	put := func(obj any) error {
		object, err := as[T](obj)
		switch {
		case err != nil:
			return err
		case keep(object):
			objectsByKey[key(object)] = trim(object)
			dirty()
		default:
			if _, has := objectsByKey[key(object)]; has {
				delete(objectsByKey, key(object))
				dirty()
			}
		}
		return nil
	}
	return &store{
		live: l,
		put:  put,
		remove: func(obj any) error {
			object, err := as[T](obj)
			if err == nil {
				delete(objectsByKey, key(object))
				dirty()
			}
			return err
		},
		replace: func(objs []any) error {
			clear(objectsByKey)
			dirty()
			for _, obj := range objs {
				if err := put(obj); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func uidOf[T client.Object](obj T) string { return string(obj.GetUID()) }

func (l *Live) claimStore() *store {
	return keyed(l, l.state.claims, uidOf, func(claim *v1alpha1.IPClaim) bool { return claim.Status.Phase != v1alpha1.ClaimBound })
}

func (l *Live) classStore() *store {
	return keyed(l, l.state.classes, func(class *v1alpha1.IPClass) string { return class.Name }, func(*v1alpha1.IPClass) bool { return true })
}

func (l *Live) addressClaimStore() *store { return keyed(l, l.state.addressClaims, uidOf, waits) }

// waits reports whether an IPAddressClaim asks for an address of ours and has none.
func waits(claim *ipamv1.IPAddressClaim) bool {
	return claim.Status.AddressRef.Name == "" && convert.IsOurs(claim.Spec.PoolRef.APIGroup, claim.Spec.PoolRef.Kind)
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

// as returns an object that a Reflector delivers as the type that it must have.
func as[T any](obj any) (T, error) {
	object, ok := obj.(T)
	if !ok {
		return object, fmt.Errorf("%T is not a %s", obj, strings.TrimPrefix(fmt.Sprintf("%T", new(T)), "*"))
	}
	return object, nil
}
