package security

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// rendered returns the objects of a kustomization.
func rendered(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	objs, err := manifests.Decode([]byte(suite.Kustomized(t, dir)))
	suite.Must(t, err)
	if len(objs) < 20 {
		t.Fatalf("%s renders %d objects", dir, len(objs))
	}
	return objs
}

func TestManifestsAreSecure(t *testing.T) {
	for dir, want := range map[string]int{"config/default": 1, "config/overlays/cert-manager": 1, "config/overlays/clusterctl": 1, "config/overlays/hub-provisioner": 2} {
		t.Run(dir, func(t *testing.T) {
			deployments := 0
			for _, obj := range rendered(t, dir) {
				switch obj.GetKind() {
				case "Deployment":
					deployments++
					checkPod(t, &must.As[appsv1.Deployment](t, obj).Spec.Template.Spec)
				case "Namespace":
					if obj.GetLabels()["pod-security.kubernetes.io/enforce"] != "restricted" {
						t.Error("the namespace does not enforce restricted Pods")
					}
				case "MutatingWebhookConfiguration":
					for _, hook := range must.As[admissionregistrationv1.MutatingWebhookConfiguration](t, obj).Webhooks {
						checkTime(t, hook.Name, hook.TimeoutSeconds)
						checkClient(t, hook.Name, hook.ClientConfig)
					}
				case "ValidatingWebhookConfiguration":
					for _, hook := range must.As[admissionregistrationv1.ValidatingWebhookConfiguration](t, obj).Webhooks {
						checkTime(t, hook.Name, hook.TimeoutSeconds)
						checkClient(t, hook.Name, hook.ClientConfig)
					}
				}
			}
			if deployments != want {
				t.Errorf("%d Deployments, want %d", deployments, want)
			}
		})
	}
}

// checkTime fails if an admission may keep the API server waiting for long. The create of a Cluster
// can need several blocks.
func checkTime(t *testing.T, name string, seconds *int32) {
	t.Helper()
	most := int32(5)
	if strings.HasPrefix(name, "create") && strings.HasSuffix(name, ".cluster.ipam.cadastre.dev") {
		most = 15
	}
	if seconds == nil || *seconds > most {
		t.Errorf("%s may take more than %d s", name, most)
	}
}

// checkClient fails if a manifest owns fields that the operator injects.
func checkClient(t *testing.T, name string, config admissionregistrationv1.WebhookClientConfig) {
	t.Helper()
	if config.Service == nil || config.Service.Path != nil || len(config.CABundle) > 0 {
		t.Errorf("%s has a path or a bundle: %+v", name, config)
	}
}

// checkPod fails if the operator's Pod has more than it needs.
func checkPod(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	yes := func(b *bool) bool { return b != nil && *b }
	no := func(b *bool) bool { return b != nil && !*b }
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("it shares the host's namespaces")
	}
	s := pod.SecurityContext
	if s == nil || !yes(s.RunAsNonRoot) || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the Pod may run as root, or without seccomp: %+v", s)
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		s := c.SecurityContext
		if s == nil || !no(s.AllowPrivilegeEscalation) || !yes(s.ReadOnlyRootFilesystem) || yes(s.Privileged) ||
			s.Capabilities == nil || len(s.Capabilities.Add) > 0 || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s may write, escalate, or has capabilities: %+v", c.Name, s)
		}
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has no limit of memory", c.Name)
		}
		for _, arg := range c.Args {
			if strings.Contains(arg, "insecure") && !strings.HasSuffix(arg, ":=false}") { // clusterctl's default
				t.Errorf("%s runs with %s", c.Name, arg)
			}
		}
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			t.Errorf("it mounts %s of the host", v.HostPath.Path)
		}
	}
}
