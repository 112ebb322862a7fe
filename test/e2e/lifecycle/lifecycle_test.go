// Package lifecycle starts and ends replicas of the operator, as processes, and checks the effects
// on its users.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/changes"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// lease is how long a leader that dies keeps its lease: so long that its expiry cannot be mistaken
// for a handover. It is renewed as often as it is by default.
const lease = 30 * time.Second

// world holds a cluster with a client.
type world struct{ *suite.World }

func TestLifecycle(t *testing.T) {
	w := &world{suite.Start(t, cluster.Options{Managers: 2, ManagerArgs: []string{
		"--leader-elect-lease-duration=" + lease.String(), "--leader-elect-retry-period=250ms",
	}})}
	w.Patience = 40 * time.Second
	w.Namespace("team")
	w.Pools(build.Pool("p").CIDR("10.0.0.0/12").Obj())
	t.Run("a replica that ends on a signal answers the requests under way", w.endsGracefully)
	t.Run("the requests to a replica that is killed are sent to another", w.isAskedOfAnother)
	t.Run("a leader that ends on a signal hands over at once", w.handsOver)
	t.Run("blocks are handed out while no replica leads", w.losesTheLease)
	t.Run("a replica is ready when its view is complete, and not before", w.isReadyWhenComplete)
}

// endsGracefully stops and starts each replica under load.
func (w *world) endsGracefully(t *testing.T) {
	load := w.loadWhile(t, "ended", 4, (*cluster.Manager).Stop)
	t.Logf("%d created, the slowest in %v; 4 replicas ended on a signal", load.created, load.slowest.Round(time.Millisecond))
	load.mayFail(t, 2)
	if load.slowest > 3*time.Second {
		t.Errorf("a create took %v", load.slowest)
	}
}

// isAskedOfAnother kills and starts each replica under load.
func (w *world) isAskedOfAnother(t *testing.T) {
	before := w.askedAgain(t)
	load := w.loadWhile(t, "killed", 6, (*cluster.Manager).Kill)
	again := w.askedAgain(t) - before
	t.Logf("%d created, the slowest in %v; 6 replicas were killed; %d creates were asked again, %d of them in vain",
		load.created, load.slowest.Round(time.Millisecond), again, len(load.refused))
	if again < 6 {
		t.Error("next to no create was under way when its replica was killed")
	}
	load.mayFail(t, again/4)
}

// loadWhile runs clients that create claims of that name while one replica after the other is ended
// and started again, so many times in all.
func (w *world) loadWhile(t *testing.T, named string, times int, end func(*cluster.Manager) error) *load {
	t.Helper()
	load := begin(t, w.Client(cluster.NoRetry(w.Config())), named, 16)
	for n := range times {
		load.awaitMore(t, 50)
		suite.Must(t, end(w.Managers[n%2]))
		load.awaitMore(t, 50)
		suite.Must(t, w.Managers[n%2].Start(t.Context()))
	}
	load.end()
	return load
}

// askedAgain returns how many creates of claims the API server has asked a second time, as it got
// no answer.
func (w *world) askedAgain(t *testing.T) int {
	t.Helper()
	for _, metric := range w.APIServerMetrics()["apiserver_admission_webhook_fail_open_count"].GetMetric() {
		if maps.Equal(suite.Labels(metric), map[string]string{"name": "create.ipclaim.ipam.cadastre.dev", "type": "admit"}) {
			return int(metric.GetCounter().GetValue())
		}
	}
	return 0
}

// load represents clients that create claims, one after another.
type load struct {
	stop    atomic.Bool
	clients sync.WaitGroup

	mu      changes.Mutex
	created int
	slowest time.Duration
	refused []error
}

func begin(t *testing.T, k8s client.Client, named string, clients int) *load {
	l := &load{}
	for n := range clients {
		l.clients.Go(func() {
			for i := 0; !l.stop.Load(); i++ {
				began := time.Now()
				err := k8s.Create(t.Context(), build.Claim("team", fmt.Sprintf("%s-%d-%d", named, n, i)).Pool("p").Length(32).Obj())
				l.count(err, time.Since(began))
			}
		})
	}
	return l
}

func (l *load) count(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, took)
	if err != nil {
		l.refused = append(l.refused, err)
		return
	}
	l.created++
	l.mu.Changed()
}

// awaitMore waits until so many more have been created.
func (l *load) awaitMore(t *testing.T, more int) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 60*time.Second)
	defer end()
	l.mu.Lock()
	want := l.created + more
	l.mu.Unlock()
	if !l.mu.Await(ctx, func() bool { return l.created >= want }) {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Fatalf("%d created, want %d; refused: %v", l.created, want, l.refused)
	}
}

// mayFail fails the test if more creates than that were refused, or one was that the API server did
// not ask a second time. The second call fails if it takes another connection to the replica that
// has ended, of which the API server has not noticed the end yet.
func (l *load) mayFail(t *testing.T, most int) {
	t.Helper()
	for _, err := range l.refused {
		if !strings.Contains(err.Error(), `failed calling webhook "retry.ipclaim.ipam.cadastre.dev"`) {
			t.Errorf("a create was not asked again: %v", err)
		}
	}
	if len(l.refused) > most {
		t.Errorf("%d creates were not answered, want at most %d: %v", len(l.refused), most, l.refused)
	}
}

func (l *load) end() {
	l.stop.Store(true)
	l.clients.Wait()
}

// handsOver ends the leader and waits for the other.
func (w *world) handsOver(t *testing.T) {
	leader := w.Leader()
	before := w.holder(t.Context())
	began := time.Now()
	suite.Must(t, leader.Stop())
	ended := time.Since(began)
	var now string
	w.Await("another leads than "+before, func(ctx context.Context) bool {
		now = w.holder(ctx)
		return now != "" && now != before
	})
	took := time.Since(began)
	t.Logf("the leader ended after %v; another led after %v, the lease lasts %v", ended.Round(time.Millisecond), took.Round(time.Millisecond), lease)
	if took >= lease/2 {
		t.Errorf("another led only after %v", took)
	}
	suite.Must(t, leader.Start(t.Context()))
}

func (w *world) holder(ctx context.Context) string {
	list := &coordinationv1.LeaseList{}
	err := w.List(ctx, list, client.InNamespace(cluster.Namespace))
	if suite.Must(w, err); len(list.Items) != 1 || list.Items[0].Spec.HolderIdentity == nil {
		return ""
	}
	return *list.Items[0].Spec.HolderIdentity
}

// isReadyWhenComplete starts a replica that may not list the records, so that it has none.
func (w *world) isReadyWhenComplete(t *testing.T) {
	m := w.Managers[0]
	suite.Must(t, m.Stop())
	suite.Must(t, w.Managers[1].Stop())
	role := &rbacv1.ClusterRole{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Name: "cadastre-manager"}, role))
	complete := role.DeepCopy()
	for i := range role.Rules {
		rule := &role.Rules[i]
		rule.Resources = slices.DeleteFunc(rule.Resources, func(resource string) bool { return resource == "ipallocations" })
	}
	suite.Must(t, w.Update(t.Context(), role))

	started := make(chan error, 1)
	go func() { started <- m.Start(t.Context()) }()
	var last string
	w.Await("it is alive, has its certificate and its webhooks, and is not ready without the register", func(ctx context.Context) bool {
		last = readyz(ctx, m)
		return strings.Contains(last, "[+]certificate ok") && strings.Contains(last, "[+]webhooks ok") && strings.Contains(last, "[-]register failed")
	})
	err := w.Create(t.Context(), build.Claim("team", "early").Pool("p").Length(32).Obj())
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("before it is ready: got %v, want a request to try again", err)
	}
	complete.ResourceVersion = ""
	suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	role.Rules = complete.Rules
	suite.Must(t, w.Update(t.Context(), role))
	suite.Must(t, <-started)
	suite.Must(t, w.Create(t.Context(), build.Claim("team", "later").Pool("p").Length(32).Obj()))
	suite.Must(t, w.Managers[1].Start(t.Context()))
}

// readyz returns the readiness of a replica, check by check.
func readyz(ctx context.Context, m *cluster.Manager) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.ProbeAddress+"/readyz?verbose", nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	body, err := io.ReadAll(response.Body)
	return fmt.Sprint(response.StatusCode, string(body), errors.Join(err, response.Body.Close()))
}

// losesTheLease gives the lease to another holder, for long: the leader ends and is started again,
// no replica reconciles, and both replicas answer.
func (w *world) losesTheLease(t *testing.T) {
	ctx := t.Context()
	for _, m := range w.Managers {
		m.Args = append(m.Args, "--leader-elect-lease-duration=2s")
		suite.Must(t, m.Restart(ctx))
	}
	pool, waits := build.Pool("late").CIDR("10.200.0.0/24").Obj(), build.Claim("team", "waits").Pool("late").Length(32).Obj()
	suite.Must(t, w.Create(ctx, waits))

	leader := w.Leader()
	w.writeLease(t, "somebody")
	w.Await("the leader ends", func(context.Context) bool { return !leader.Running() })
	suite.Must(t, leader.Start(ctx)) // as a kubelet does
	suite.Must(t, w.Create(ctx, pool))
	for i := range 40 {
		claim := build.Claim("team", fmt.Sprintf("without-leader-%d", i)).Pool("p").Length(32).Obj()
		suite.Must(t, w.Create(ctx, claim))
		if claim.Status.Phase != v1alpha1.ClaimBound {
			t.Errorf("%s is %s while no replica leads", claim.Name, claim.Status.Phase)
		}
	}
	suite.Must(t, w.Get(ctx, client.ObjectKeyFromObject(pool), pool))
	suite.Must(t, w.Get(ctx, client.ObjectKeyFromObject(waits), waits))
	if pool.Status.Phase == v1alpha1.PoolReady || waits.Status.Phase == v1alpha1.ClaimBound {
		t.Errorf("while no replica leads the new pool is %s, and the claim that waits for it %s", pool.Status.Phase, waits.Status.Phase)
	}

	w.writeLease(t, "")
	w.Bound(waits)
	for _, m := range w.Managers {
		if !m.Running() {
			t.Errorf("%s has ended", m.Name)
		}
	}
}

// writeLease gives the lease to a holder for an hour; to none if that is empty.
func (w *world) writeLease(t *testing.T, holder string) {
	t.Helper()
	suite.Must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		list := &coordinationv1.LeaseList{}
		if err := w.List(t.Context(), list, client.InNamespace(cluster.Namespace)); err != nil {
			return err
		}
		lease, now := &list.Items[0], metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, new(int32(3600)), &now
		return w.Update(t.Context(), lease)
	}))
}
