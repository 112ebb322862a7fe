package metrics

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// monitor holds the fields that ServiceMonitors and PodMonitors have in common.
type monitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		Endpoints           []endpoint           `json:"endpoints"`
		PodMetricsEndpoints []endpoint           `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type endpoint struct {
	Port            string          `json:"port"`
	Scheme          string          `json:"scheme"`
	Path            string          `json:"path"`
	BearerTokenFile string          `json:"bearerTokenFile"`
	Authorization   *authorization  `json:"authorization"`
	TLSConfig       map[string]bool `json:"tlsConfig"`
}

type authorization struct {
	Type        string                   `json:"type"`
	Credentials corev1.SecretKeySelector `json:"credentials"`
}

// decode reads the object of a kind from a file of manifests.
func decode[T any](t *testing.T, file, kind string) (obj T) {
	t.Helper()
	found := false
	for document := range strings.SplitSeq(read(t, file), "\n---\n") {
		var header metav1.TypeMeta
		must.Succeed(t, yaml.Unmarshal([]byte(document), &header))
		if header.Kind != kind {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &obj); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found = true
	}
	if !found {
		t.Fatalf("%s has no %s", file, kind)
	}
	return obj
}

func selects(t *testing.T, selector *metav1.LabelSelector, objectLabels map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	must.Succeed(t, err)
	return !s.Empty() && s.Matches(labels.Set(objectLabels))
}

// TestMonitorsFindTheReplicas follows the labels and ports from a monitor to the container.
func TestMonitorsFindTheReplicas(t *testing.T) {
	pod := decode[appsv1.Deployment](t, "config/manager/deployment.yaml", "Deployment").Spec.Template
	ports := map[string]int32{}
	for _, port := range pod.Spec.Containers[0].Ports {
		ports[port.Name] = port.ContainerPort
	}
	service := decode[corev1.Service](t, "config/prometheus/service-monitor/service.yaml", "Service")
	if !selects(t, &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, pod.Labels) {
		t.Errorf("the Service selects %v, and the pods have %v", service.Spec.Selector, pod.Labels)
	}
	if target := service.Spec.Ports[0].TargetPort.StrVal; ports[target] != 8443 {
		t.Errorf("the Service leads to the port %q of %v", target, ports)
	}
	byService := decode[monitor](t, "config/prometheus/service-monitor/service_monitor.yaml", "ServiceMonitor")
	if !selects(t, &byService.Spec.Selector, service.Labels) || byService.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name || byService.Namespace != service.Namespace {
		t.Errorf("the ServiceMonitor %+v does not find the Service %+v", byService, service)
	}
	byPod := decode[monitor](t, "config/prometheus/pod-monitor/pod_monitor.yaml", "PodMonitor")
	if !selects(t, &byPod.Spec.Selector, pod.Labels) || ports[byPod.Spec.PodMetricsEndpoints[0].Port] != 8443 {
		t.Errorf("the PodMonitor %+v does not find the pods", byPod)
	}
	for _, e := range append(byService.Spec.Endpoints, byPod.Spec.PodMetricsEndpoints...) {
		if e.Scheme != "https" || e.Path != "/metrics" || (e.BearerTokenFile == "") == (e.Authorization == nil) {
			t.Errorf("metrics are served over HTTPS, to accounts with a right: %+v", e)
		}
	}
}

// TestPodMonitorTokenCanReadMetrics follows its Secret to the role.
func TestPodMonitorTokenCanReadMetrics(t *testing.T) {
	const file = "config/prometheus/pod-monitor/credentials.yaml"
	credentials := decode[monitor](t, "config/prometheus/pod-monitor/pod_monitor.yaml", "PodMonitor").Spec.PodMetricsEndpoints[0].Authorization.Credentials
	secret, account, binding := decode[corev1.Secret](t, file, "Secret"), decode[corev1.ServiceAccount](t, file, "ServiceAccount"), decode[rbacv1.ClusterRoleBinding](t, file, "ClusterRoleBinding")
	role := decode[rbacv1.ClusterRole](t, "config/rbac/metrics_reader.yaml", "ClusterRole")
	switch {
	case credentials.Name != secret.Name || credentials.Key != corev1.ServiceAccountTokenKey || secret.Type != corev1.SecretTypeServiceAccountToken:
		t.Errorf("the PodMonitor reads %+v, and the Secret is %+v", credentials, secret)
	case secret.Annotations[corev1.ServiceAccountNameKey] != account.Name || binding.Subjects[0].Name != account.Name || binding.RoleRef.Name != role.Name:
		t.Error("Secret, account and role do not belong together")
	case len(role.Rules) != 1 || strings.Join(role.Rules[0].NonResourceURLs, " ") != "/metrics" || strings.Join(role.Rules[0].Verbs, " ") != "get":
		t.Errorf("the role allows %+v, and should allow to get /metrics alone", role.Rules)
	}
}

func TestNetworkPolicyAllowsMetrics(t *testing.T) {
	policy := decode[networkingv1.NetworkPolicy](t, "config/manager/network_policy.yaml", "NetworkPolicy")
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port.StrVal == "metrics" {
				return
			}
		}
	}
	t.Error("the NetworkPolicy does not let anybody reach the port metrics")
}

func TestPromtoolFindingsAreReported(t *testing.T) {
	const bad = "# HELP cadastre_frees Blocks.\n# TYPE cadastre_frees counter\ncadastre_frees 1\n"
	if err := alerts(t).CheckMetrics([]byte(bad)); err == nil || !strings.Contains(err.Error(), "_total") {
		t.Errorf("a counter whose name does not end in _total: %v", err)
	}
}
