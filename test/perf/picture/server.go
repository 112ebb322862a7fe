package picture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/perf/picture/draw"
)

// interval is how often Prometheus scrapes.
const interval = 10 * time.Second

// server is a Prometheus that runs.
type server struct {
	url  string
	stop func() error
}

// startServer starts a Prometheus that scrapes the replicas and the API server, with its data in
// a directory, and waits until it has done so once.
func startServer(ctx context.Context, running *cluster.Cluster, program, dir string) (*server, error) {
	token, err := account(ctx, running)
	if err != nil {
		return nil, err
	}
	config, err := yaml.Marshal(scraping(running, token))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	command := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches this process alone, which stops it
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%w: run make dashboard-pictures, which builds it", err)
	}
	s := &server{url: "http://" + address, stop: func() error {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return command.Wait()
	}}
	err = s.scraped(ctx)
	if err != nil {
		written, _ := os.ReadFile(log.Name())
		_ = s.stop()
		return nil, fmt.Errorf("%w\n%s", err, written)
	}
	return s, nil
}

// scraped waits until the last scrape of each target was answered.
func (s *server) scraped(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		up, err := s.now(ctx, "count(up == 1)", draw.Span{To: time.Now()})
		return err == nil && len(up) == 1 && up[0].Points[0].Value == replicas+1, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for Prometheus to scrape %d replicas and the API server: %w", replicas, err)
	}
	return nil
}

// account makes an account that may read metrics, and returns a token of it.
func account(ctx context.Context, running *cluster.Cluster) (string, error) {
	k8s, err := cluster.NewClient(running.Config())
	if err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "prometheus"}}
	if err := k8s.Create(ctx, account); err != nil {
		return "", err
	}
	err = k8s.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cadastre-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	})
	if err != nil {
		return "", err
	}
	token := &authenticationv1.TokenRequest{}
	err = k8s.SubResource("token").Create(ctx, account, token)
	return token.Status.Token, err
}

// scraping is the configuration of Prometheus.
func scraping(running *cluster.Cluster, token string) map[string]any {
	job := func(name string, targets ...map[string]any) map[string]any {
		return map[string]any{
			"job_name": name, "scheme": "https", "tls_config": map[string]any{"insecure_skip_verify": true},
			"authorization": map[string]any{"credentials": token}, "static_configs": targets,
		}
	}
	target := func(address, instance string) map[string]any {
		return map[string]any{"targets": []string{address}, "labels": map[string]string{"instance": instance}}
	}
	var all []map[string]any
	for i, manager := range running.Managers {
		all = append(all, target(manager.MetricsAddress, fmt.Sprintf("replica-%d", i+1)))
	}
	host := running.Config().Host
	if parsed, err := url.Parse(host); err == nil && parsed.Host != "" {
		host = parsed.Host
	}
	return map[string]any{
		"global":         map[string]any{"scrape_interval": interval.String()},
		"scrape_configs": []any{job("cadastre", all...), job("apiserver", target(host, "apiserver"))},
	}
}

// over is the answer to a query over a span of time.
func (s *server) over(ctx context.Context, query string, span draw.Span) ([]draw.Series, error) {
	return s.ask(ctx, "/api/v1/query_range", url.Values{
		"query": {query}, "start": {unix(span.From)}, "end": {unix(span.To)}, "step": {unixSeconds(span.Step.Seconds())},
	})
}

// now is the answer to a query at the end of a span of time.
func (s *server) now(ctx context.Context, query string, span draw.Span) ([]draw.Series, error) {
	return s.ask(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {unix(span.To)}})
}

func unix(at time.Time) string { return unixSeconds(float64(at.UnixMilli()) / 1000) }

func unixSeconds(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 3, 64) }

// answer of Prometheus' API.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric map[string]string
			Value  *sample
			Values []sample
		}
	}
}

// sample is the time in seconds and the value as text.
type sample [2]any

func (s sample) point() (draw.Point, error) {
	seconds, isNumber := s[0].(float64)
	text, isText := s[1].(string)
	if !isNumber || !isText {
		return draw.Point{}, fmt.Errorf("%v is no sample", s)
	}
	value, err := strconv.ParseFloat(text, 64)
	return draw.Point{At: time.UnixMilli(int64(seconds * 1000)), Value: value}, err
}

func (s *server) ask(ctx context.Context, path string, query url.Values) ([]draw.Series, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var got answer
	if err := json.Unmarshal(text, &got); err != nil || got.Status != "success" {
		return nil, fmt.Errorf("prometheus answers %s to %s: %.500s", response.Status, query.Get("query"), text)
	}
	var all []draw.Series
	for _, result := range got.Data.Result {
		series := draw.Series{Labels: result.Metric}
		if result.Value != nil {
			result.Values = []sample{*result.Value}
		}
		for _, value := range result.Values {
			point, err := value.point()
			if err != nil {
				return nil, err
			}
			if !math.IsNaN(point.Value) && !math.IsInf(point.Value, 0) { // a quantile of nothing
				series.Points = append(series.Points, point)
			}
		}
		if len(series.Points) > 0 {
			all = append(all, series)
		}
	}
	return all, nil
}
