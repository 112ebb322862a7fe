// Package records stores many IPAllocations as the operator makes them, without claims: for
// measurements of a large register.
package records

import (
	"testing"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/test/framework/suite"
)

// writers create records at a time.
const writers = 32

// Store stores so many records, of which it is given each by its number. Where the operator
// is installed only its own account may.
func Store(t testing.TB, as client.Client, count int, record func(int) ipam.Record) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(writers)
	for i := range count {
		group.Go(func() error { return as.Create(ctx, adapt.Allocation(record(i))) })
	}
	suite.Must(t, group.Wait())
}
