package audit

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
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
}

// Pool represents an IPPool or a LocalIPPool.
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
