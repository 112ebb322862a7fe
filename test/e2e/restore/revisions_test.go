package restore

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestEtcdRestoreWithLowerRevisionsUnderRunningManagers restores a snapshot without --bump-revision
// while both managers run: the revisions that they have watched come again, with other content. One
// of them serves all creates until the revisions are above those of before, the other one alone
// from then on: its view lacks the records of the first one, unless it has listed again. RESTORES
// is the number of repetitions: by default 3, with -short 1.
func TestEtcdRestoreWithLowerRevisionsUnderRunningManagers(t *testing.T) {
	w := start(t, cluster.Options{Managers: 2, ControllerManager: true})
	w.pools()
	seed := newSeed(t)
	restores := 3
	if testing.Short() {
		restores = 1
	}
	for n := range suite.Setting(t, "RESTORES", restores, strconv.Atoi) {
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
	w.Eventually(func() ([]string, error) { return w.wrong(ctx, nil) }).WithTimeout(informersBehind).Should(BeEmpty())
	w.serves("after-" + name)
}

// revision returns that of etcd.
func (w *world) revision() int64 {
	w.Helper()
	revision, err := w.EtcdRevision(w.Context())
	w.Expect(err).NotTo(HaveOccurred())
	return revision
}
