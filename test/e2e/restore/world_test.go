// Package restore brings a cluster back: from a snapshot of etcd that was taken under load, from a
// dump without IPAllocations, and, while claims arrive, from the previous build of the operator to
// this one. The results are read from the API server alone.
package restore

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// orphanGrace is short here: tests wait for it.
const orphanGrace = 4 * time.Second

// team is the namespace of all claims.
const team = "team"

// world holds a cluster with a client, for one test.
type world struct {
	*suite.World
	*WithT
}

func start(t *testing.T, options cluster.Options) *world {
	t.Helper()
	options.ClusterAPICRDs = true
	options.OrphanGrace = orphanGrace
	w := &world{World: suite.Start(t, options), WithT: newGomega(t)}
	w.Namespace(team)
	return w
}

func newGomega(t *testing.T) *WithT {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	g.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	return g
}

// agrees waits until all stored objects agree.
func (w *world) agrees() {
	w.Helper()
	begin := time.Now()
	w.Eventually(func() ([]string, error) { return w.wrong(w.Context(), nil) }).Should(BeEmpty())
	w.Logf("all agrees after %v", time.Since(begin).Round(time.Millisecond))
}

// serves creates claims and expects that they are served, with blocks that no other claim has.
func (w *world) serves(prefix string) {
	w.Helper()
	for i := range 30 {
		claim := build.Claim(team, fmt.Sprintf("%s-%d", prefix, i)).Pool(claimsPool).Length(int32(26 + i%7)).Obj()
		w.Created(claim, build.AddressClaim(team, claim.Name).Pool(hostsPool).Obj())
		w.Expect(claim.Spec.CIDR).NotTo(BeEmpty(), "%s is %s and says %+v", claim.Name, claim.Status.Phase, claim.Status.Conditions)
	}
	w.agrees()
}

// list calls List, and fails the test in no other way than by its error.
func (w *world) list(ctx context.Context, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := w.List(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
