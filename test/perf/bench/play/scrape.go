package play

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// scraper reads the metrics of managers, under an account that can.
type scraper struct {
	token string
	http  http.Client
}

func newScraper(ctx context.Context, w *World) (*scraper, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "bench"}}
	if err := w.k8s.Create(ctx, account); err != nil {
		return nil, err
	}
	err := w.k8s.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	})
	if err != nil {
		return nil, err
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 3600))}}
	if err := w.k8s.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("requesting a token: %w", err)
	}
	s := &scraper{token: token.Status.Token}
	// A manager signs the certificate of its metrics itself.
	s.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	return s, nil
}

// metrics holds the metrics of a manager, by name and labels as they are written.
type metrics map[string]float64

func (s *scraper) fetch(ctx context.Context, m *cluster.Manager) (metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.MetricsAddress+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of %s: %s", m.Name, response.Status)
	}
	return readMetrics(text), nil
}

func readMetrics(text []byte) metrics {
	found := metrics{}
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

// leader returns the manager that leads; nil if none reports that it does.
func (w *World) leader(ctx context.Context) (*cluster.Manager, error) {
	for _, m := range w.cluster.Managers {
		if !m.Running() {
			continue
		}
		found, err := w.scrape.fetch(ctx, m)
		if err != nil {
			return nil, err
		}
		if found[`leader_election_master_status{name="cadastre.ipam.cadastre.dev"}`] == 1 {
			return m, nil
		}
	}
	return nil, nil
}
