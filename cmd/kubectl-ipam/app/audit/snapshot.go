package audit

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Snapshot is what was read. The records are older than all else in it.
type Snapshot struct {
	// Now is the API server's time.
	Now time.Time
	// LeaderSince is when the operator's leader began; zero where that is not known. What
	// happened before it, the leader has not seen.
	LeaderSince time.Time

	Records       []Record
	Claims        []Claim
	AddressClaims []AddressClaim
	Addresses     []Address
	Pools         []Pool
	// Unreadable are IPAllocations that could not be understood.
	Unreadable []Unreadable

	// Unread is what the caller may not list.
	Unread []register.Unread
}

// Record is an IPAllocation.
type Record struct {
	ipam.Record
	// Written is when anybody last wrote it.
	Written time.Time
}

// Claim is an IPClaim.
type Claim struct {
	Name ipam.Name
	UID  string
	// Record is the name of the IPAllocation that it names; empty where it names none.
	Record string
	// Bound says that it says that it holds Block of Pool.
	Bound bool
	Block string
	Pool  ipam.PoolKey
	// Network is what was handed out with the block; nil where that is not an address of a
	// network.
	Network *v1alpha1.ClaimNetwork
}

// AddressClaim is an IPAddressClaim for an address of Cadastre.
type AddressClaim struct {
	Name        ipam.Name
	UID         string
	Terminating bool
	// Address is the name of the IPAddress that its status names; empty where it names none.
	Address string
}

// Address is an IPAddress of Cadastre.
type Address struct {
	Name        ipam.Name
	UID         string
	Terminating bool
	// Claim is the name of the IPAddressClaim that it is for.
	Claim string
	Addr  netip.Addr
	// Prefix and Gateway are what was handed out with it; nil and empty where that is not set.
	Prefix  *int32
	Gateway string
}

// Pool is a pool.
type Pool struct {
	ipam.Pool
	UID string
	// Recorded is the CIDR that its status says is recorded for it; empty where none is.
	Recorded string
}

// Unreadable is an IPAllocation that could not be understood.
type Unreadable struct {
	Name ipam.Name
	UID  string
	Err  error
}

// covers reports whether all objects of a resource in the namespace were read; all of the
// cluster where the namespace is empty.
func (s *Snapshot) covers(resource, namespace string) bool {
	return !slices.ContainsFunc(s.Unread, func(u register.Unread) bool {
		return u.Resource == resource && (namespace == "" || u.Namespace != namespace)
	})
}
