package allocator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestLogHasEachChangeOfBlock expects the log from the pool that is passed over to the release:
// each change at level 1, each step at level 2. The caller that gets an error logs it.
func TestLogHasEachChangeOfBlock(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		var lines []string
		ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) {
			level, rest, _ := strings.Cut(strings.TrimPrefix(args, `"level"=`), ` "msg"="`)
			message, _, _ := strings.Cut(rest, `"`)
			lines = append(lines, fmt.Sprint(level, " ", message))
		}, funcr.Options{Verbosity: stepLevel}))
		order := orderFromPools(claimOrder("x", 28), openSecondPool(a, api, t), parent())
		record, err := a.Allocate(ctx, order)
		if err != nil {
			t.Fatal(err)
		}
		kept := ipam.Transition{State: ipam.StateRetained, ReleaseAfter: time.Now().Add(time.Hour)}
		if err := a.ApplyTransition(ctx, record, kept); err != nil {
			t.Fatal(err)
		}
		gone := record
		gone.UID = "another"
		if a.ApplyTransition(ctx, gone, kept) == nil {
			t.Error("another record of the name is changed")
		}
		synctest.Wait() // until the watch has shown it
		again := orderFromPools(claimOrder("x", 28), parent())
		if record, err = a.Allocate(ctx, again); err != nil {
			t.Fatal(err)
		}
		if record, err = a.takeOver(ctx, record, record.HolderUID); err != nil {
			t.Fatal(err)
		}
		if err := a.Release(ctx, record); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"2 Passed over a pool", "2 Holding a block", "2 Recorded a block; waiting until the watch shows it", "1 Allocated a block",
			"1 Changed the state of a record", "1 Took over a retained record", "1 Adopted a record", "1 Released a record",
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("the log differs (-want +got):\n%s", diff)
		}
	})
}
