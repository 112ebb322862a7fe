package audit

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Snapshot holds the objects that were read. The records are older than all else in it.
type Snapshot struct {
	// Now is the API server's time.
	Now time.Time
	// LeaderSince is the time at which the operator's leader began; zero if that is not known.
	// The leader has not seen earlier events.
	LeaderSince time.Time

	Records       []Record
	Claims        []Claim
	AddressClaims []AddressClaim
	Addresses     []Address
	Pools         []Pool
	// Unreadable holds the IPAllocations that could not be understood.
	Unreadable []Unreadable

	// Unread holds the kinds of objects that the caller cannot list.
	Unread []register.Unread

	// foreign holds the pools that the in-cluster provider serves.
	foreign map[ipam.PoolKey]bool
}

// Record represents an IPAllocation.
type Record struct {
	ipam.Record
	// Written is the time at which it was last written.
	Written time.Time
}

// Claim represents an IPClaim.
type Claim struct {
	Name ipam.Name
	UID  string
	// Record is the name of the IPAllocation that it names; empty if it names none.
	Record string
	// Bound is true if its status reports that it holds Block of Pool.
	Bound bool
	Block string
	Pool  ipam.PoolKey
	// Network holds the settings that were handed out with the block; nil if the block is not an
	// address of a network.
	Network *v1alpha1.ClaimNetwork
}

// AddressClaim represents an IPAddressClaim for an address of Cadastre.
type AddressClaim struct {
	Name        ipam.Name
	UID         string
	Terminating bool
	// Address is the name of the IPAddress that its status names; empty if it names none.
	Address string
	// Pool is the pool that it names; zero if it names a class.
	Pool ipam.PoolKey
}

// Address represents an IPAddress of Cadastre.
type Address struct {
	Name        ipam.Name
	UID         string
	Terminating bool
	// Claim is the name of the IPAddressClaim that it is for.
	Claim string
	Addr  netip.Addr
	// Prefix and Gateway are the settings that were handed out with it; nil and empty if they are
	// not set.
	Prefix  *int32
	Gateway string
	// Pool is the pool that it names; zero if it names a class.
	Pool ipam.PoolKey
}

// Pool represents a pool that Cadastre serves.
type Pool struct {
	ipam.Pool
	UID string
	// Recorded is the CIDR that its status reports as recorded for it; empty if there is none.
	Recorded string
}

// Unreadable represents an IPAllocation that could not be understood.
type Unreadable struct {
	Name ipam.Name
	UID  string
	Err  error
}

// covers reports whether all objects of a resource in the namespace were read; all of the
// cluster if the namespace is empty.
func (s *Snapshot) covers(resource, namespace string) bool {
	return !slices.ContainsFunc(s.Unread, func(u register.Unread) bool {
		return u.Resource == resource && (namespace == "" || u.Namespace != namespace)
	})
}

// Reader reads snapshots.
type Reader struct {
	Client client.Reader
	// Namespace is the namespace in which resources are listed that the caller cannot list in
	// all namespaces.
	Namespace string
	// Now returns the API server's time. It is called after the first call to the API server.
	Now func() time.Time
	// LeaderSince returns the time at which the operator's leader began; zero if that is not
	// known.
	LeaderSince func(context.Context) time.Time
}

// Read reads a snapshot: records first, and their holders second.
func (r *Reader) Read(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{}
	listings := slices.Concat([]register.Listing{
		register.Each("ipallocations", &v1alpha1.IPAllocationList{}, s.keepRecord),
		register.Each("ipclaims", &v1alpha1.IPClaimList{}, s.keepClaim),
		register.Each("ippools", &v1alpha1.IPPoolList{}, s.keepPool),
		register.Each("localippools", &v1alpha1.LocalIPPoolList{}, s.keepPool),
	}, register.InClusterPools(s.keepPool), []register.Listing{
		register.Each("ipaddressclaims", &ipamv1.IPAddressClaimList{}, s.keepAddressClaim),
		register.Each("ipaddresses", &ipamv1.IPAddressList{}, s.keepAddress),
	})
	for _, listing := range listings {
		unread, err := register.List(ctx, r.Client, r.Namespace, listing)
		if meta.IsNoMatchError(err) { // the cluster has no Cluster API, or no pools of its in-cluster provider
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Unread = append(s.Unread, unread...)
		if s.Now.IsZero() {
			s.Now = r.Now()
		}
	}
	s.LeaderSince = r.LeaderSince(ctx)
	s.keepServed()
	return s, nil
}

// keepServed removes what is of pools that the in-cluster provider serves, as it records nothing. Pools
// that do not exist are among these unless Cadastre serves another one of the provider's kinds.
func (s *Snapshot) keepServed() {
	servesAny := slices.ContainsFunc(s.Pools, func(p Pool) bool { return p.Key.Kind.IsInCluster() })
	isForeign := func(pool ipam.PoolKey) bool { return pool.Kind.IsInCluster() && (!servesAny || s.foreign[pool]) }
	s.Records = slices.DeleteFunc(s.Records, func(r Record) bool { return isForeign(r.Pool) || isForeign(convert.PoolOf(r.Holder)) })
	s.AddressClaims = slices.DeleteFunc(s.AddressClaims, func(c AddressClaim) bool { return isForeign(c.Pool) })
	s.Addresses = slices.DeleteFunc(s.Addresses, func(a Address) bool { return isForeign(a.Pool) })
}

func nameOf(obj client.Object) ipam.Name {
	return ipam.Name{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func (s *Snapshot) keepRecord(obj *v1alpha1.IPAllocation) {
	record, err := convert.Record(obj)
	if err != nil {
		s.Unreadable = append(s.Unreadable, Unreadable{Name: nameOf(obj), UID: string(obj.UID), Err: err})
		return
	}
	s.Records = append(s.Records, Record{Record: record, Written: written(&obj.ObjectMeta)})
}

// written returns the time at which an object was last written, by any writer.
func written(obj *metav1.ObjectMeta) time.Time {
	last := obj.CreationTimestamp.Time
	for i := range obj.ManagedFields {
		if at := obj.ManagedFields[i].Time; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}

func (s *Snapshot) keepClaim(obj *v1alpha1.IPClaim) {
	claim := Claim{
		Name: nameOf(obj), UID: string(obj.UID), Record: obj.Spec.AllocationName,
		Bound: obj.Status.Phase == v1alpha1.ClaimBound, Block: obj.Status.AllocatedCIDR, Network: obj.Status.Network,
	}
	if obj.Status.PoolRef != nil {
		claim.Pool = convert.PoolKey(obj.Namespace, *obj.Status.PoolRef)
	}
	s.Claims = append(s.Claims, claim)
}

// keepPool keeps the readable part of a pool, whatever else is wrong in its spec: the conditions
// of the pool report that.
func (s *Snapshot) keepPool(obj v1alpha1.Pool) {
	pool, _ := convert.Pool(obj)
	if !register.IsServed(obj) || register.IsProviderRunning(obj) {
		if s.foreign == nil {
			s.foreign = map[ipam.PoolKey]bool{}
		}
		s.foreign[pool.Key] = true
		return
	}
	s.Pools = append(s.Pools, Pool{Pool: pool, UID: string(obj.GetUID()), Recorded: recordedCIDR(obj, pool)})
}

// recordedCIDR returns the CIDR that the status of a pool reports as recorded. A pool of the in-cluster
// provider's kinds has a condition alone.
func recordedCIDR(obj v1alpha1.Pool, pool ipam.Pool) string {
	if pool.Key.Kind.IsInCluster() && pool.CIDR.IsValid() && meta.IsStatusConditionTrue(obj.PoolStatus().Conditions, v1alpha1.ConditionAllocated) {
		return pool.CIDR.String()
	}
	return obj.PoolStatus().AllocatedCIDR
}

func (s *Snapshot) keepAddressClaim(obj *ipamv1.IPAddressClaim) {
	ref := obj.Spec.PoolRef
	if convert.IsTarget(ref.APIGroup, ref.Kind) {
		s.AddressClaims = append(s.AddressClaims, AddressClaim{
			Name: nameOf(obj), UID: string(obj.UID), Terminating: !obj.DeletionTimestamp.IsZero(), Address: obj.Status.AddressRef.Name,
			Pool: convert.PoolOfAddress(ref.Kind, obj.Namespace, ref.Name),
		})
	}
}

func (s *Snapshot) keepAddress(obj *ipamv1.IPAddress) {
	addr, err := netip.ParseAddr(obj.Spec.Address)
	ref := obj.Spec.PoolRef
	if err != nil || !convert.IsTarget(ref.APIGroup, ref.Kind) {
		return // the condition of the claim reports an address that is not valid
	}
	s.Addresses = append(s.Addresses, Address{
		Name: nameOf(obj), UID: string(obj.UID), Terminating: !obj.DeletionTimestamp.IsZero(),
		Claim: obj.Spec.ClaimRef.Name, Addr: addr.Unmap(), Prefix: obj.Spec.Prefix, Gateway: textOf(convert.GatewayGiven(obj.Spec.Gateway)),
		Pool: convert.PoolOfAddress(ref.Kind, obj.Namespace, ref.Name),
	})
}
