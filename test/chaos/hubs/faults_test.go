package hubs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// fault represents a kind of fault in one cluster. do injects it, lets it last, and corrects it.
type fault struct {
	kind string
	do   func(*world, *spoke)
}

func faults() []fault {
	return []fault{
		{"cut the link of a cluster to the hub", (*world).cutLink},
		{"cut the links of all clusters", (*world).cutLinks},
		{"kill a provisioner", (*world).killProvisioner},
		{"kill all provisioners of a cluster", (*world).killProvisioners},
		{"pause a provisioner beyond its lease", (*world).pauseProvisioner},
		{"remove the lease of a provisioner that works", (*world).removeLease},
		{"remove the lease of a paused provisioner", (*world).removeLeaseOfPaused},
		{"kill the operator of a cluster", (*world).killOperator},
		{"kill the operator of the hub", (*world).killHub},
		{"restore the hub from an older snapshot", (*world).restoreHub},
	}
}

// rage injects each fault once, in any order, and goes on until the time is over. Without time, it restores no
// hub: see moveRangeAndRestore.
func (w *world) rage(d time.Duration) {
	w.Helper()
	all := faults()
	if d == 0 {
		all = all[:len(all)-1]
	}
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	begin := time.Now()
	for i := 0; (i < len(all) || time.Since(begin) < d) && !w.Failed(); i++ {
		f, s, began := all[i%len(all)], w.spokes[w.random.IntN(len(w.spokes))], time.Now()
		if i >= len(all) {
			f = all[w.random.IntN(len(all))]
		}
		f.do(w, s)
		w.Faults[f.kind]++
		w.startAll()
		w.Logf("%6.1f s: %s (%s), over after %.1f s; %v", began.Sub(begin).Seconds(), f.kind, s.name, time.Since(began).Seconds(), w.progress())
		w.last(0, 2*time.Second)
	}
}

// startAll starts the provisioners that lost their lease soon after their start.
func (w *world) startAll() {
	w.Helper()
	for _, s := range w.spokes {
		for _, p := range s.provisioners {
			if !p.Running() {
				suite.Must(w, p.Start(w.Context()))
			}
		}
	}
}

// last waits while a fault lasts.
func (w *world) last(from, to time.Duration) { pass(w.Context(), between(w.random, from, to)) }

func (s *spoke) cut() {
	s.link.Withdraw(s.hubAddress)
	s.link.Cut(s.hubAddress)
}

func (w *world) cutLink(s *spoke) {
	s.cut()
	w.last(2*time.Second, 8*time.Second)
	s.link.Restore(s.hubAddress)
}

func (w *world) cutLinks(*spoke) {
	for _, s := range w.spokes {
		s.cut()
		w.last(0, 2*time.Second)
	}
	w.last(2*time.Second, 5*time.Second)
	for _, s := range w.spokes {
		s.link.Restore(s.hubAddress)
	}
}

// leader returns the provisioner of a cluster that has the lease, by its log; the first if none has.
func (s *spoke) leader() *cluster.Process {
	for _, p := range s.provisioners {
		log, err := os.ReadFile(p.LogPath())
		suite.Must(s, err)
		lives := strings.Split(string(log), "\n--- ")
		if p.Running() && strings.Contains(strings.ToLower(lives[len(lives)-1]), "successfully acquired lease") {
			return p
		}
	}
	return s.provisioners[0]
}

func (w *world) killProvisioner(s *spoke) { w.kill(s.leader()) }

func (w *world) killProvisioners(s *spoke) { w.kill(s.provisioners...) }

// kill kills processes, and starts them again.
func (w *world) kill(processes ...*cluster.Process) {
	w.Helper()
	for _, p := range processes {
		suite.Must(w, p.Kill())
	}
	w.last(0, 3*time.Second)
	for _, p := range processes {
		suite.Must(w, p.Start(w.Context()))
	}
}

func (w *world) pauseProvisioner(s *spoke) {
	p := s.leader()
	suite.Must(w, p.Pause())
	w.last(16*time.Second, 20*time.Second) // the lease is 15 s
	suite.Must(w, p.Resume())
}

// removeLease makes two processes work at a time, until the first one finds that it has lost the lease.
func (w *world) removeLease(s *spoke) {
	w.Helper()
	s.Deleted(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: keysOf.Namespace, Name: keysOf.Name}})
	w.last(2*time.Second, 5*time.Second)
}

func (w *world) removeLeaseOfPaused(s *spoke) {
	w.Helper()
	p := s.leader()
	suite.Must(w, p.Pause())
	w.removeLease(s)
	suite.Must(w, p.Resume())
	w.last(time.Second, 2*time.Second)
}

func (w *world) killOperator(s *spoke) {
	w.kill(s.Managers[w.random.IntN(len(s.Managers))].Process)
}

func (w *world) killHub(*spoke) { w.kill(processes(w.hub)...) }

func processes(w *suite.World) (all []*cluster.Process) {
	for _, m := range w.Managers {
		all = append(all, m.Process)
	}
	return all
}

// snapshot takes a snapshot of the hub, and returns its path.
func (w *world) snapshot() string {
	w.Helper()
	path := filepath.Join(w.TempDir(), "snapshot.db")
	suite.Must(w, w.hub.SnapshotEtcd(w.Context(), path))
	return path
}

func (w *world) restoreHub(*spoke) {
	w.Helper()
	snapshot := w.snapshot()
	w.last(6*time.Second, 12*time.Second)
	w.restore(snapshot)
}

// moveRangeAndRestore moves the one range of the hub to another cluster after a snapshot. When the hub is restored,
// the first cluster waits for the range, and the other one has it still.
func (w *world) moveRangeAndRestore() {
	w.Helper()
	first, other := w.spokes[0], w.spokes[1] // the provisioner of first is started first, too
	returned, moved, waiting := build.Claim("default", "returned").Class(leased).Obj(), build.Claim("default", "moved").Class(leased).Obj(), build.Claim("default", "waiting").Class(leased).Obj()
	first.Created(returned)
	first.Bound(returned)
	snapshot := w.snapshot()
	first.Deleted(returned)
	other.Created(moved)
	other.Bound(moved)
	first.Created(waiting)
	w.hub.Await("both clusters claim", func(ctx context.Context) bool {
		claims := &v1alpha1.IPClaimList{}
		return w.hub.List(ctx, claims) == nil && len(claims.Items) == 2
	})
	w.restore(snapshot)
	other.Deleted(moved)
	first.Bound(waiting)
	first.Deleted(waiting)
}

// restore restores the hub by the runbook in docs/provisioners.md.
func (w *world) restore(snapshot string) {
	w.Helper()
	w.judge.window.Add(1)
	all := processes(w.hub)
	for _, s := range w.spokes {
		all = append(all, s.provisioners...)
	}
	for _, p := range all {
		suite.Must(w, p.Stop())
	}
	suite.Must(w, w.hub.RestoreEtcd(w.Context(), snapshot))
	w.patchPools(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationPaused + `":"restored"}}}`)
	for _, p := range processes(w.hub) {
		suite.Must(w, p.Start(w.Context()))
	}
	w.deleteReturned()
	w.Missing += len(w.missing(w.Context(), false))
	w.startAll()
	w.hub.Await("each range of a cluster is claimed", func(ctx context.Context) bool { return len(w.missing(ctx, true)) == 0 })
	for _, pool := range w.hubPools() {
		w.hub.Await(pool.Name+" is paused", func(ctx context.Context) bool {
			return w.hub.Get(ctx, client.ObjectKeyFromObject(&pool), &pool) == nil && pool.Status.Phase == v1alpha1.PoolPaused
		})
		suite.Must(w, w.hub.Status().Patch(w.Context(), &pool, build.Merge(`{"status":{"firstReadyTime":null}}`)))
	}
	w.patchPools(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationPaused + `":null}}}`)
	w.hub.Await("each range of a cluster is held", func(ctx context.Context) bool { return len(w.missing(ctx, false)) == 0 })
	w.judge.window.Add(1)
}

func (w *world) hubPools() []v1alpha1.IPPool {
	w.Helper()
	pools := &v1alpha1.IPPoolList{}
	suite.Must(w, w.hub.List(w.Context(), pools))
	return pools.Items
}

func (w *world) patchPools(patch string) {
	w.Helper()
	for _, pool := range w.hubPools() {
		suite.Must(w, w.hub.Patch(w.Context(), &pool, build.Merge(patch)))
	}
}

// deleteReturned deletes the claims of ranges that were returned after the snapshot: no cluster has their keys.
func (w *world) deleteReturned() {
	w.Helper()
	for _, s := range w.spokes {
		claims, keys := &v1alpha1.IPClaimList{}, &corev1.ConfigMap{}
		suite.Must(w, w.hub.List(w.Context(), claims, client.InNamespace(s.namespace())))
		suite.Must(w, client.IgnoreNotFound(s.Get(w.Context(), keysOf, keys)))
		for _, claim := range claims.Items {
			if _, ok := keys.Data[s.poolOf(claim)]; !ok {
				w.Returned++
				w.hub.Deleted(&claim)
				w.hub.Gone(&claim)
			}
		}
	}
}

// missing returns the pools of the clusters, also those that are not open, whose range no claim in the hub holds
// or, if that is enough, asks for.
func (w *world) missing(ctx context.Context, orAsks bool) (missing []string) {
	w.Helper()
	claims, pools := &v1alpha1.IPClaimList{}, &v1alpha1.IPPoolList{}
	suite.Must(w, w.hub.List(ctx, claims))
	for _, s := range w.spokes {
		suite.Must(w, s.List(ctx, pools))
		for _, pool := range pools.Items {
			if !s.isClaimed(pool, claims.Items, orAsks) {
				missing = append(missing, fmt.Sprintf("%s in %s: %s", pool.Name, s.name, pool.Spec.CIDR))
			}
		}
	}
	return missing
}
