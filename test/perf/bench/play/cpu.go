package play

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// tick is the unit of CPU time in /proc, on all systems that have it.
const tick = 10 * time.Millisecond

// cpuTimes returns the time that the parts have used so far, by name; empty if the
// system does not report it.
func (w *World) cpuTimes() map[string]time.Duration {
	pids := map[string][]int{
		"apiserver": {w.cluster.APIServer.PID()},
		"etcd":      {w.cluster.Etcd.PID()},
		"clients":   {os.Getpid()},

		"controller-manager": {w.cluster.ControllerManager.PID()},
	}
	for _, m := range w.cluster.Managers {
		if m.Running() {
			pids["managers"] = append(pids["managers"], m.PID())
		}
	}
	times := map[string]time.Duration{}
	for name, partPIDs := range pids {
		for _, pid := range partPIDs {
			if used, ok := cpuTime(pid); ok {
				times[name] += used
			}
		}
	}
	return times
}

// cpuTime returns the time that a process has used so far, in user and system mode: fields 14
// and 15 of /proc/PID/stat (proc_pid_stat(5)).
func cpuTime(pid int) (time.Duration, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	_, after, _ := strings.Cut(string(stat), ") ") // behind the name, which may have blanks
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, false
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, err == nil && err2 == nil
}

// spent returns the time that the parts have used since, in milliseconds for each request.
func (w *World) spent(since map[string]time.Duration, requests int) map[string]float64 {
	each := map[string]float64{}
	for name, now := range w.cpuTimes() {
		if before, ok := since[name]; ok && requests > 0 {
			each[name] = float64((now - before).Microseconds()) / 1000 / float64(requests)
		}
	}
	return each
}

const (
	// restful bounds the time that the parts together use when they are at rest, measured
	// for so long at a time; awaited for a minute at most.
	restful     = 150 * time.Millisecond
	restfulLook = 500 * time.Millisecond
	restfulWait = time.Minute
)

// awaitIdle waits until the parts have done the work that they do by themselves: replicas
// that have just become ready still list objects that hand out nothing, which takes the API
// server longer with more objects.
func (w *World) awaitIdle(ctx context.Context) error {
	before := w.cpuTimes()
	err := wait.PollUntilContextTimeout(ctx, restfulLook, restfulWait, false, func(context.Context) (bool, error) {
		now, used := w.cpuTimes(), time.Duration(0)
		for name := range now {
			used += now[name] - before[name]
		}
		before = now
		return used <= restful, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		w.say("the machine is still busy after %v", restfulWait)
		return nil
	}
	return err
}

// newToken makes an account with all rights, and returns a token of it.
func (w *World) newToken(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "bench"}}
	if err := w.k8s.Create(ctx, account); err != nil {
		return "", err
	}
	binding := build.ClusterBinding("bench", "cluster-admin", build.ServiceAccount(account.Namespace, account.Name))
	if err := w.k8s.Create(ctx, binding); err != nil {
		return "", err
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 3600))}}
	if err := w.k8s.SubResource("token").Create(ctx, account, token); err != nil {
		return "", fmt.Errorf("requesting a token: %w", err)
	}
	return token.Status.Token, nil
}

// askManager returns the answer of a manager at its address for metrics, whose certificate it
// signs itself.
func (w *World) askManager(ctx context.Context, m *cluster.Manager, path string) ([]byte, error) {
	as := &rest.Config{Host: "https://" + m.MetricsAddress, BearerToken: w.token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := rest.HTTPClientFor(as)
	if err != nil {
		return nil, err
	}
	return (&wire{host: as.Host, http: client}).do(ctx, http.MethodGet, path, nil)
}

// metrics returns the metrics of a manager, by name and labels as they are written.
func (w *World) metrics(ctx context.Context, m *cluster.Manager) (map[string]float64, error) {
	text, err := w.askManager(ctx, m, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", m.Name, err)
	}
	return readMetrics(text), nil
}

func readMetrics(text []byte) map[string]float64 {
	found := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if space := strings.LastIndexByte(line, ' '); space > 0 && line[0] != '#' {
			if value, err := strconv.ParseFloat(line[space+1:], 64); err == nil {
				found[line[:space]] = value
			}
		}
	}
	return found
}

// checkRollbacks returns an error if a manager listed all objects of a kind again because it took the
// store for an earlier one: nothing restores etcd here.
func (w *World) checkRollbacks(ctx context.Context) error {
	for _, m := range w.cluster.Managers {
		if !m.Running() {
			continue
		}
		found, err := w.metrics(ctx, m)
		if err != nil {
			return err
		}
		if err := judgeRollbacks(found); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

// judgeRollbacks returns an error if metrics of a manager report a store that went back, or report nothing.
func judgeRollbacks(found map[string]float64) error {
	if _, isKnown := found[metrics.StoreRollbacks+`{kind="IPAllocation"}`]; !isKnown {
		return fmt.Errorf("%s is not reported", metrics.StoreRollbacks)
	}
	for name, count := range found {
		if strings.HasPrefix(name, metrics.StoreRollbacks) && count > 0 {
			return fmt.Errorf("%s is %v, and must be 0", name, count)
		}
	}
	return nil
}

// leader returns the manager that leads; nil if none reports that it does.
func (w *World) leader(ctx context.Context) (*cluster.Manager, error) {
	for _, m := range w.cluster.Managers {
		if !m.Running() {
			continue
		}
		found, err := w.metrics(ctx, m)
		if err != nil {
			return nil, err
		}
		if found[`leader_election_master_status{name="cadastre.ipam.cadastre.dev"}`] == 1 {
			return m, nil
		}
	}
	return nil, nil
}
