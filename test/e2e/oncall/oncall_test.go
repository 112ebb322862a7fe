package oncall

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	alerts "github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// world holds a cluster with an account that may read metrics.
type world struct {
	*suite.World
	alerts *alerts.Alerts
	// token belongs to an account with the role cadastre-metrics-reader.
	token string
}

func TestOnCall(t *testing.T) {
	w := &world{World: suite.Start(t, cluster.Options{Managers: 2})}
	var err error
	w.alerts, err = alerts.ReadAlerts(root)
	suite.Must(t, err)
	w.token = w.Account("prometheus")
	w.Created(build.ClusterBinding("prometheus", "cadastre-metrics-reader", build.ServiceAccount("default", "prometheus")))
	worldFor := func(t *testing.T) *world {
		testWorld := *w
		testWorld.World = w.For(t)
		return &testWorld
	}
	suite.Steps(t, worldFor,
		suite.Step[*world]{Name: "metrics are for accounts that may get them", Run: (*world).scrapes},
		suite.Step[*world]{Name: "a pool fills up, and is mended", Run: (*world).poolFillsUp},
		suite.Step[*world]{Name: "a missing policy raises an alert", Run: (*world).policyIsMissing},
		suite.Step[*world]{Name: "a scrape is as promtool wants it", Run: (*world).lint},
		suite.Step[*world]{Name: "the metrics of others are as alerts and dashboards read them", Run: (*world).foreign},
	)
}

func (w *world) scrapes() {
	for _, c := range []struct {
		who, token string
		want       int
	}{
		{"nobody", "", http.StatusUnauthorized},
		{"an account without the role", w.Account("plain-account"), http.StatusForbidden},
		{"an account with the role", w.token, http.StatusOK},
	} {
		if code, answer := w.Diagnostics(0, "/metrics", c.token); code != c.want {
			w.Errorf("a scrape by %s is answered with %d, want %d: %s", c.who, code, c.want, answer)
		}
	}
}

// poolFillsUp plays the story of a person on call. The pool has 64 addresses, of which one tenant
// takes nearly all.
func (w *world) poolFillsUp() {
	w.Namespace("modest")
	w.Namespace("greedy")
	w.Pools(build.Pool("edge").CIDR("10.0.0.0/26").Obj())
	w.claims("modest", 0, 4)
	calm := w.settled(60)
	w.claims("greedy", 0, 58)
	full := w.settled(2)

	page := w.runbook("CadastrePoolNearlyFull")
	page.values["POOL"] = "edge"
	page.run("kubectl ipam pools")
	who := strings.Fields(page.run("uniq -c"))
	if len(who) < 4 || who[0] != "58" || who[1] != "greedy" {
		w.Fatalf("the runbook finds %q, want that greedy has 58", who)
	}
	if tree := page.run("kubectl ipam tree"); !strings.Contains(tree, "greedy/claim-57") {
		w.Errorf("the tree does not show the claims of greedy:\n%s", tree)
	}
	page.values["LIMIT"] = "48"
	page.run("kubectl patch ippool")
	page.values["NAMESPACE"] = "greedy"
	if list := page.run("kubectl get ipclaims"); !strings.Contains(list, "claim-57") {
		w.Errorf("the list does not show the claims of greedy:\n%s", list)
	}
	for n := range 16 {
		page.values["CLAIM"] = fmt.Sprintf("claim-%d", 57-n)
		page.run("kubectl ipam release")
	}
	mended := w.settled(18)

	w.fires("CadastrePoolNearlyFull", map[string]string{"severity": "warning", "pool": "edge"}, calm, full, mended)
	w.claims("greedy", 100, 6) // up to its limit
	if err := w.Create(w.Context(), claim("greedy", 106)); !apierrors.IsForbidden(err) {
		w.Errorf("beyond its limit the tenant is answered %v, want 403", err)
	}
}

func claim(namespace string, n int) *v1alpha1.IPClaim {
	return build.Claim(namespace, fmt.Sprintf("claim-%d", n)).Pool("edge").Length(32).Obj()
}

func (w *world) claims(namespace string, from, count int) {
	w.Helper()
	for n := range count {
		w.Created(claim(namespace, from+n))
	}
}

// settled records when all replicas export that so many addresses of the pool are left, that each
// claim is counted as Bound, and that each record is known to be claimed.
func (w *world) settled(available float64) moment {
	w.Helper()
	var now moment
	w.Await(fmt.Sprintf("%g addresses are left", available), func(context.Context) bool {
		now = w.recorded()
		for replica := range w.Managers {
			instance := fmt.Sprintf("replica-%d", replica)
			if now[series(metrics.PoolAvailable, map[string]string{"pool": "edge", "instance": instance})] != available ||
				now[series(metrics.PoolAllocations, map[string]string{"pool": "edge", "state": "bound", "instance": instance})] != 64-available ||
				now[series(metrics.Claims, map[string]string{"kind": "IPClaim", "phase": "Bound", "reason": "Bound", "instance": instance})] != 64-available {
				return false
			}
		}
		return true
	})
	return now
}

// fires expects that an alert fires at the second of three moments, of which each lasts twenty
// minutes, and not at the first and the last; and that no other alert ever does.
func (w *world) fires(alert string, labels map[string]string, moments ...moment) {
	w.Helper()
	type test = map[string]any
	var tests []test
	for _, rule := range w.alerts.All {
		for _, at := range []string{"19m", "35m", "59m"} {
			expected := []test{}
			if rule.Alert == alert && at == "35m" {
				expected = append(expected, test{"exp_labels": labels, "exp_annotations": map[string]string{
					"summary":     "Pool edge has 3.125% of its addresses left.",
					"description": rule.Annotations["description"],
					"runbook_url": rule.Annotations["runbook_url"],
				}})
			}
			tests = append(tests, test{"alertname": rule.Alert, "eval_time": at, "exp_alerts": expected})
		}
	}
	file, err := yaml.Marshal(test{
		"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m",
		"tests": []test{{"interval": "1m", "input_series": input(20, moments...), "alert_rule_test": tests}},
	})
	suite.Must(w, err)
	if err := w.alerts.Test(w.TB.(*testing.T).TempDir(), file); err != nil {
		w.Error(err)
	}
}

// policyIsMissing deletes the binding of a policy.
func (w *world) policyIsMissing() {
	const policy = "cadastre-allocations"
	protected := func(want float64) func(context.Context) bool {
		return func(context.Context) bool {
			now := w.recorded()
			for replica := range w.Managers {
				value, ok := now[series(metrics.Protected, map[string]string{"policy": policy, "instance": fmt.Sprintf("replica-%d", replica)})]
				if !ok || value != want {
					return false
				}
			}
			return true
		}
	}
	w.Await("all replicas report that the register is protected", protected(1))
	w.RunKubectl("delete", strings.TrimSpace(w.RunKubectl("get", "validatingadmissionpolicybinding", policy, "-o", "name")))
	w.Await("all replicas report that it is not", protected(0))
}

// lint checks a scrape after a release, a refusal and a claim that waits.
func (w *world) lint() {
	w.Created(build.Claim("modest", "waits").Class("missing").Length(32).Obj())
	w.Deleted(&v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "modest", Name: "claim-0"}})
	w.Await("a release is counted, and a claim that waits", func(context.Context) bool {
		released, waits := 0.0, 0.0
		for replica := range w.Managers {
			instance := fmt.Sprintf("replica-%d", replica)
			now := w.recorded()
			released += now[series(metrics.Releases, map[string]string{"reason": "holder_deleted", "instance": instance})]
			waits += now[series(metrics.Waiting, map[string]string{"reason": "missing", "instance": instance})]
		}
		return released >= 17 && waits == float64(len(w.Managers))
	})
	for replica := range w.Managers {
		if err := w.alerts.CheckMetrics(w.scrape(replica)); err != nil {
			w.Error(err)
		}
	}
}
