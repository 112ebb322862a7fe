package restore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
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
		processes := w.Processes()
		w.lose(w.begin("second", 6, seed+1), func(snapshot string) {
			w.Expect(w.RestoreEtcd(t.Context(), snapshot, "--bump-revision=1000000000", "--mark-compacted")).To(Succeed())
			w.Expect(w.ControllerManager.Restart(t.Context())).To(Succeed())
		})
		w.serves("after-second")
		w.Unharmed(processes)
	})
}

// forTest returns the same world in another test.
func (w *world) forTest(t *testing.T) *world {
	return &world{World: w.For(t), WithT: newGomega(t), fills: w.fills}
}

// lose takes a snapshot in the middle of the load, continues with it for as long again, and
// restores the snapshot.
func (w *world) lose(l *load, restore func(snapshot string)) {
	w.Helper()
	ctx := w.Context()
	many := suite.Sized(300, 100) // before the snapshot, and after it
	l.creates(many)
	snapshot := filepath.Join(w.TempDir(), "snapshot.db")
	w.Expect(w.SnapshotEtcd(ctx, snapshot)).To(Succeed())
	size, err := os.Stat(snapshot)
	w.Expect(err).NotTo(HaveOccurred())
	l.creates(many)
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
	lost, back := names(before).Difference(names(after)), names(after).Difference(names(before))
	w.Logf("%d objects made after the snapshot are gone, %d that were deleted after it are back", len(lost), len(back))
	w.Expect(len(lost)).To(BeNumerically(">", 10))
	w.Expect(len(back)).To(BeNumerically(">", 10))
}

// names returns those of the claims, pools and Clusters.
func names(s *stored) sets.Set[string] {
	all := sets.New[string]()
	for _, list := range []client.ObjectList{&s.claims, &s.pools, &s.addressClaims, &s.clusters} {
		_ = meta.EachListItem(list, func(obj runtime.Object) error {
			all.Insert(fmt.Sprintf("%T/%s", obj, obj.(client.Object).GetName()))
			return nil
		})
	}
	return all
}

// TestEtcdRestoreWithLowerRevisionsUnderRunningManagers restores a snapshot without --bump-revision
// while both managers run: the revisions that they have watched come again, with other content. One
// of them serves all creates until the revisions are above those of before, the other one alone
// from then on: its view lacks the records of the first one, unless it has listed again. RESTORES
// is the number of repetitions: by default 3, with -short 1.
func TestEtcdRestoreWithLowerRevisionsUnderRunningManagers(t *testing.T) {
	w := start(t, cluster.Options{Managers: 2, ControllerManager: true})
	w.pools()
	seed := newSeed(t)
	for n := range suite.Setting(t, "RESTORES", suite.Sized(3, 1), strconv.Atoi) {
		t.Run(fmt.Sprintf("restore %d", n), func(t *testing.T) {
			w := w.forTest(t)
			w.rewind(fmt.Sprintf("rewind-%d", n), seed+uint64(n), w.Managers[n%2], w.Managers[(n+1)%2])
		})
	}
}

// informersBehind bounds the delay of the caches: a Reflector of client-go that could not reach the
// API server waits for up to a minute between two attempts, and needs two of them to list again.
const informersBehind = 2 * time.Minute

// rewind restores a snapshot with its own revisions under load. The busy manager serves until they
// are above those of before, and then the idle one.
func (w *world) rewind(name string, seed uint64, busy, idle *cluster.Manager) {
	w.Helper()
	ctx := w.Context()
	l := w.begin(name, 4, seed)
	l.creates(20)
	snapshot := filepath.Join(w.TempDir(), "snapshot.db")
	w.Expect(w.SnapshotEtcd(ctx, snapshot)).To(Succeed())
	taken := w.revision()
	l.creates(20)
	w.Balancer.Withdraw(idle.WebhookAddress)
	w.Expect(w.APIServer.Kill()).To(Succeed())
	before := w.revision()
	w.Expect(w.RestoreEtcd(ctx, snapshot)).To(Succeed())
	w.Expect(w.ControllerManager.Restart(ctx)).To(Succeed())
	for w.revision() <= before {
		l.creates(5)
	}
	w.Logf("the store went back from revision %d to about %d, and is at %d", before, taken, w.revision())

	w.Balancer.Restore(idle.WebhookAddress)
	w.Balancer.Withdraw(busy.WebhookAddress)
	w.Balancer.Cut(busy.WebhookAddress)
	l.creates(30)
	l.stop()
	w.Balancer.Restore(busy.WebhookAddress)
	w.Eventually(func() ([]string, error) { return w.wrong(ctx, nil) }).WithTimeout(informersBehind + w.Patience).Should(BeEmpty())
	w.serves("after-" + name)
}

// revision returns that of etcd.
func (w *world) revision() int64 {
	w.Helper()
	revision, err := w.EtcdRevision(w.Context())
	w.Expect(err).NotTo(HaveOccurred())
	return revision
}

// previous is the build from which the operator is upgraded. Replicas of those before it do not
// mark their answers: while they run, the webhook of the second attempt, whose path they do not
// know, would be asked too.
const previous = "d06650e"

// checkedOut returns the previous build: its manifests, and its manager in bin. If the repository
// does not have it, because it is a shallow clone, the test is skipped.
func checkedOut(t *testing.T) string {
	t.Helper()
	_, err := cluster.Binary("etcd")
	suite.Must(t, err)
	root := suite.ModuleRoot(t)
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = root
		return cmd.Output()
	}
	if _, err := git("cat-file", "-e", previous+"^{commit}"); err != nil {
		t.Skipf("NOT TESTED: the repository does not have the previous build, %s (a shallow clone?): %v", previous, err)
	}
	archive, err := git("archive", previous)
	suite.Must(t, err)
	dir := filepath.Join(root, "bin", previous)                     // Go's build cache knows it the next time
	extracted, err := os.MkdirTemp(filepath.Dir(dir), previous+"-") //nolint:usetesting // on the file system of dir
	suite.Must(t, err)
	defer func() { _ = os.RemoveAll(extracted) }()
	tar := exec.CommandContext(t.Context(), "tar", "x", "-C", extracted)
	tar.Stdin = bytes.NewReader(archive)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(extracted, dir); err != nil && !errors.Is(err, os.ErrExist) { // it exists from an earlier run
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join("bin", "manager"), "./cmd/manager")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", previous, err, out)
	}
	return dir
}

// TestUpgradeFromPreviousBuildUnderLoad applies the manifests and replaces the replicas, one
// by one, while claims arrive. None is refused, but for connections that are cut with a replica
// that ends, which the client's next attempt hides.
func TestUpgradeFromPreviousBuildUnderLoad(t *testing.T) {
	before := checkedOut(t)
	w := start(t, cluster.Options{
		Managers: 2, ManagerBinary: filepath.Join(before, "bin", "manager"), Manifests: filepath.Join(before, "config", "default"),
		ManagerEnv: []string{"CADASTRE_TEST_UNSAFE_ORPHAN_GRACE=true"}, // for its --orphan-grace
	})
	w.pools()
	const clients = 4
	l := w.begin("load", clients, newSeed(t))
	say := func(what string, begin time.Time) {
		t.Logf("%s took %v: %v", what, time.Since(begin).Round(time.Millisecond), l)
	}
	begin := time.Now()
	l.creates(150)
	say("the previous build alone", begin)

	begin = time.Now()
	w.Expect(w.Upgrade(t.Context())).To(Succeed())
	say("applying the new manifests", begin)
	l.creates(50)
	for _, old := range w.Managers[:2] {
		begin = time.Now()
		added, err := w.AddManager(t.Context())
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(old.Stop()).To(Succeed())
		say(fmt.Sprintf("%s in place of %s", added.Name, old.Name), begin)
		l.creates(100)
	}
	l.creates(100)
	l.stop()
	t.Logf("in all: %v", l)
	w.Expect(l.refused).To(BeEmpty())
	w.Expect(l.lost).To(BeZero(), "the client's next attempts hide that a connection was cut")
	w.Expect(l.cut).To(BeNumerically("<=", clients*2*3), "a replica that ends cuts off the requests under way, and no more")
	w.agrees()
	w.serves("after")
}
