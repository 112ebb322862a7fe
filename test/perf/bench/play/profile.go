package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// mayProfile grants the operator's own account, in whose name the profiles are requested,
// the right to get them.
func (w *World) mayProfile(ctx context.Context) error {
	const name = "bench-profiles"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/pprof/*"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: cluster.Namespace, Name: cluster.ServiceAccount}},
	}
	admin, err := client.New(w.cluster.Config(), client.Options{})
	if err != nil {
		return err
	}
	return errors.Join(admin.Create(ctx, role), admin.Create(ctx, binding))
}

// profile takes profiles of the API server and of the manager while claims are
// created.
func (w *World) profile(ctx context.Context) error {
	if w.options.Profile == "" {
		return nil
	}
	if err := os.MkdirAll(w.options.Profile, 0o755); err != nil {
		return err
	}
	if err := w.mayProfile(ctx); err != nil {
		return err
	}
	if err := w.take(ctx, "/metrics", "metrics-before"); err != nil {
		return err
	}
	if err := w.idle(ctx); err != nil {
		return err
	}
	var taking errgroup.Group
	taking.Go(func() error {
		return w.measure(ctx, []contender{byPool("by-pool")}, plan{closed(8), load.Limit{For: 14 * time.Second}, 1, 0})
	})
	for _, takeProfile := range []func(context.Context, string, string) error{w.take, w.takeOfManager} {
		taking.Go(func() error { return takeProfile(ctx, "/debug/pprof/profile?seconds=10", "cpu") })
	}
	if err := taking.Wait(); err != nil {
		return err
	}
	for _, name := range []string{"allocs", "mutex", "heap"} {
		if err := w.take(ctx, "/debug/pprof/"+name, name); err != nil {
			return err
		}
		if err := w.takeOfManager(ctx, "/debug/pprof/"+name, name); err != nil {
			return err
		}
	}
	return w.take(ctx, "/metrics", "metrics-after")
}

// idle reports the time that the parts use without requests.
func (w *World) idle(ctx context.Context) error {
	const long = 4 // seconds
	before := w.cpuTimes()
	timer := time.NewTimer(long * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	for part, used := range w.spent(before, long) {
		w.say("idle     %s: %.0f ms of CPU a second", part, used)
	}
	return ctx.Err()
}

// take saves the answer of the API server.
func (w *World) take(ctx context.Context, path, name string) error {
	answer, err := w.watch.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.options.Profile, "apiserver."+name), answer, 0o644)
}

// takeOfManager saves the answer of the first manager, which has a self-signed certificate.
func (w *World) takeOfManager(ctx context.Context, path, name string) error {
	account, err := w.cluster.OperatorConfig(ctx)
	if err != nil {
		return err
	}
	as := &rest.Config{Host: "https://" + w.cluster.Managers[0].MetricsAddress, BearerToken: account.BearerToken}
	as.Insecure = true
	asking, err := rest.HTTPClientFor(as)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, as.Host+path, nil)
	if err != nil {
		return err
	}
	response, err := asking.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of the manager: %s", path, response.Status)
	}
	return os.WriteFile(filepath.Join(w.options.Profile, "manager."+name), answer, 0o644)
}
