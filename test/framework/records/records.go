// Package records stores many IPAllocations as the operator makes them, without claims: for
// measurements of a large register.
package records

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	// Namespaces have the same number of records each.
	Namespaces = 50
	// writers create records at a time.
	writers = 32
)

// Namespace returns that of the i-th record.
func Namespace(i int) string { return fmt.Sprintf("team-%02d", i%Namespaces) }

// Address returns the i-th one of 10.0.0.0/8.
func Address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+uint32(i))))
}

// Of returns the i-th record, of one address of a pool.
func Of(i int, pool string, address netip.Addr) ipam.Record {
	claim := ipam.Name{Namespace: Namespace(i), Name: fmt.Sprintf("workload-%06d", i)}
	return ipam.Record{
		Name:  ipam.Name{Namespace: claim.Namespace, Name: claim.Name + "-x7k2m9qd"},
		Block: netip.PrefixFrom(address, 32), Pool: ipam.PoolNamed(pool), Class: "cluster-nodes",
		Holder: convert.HolderOfClaim(claim), HolderUID: string(uuid.NewUUID()),
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Project: claim.Namespace, RequestedBy: "system:serviceaccount:" + claim.Namespace + ":deployer",
	}
}

// Store stores so many records; the function returns each by its number. If the operator is
// installed only its own account may.
func Store(t testing.TB, as client.Client, count int, record func(int) ipam.Record) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(writers)
	for i := range count {
		group.Go(func() error { return as.Create(ctx, convert.Allocation(record(i))) })
	}
	suite.Must(t, group.Wait())
}
