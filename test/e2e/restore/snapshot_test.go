package restore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// newSeed returns that of SEED, or a new one.
func newSeed(t *testing.T) uint64 {
	seed := suite.Seed(t, "SEED", uint64(time.Now().UnixNano()))
	t.Logf("seed %d", seed)
	return seed
}

// TestEtcdRestoreOfSnapshotTakenUnderLoad takes a snapshot under load, continues the load, and then puts
// the cluster back to the snapshot.
func TestEtcdRestoreOfSnapshotTakenUnderLoad(t *testing.T) {
	w := start(t, cluster.Options{Managers: 2, ControllerManager: true})
	w.pools()
	seed := newSeed(t)

	t.Run("everything stops, and starts again on the restored snapshot", func(t *testing.T) {
		w := w.forTest(t)
		w.lose(w.begin("first", 6, seed), func(snapshot string) {
			for _, m := range w.Managers {
				w.Expect(m.Stop()).To(Succeed())
			}
			w.Expect(w.RestoreEtcd(t.Context(), snapshot)).To(Succeed())
			w.Expect(w.ControllerManager.Restart(t.Context())).To(Succeed())
			for _, m := range w.Managers {
				w.Expect(m.Start(t.Context())).To(Succeed())
			}
		})
		w.serves("after-first")
	})

	t.Run("managers run on, and watched revisions that never were", func(t *testing.T) {
		w := w.forTest(t)
		pids := sets.New[int]()
		for _, m := range w.Managers {
			pids.Insert(m.PID())
		}
		w.lose(w.begin("second", 6, seed+1), func(snapshot string) {
			w.Expect(w.RestoreEtcd(t.Context(), snapshot, "--bump-revision=1000000000", "--mark-compacted")).To(Succeed())
			w.Expect(w.ControllerManager.Restart(t.Context())).To(Succeed())
		})
		w.serves("after-second")
		for _, m := range w.Managers {
			w.Expect(m.Running() && pids.Has(m.PID())).To(BeTrue(), "%s was restarted", m.Name)
		}
	})
}

// forTest returns the same world in another test.
func (w *world) forTest(t *testing.T) *world {
	return &world{World: w.For(t), WithT: newGomega(t)}
}

// lose takes a snapshot in the middle of the load, continues with it for as long again, and
// restores the snapshot.
func (w *world) lose(l *load, restore func(snapshot string)) {
	w.Helper()
	ctx := w.Context()
	l.creates(loadOfSnapshots())
	snapshot := filepath.Join(w.TempDir(), "snapshot.db")
	w.Expect(w.SnapshotEtcd(ctx, snapshot)).To(Succeed())
	size, err := os.Stat(snapshot)
	w.Expect(err).NotTo(HaveOccurred())
	l.creates(loadOfSnapshots())
	l.stop()
	w.Expect(l.refused).To(BeEmpty())
	before, err := w.stored(ctx)
	w.Expect(err).NotTo(HaveOccurred())
	w.Logf("snapshot of %d kB in the middle of: %v", size.Size()/1024, l)

	begin := time.Now()
	restore(snapshot)
	w.Logf("stopped at %s, restored and started in %v", begin.UTC().Format(time.TimeOnly), time.Since(begin).Round(time.Millisecond))
	w.agrees()
	after, err := w.stored(ctx)
	w.Expect(err).NotTo(HaveOccurred())
	lost, back := differ(names(before), names(after))
	w.Logf("%d objects made after the snapshot are gone, %d that were deleted after it are back", lost, back)
	w.Expect(lost).To(BeNumerically(">", 10))
	w.Expect(back).To(BeNumerically(">", 10))
}

// loadOfSnapshots returns how many claims are made before a snapshot, and after it.
func loadOfSnapshots() int {
	if testing.Short() {
		return 100
	}
	return 300
}

// names returns those of the claims and pools.
func names(s *stored) sets.Set[string] {
	all := sets.New[string]()
	add := func(kind string, obj client.Object) { all.Insert(kind + "/" + obj.GetName()) }
	for i := range s.claims.Items {
		add("claim", &s.claims.Items[i])
	}
	for i := range s.pools.Items {
		add("pool", &s.pools.Items[i])
	}
	for i := range s.addressClaims.Items {
		add("address claim", &s.addressClaims.Items[i])
	}
	return all
}

func differ(a, b sets.Set[string]) (gone, come int) {
	return a.Difference(b).Len(), b.Difference(a).Len()
}
