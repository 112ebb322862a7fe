package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"

	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/operator"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/helm"
)

// TestOperatorAcceptsEveryChartFlag sets all flags to values that are not their defaults, and parses
// the arguments of the container.
func TestOperatorAcceptsEveryChartFlag(t *testing.T) {
	flags, want := map[string]any{}, map[string]string{}
	for _, flag := range Flags() {
		value := another(flag)
		want[flag.Name], flags[flag.Name] = value, value
		if kind := flag.Value.Type(); kind == "bool" || kind == "int" || kind == "Level" {
			flags[flag.Name] = json.RawMessage(value)
		}
	}
	text, err := json.Marshal(map[string]any{"flags": flags})
	must.Succeed(t, err)
	values := filepath.Join(t.TempDir(), "values.yaml") // numbers of a file are floating-point numbers
	must.Succeed(t, os.WriteFile(values, text, 0o600))
	taken := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	new(operator.Options).Bind(taken)
	logsv1.AddFlags(logs.NewOptions(), taken)
	deployment := the[appsv1.Deployment](t, rendered(t, "cadastre", "cadastre-system", "--values="+values), "Deployment")
	container := deployment.Spec.Template.Spec.Containers[0]
	must.Succeed(t, taken.Parse(container.Args))
	for name, value := range want {
		if flag := taken.Lookup(name); !flag.Changed || strings.Trim(flag.Value.String(), "[]") != value {
			t.Errorf("--%s is %s, want %s", name, flag.Value, value)
		}
	}
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	if ports["webhook"] != 1000002 || ports["metrics"] != 1234 || ports["probes"] != 1234 {
		t.Errorf("the container's ports are %v", ports)
	}
}

// another returns a value of a flag that is not its default.
func another(flag *pflag.Flag) string {
	switch kind := flag.Value.Type(); {
	case isAddress(flag.Name):
		return ":1234"
	case kind == "bool":
		return fmt.Sprint(flag.DefValue == "false")
	case kind == "duration":
		return "2m3s"
	case kind == "int":
		return "1000002" // YAML can read it as 1.000002e+06
	case kind == "Level":
		return "7"
	case flag.Name == "feature-gates":
		return "PoolRanges=true"
	case flag.Name == "vmodule":
		return "ledger=3"
	case strings.HasPrefix(flag.Name, "log-") && strings.HasSuffix(flag.Name, "-size"):
		return "3Mi"
	case flag.Name == "tls-curve-preferences":
		return "23"
	default:
		return "another"
	}
}

// the returns the only object of a kind.
func the[T any](t *testing.T, text, kind string) *T {
	t.Helper()
	objects, err := manifests.Decode([]byte(text))
	must.Succeed(t, err)
	i := slices.IndexFunc(objects, func(obj *unstructured.Unstructured) bool { return obj.GetKind() == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return must.As[T](t, objects[i])
}

// TestValuesChangeRenderedChart sets values, and looks for lines in the output.
func TestValuesChangeRenderedChart(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for _, c := range []struct {
		values []string
		// usual holds values that are set in both runs.
		usual     []string
		has, lost string
	}{
		{values: []string{"image.digest=" + digest}, has: "image: \"cadastre-manager@" + digest + "\"", lost: ":dev"},
		{values: []string{"image.tag="}, has: "image: \"cadastre-manager:v0.1.0\""},
		{values: []string{"replicas=3"}, has: "replicas: 3"},
		{values: []string{"priorityClassName=system-cluster-critical"}, has: `priorityClassName: "system-cluster-critical"`, lost: "kind: PriorityClass"},
		{values: []string{"priorityClassName="}, lost: "priorityClassName"},
		{values: []string{"crds.install=false"}, lost: "kind: CustomResourceDefinition"},
		{values: []string{"userRoles.create=false"}, has: "name: cadastre-manager", lost: "name: ipam-user"},
		{values: []string{"flowControl.enabled=false"}, lost: "kind: FlowSchema"},
		{values: []string{"replicas=1"}, has: "replicas: 1", lost: "kind: PodDisruptionBudget"},
		{values: []string{"podDisruptionBudget.enabled=false"}, lost: "kind: PodDisruptionBudget"},
		{values: []string{"podDisruptionBudget.minAvailable=50%"}, has: "minAvailable: 50%"},
		{values: []string{"networkPolicy.enabled=false"}, lost: "kind: NetworkPolicy"},
		{values: []string{"networkPolicy.apiServerCIDRs={192.0.2.10/32}"}, has: "cidr: \"192.0.2.10/32\"", lost: "- port: webhook\n    - port: metrics"},
		{values: []string{"serviceAccount.create=false"}, has: `serviceAccountName: "cadastre-controller-manager"`, lost: "kind: ServiceAccount\nmetadata"},
		{values: []string{"serviceAccount.annotations.a=b"}, has: "annotations:\n    a: b"},
		{usual: []string{"certManager.enabled=true"}, values: []string{"certManager.issuerRef.kind=ClusterIssuer", "certManager.issuerRef.name=corporate"}, has: "name: corporate", lost: "selfSigned"},
		{values: []string{"flags.leader-elect=null"}, lost: "--leader-elect"},
		{values: []string{"env[0].name=GOGC", "env[0].value=100"}, has: "- name: GOGC\n"},
		{values: []string{"topologySpread.whenUnsatisfiable=DoNotSchedule"}, has: "whenUnsatisfiable: DoNotSchedule"},
		{values: []string{"nodeSelector.disk=ssd"}, has: "nodeSelector:\n        disk: ssd"},
		{values: []string{"tolerations[0].key=x"}, has: "tolerations:\n        - key: x"},
		{values: []string{"affinity.nodeAffinity.a=b"}, has: "affinity:\n        nodeAffinity:"},
		{values: []string{"imagePullSecrets[0].name=registry"}, has: "imagePullSecrets:\n        - name: registry"},
		{values: []string{"podLabels.a=b"}, has: "control-plane: controller-manager\n        a: b"},
		{values: []string{"podAnnotations.a=b"}, has: "default-container: manager\n        a: b"},
		{values: []string{"extraVolumes[0].name=ca", "extraVolumeMounts[0].name=ca", "extraVolumeMounts[0].mountPath=/ca"}, has: "mountPath: /ca"},
		{values: []string{"resources.limits.memory=2Gi"}, has: "memory: 2Gi"},
		{values: []string{"metrics.serviceMonitor.enabled=true"}, has: "kind: ServiceMonitor"},
		{values: []string{"metrics.podMonitor.enabled=true"}, has: "kind: PodMonitor"},
		{values: []string{"metrics.alerts.enabled=true"}, has: "kind: PrometheusRule"},
		{values: []string{"dashboards.enabled=true"}, has: "kind: ConfigMap"},
		{usual: []string{"dashboards.enabled=true"}, values: []string{"dashboards.annotations.grafana_folder=Network"}, has: "  annotations:\n    grafana_folder: Network\n"},
		{usual: []string{"dashboards.enabled=true"}, values: []string{"dashboards.labels.team=network"}, has: "    team: network\n"},
		{usual: []string{"metrics.serviceMonitor.enabled=true"}, values: []string{"metrics.interval=15s"}, has: "\n    interval: \"15s\"\n"},
		{usual: []string{"metrics.podMonitor.enabled=true"}, values: []string{"metrics.interval=15s"}, has: "\n    interval: \"15s\"\n"},
		{usual: []string{"metrics.alerts.enabled=true"}, values: []string{"metrics.labels.release=monitoring"}, has: "    release: monitoring\n  name: cadastre\n"},
		{usual: []string{"metrics.podMonitor.enabled=true"}, values: []string{"metrics.labels.release=monitoring"}, has: "    release: monitoring\n  name: cadastre\n"},
		{usual: []string{east}, values: []string{"hubProvisioner.clusterName="}, lost: "--cluster-name"},
		{usual: []string{east}, values: []string{"hubProvisioner.kubeconfigSecret=north"}, has: `secretName: "north"`},
		{usual: []string{east}, values: []string{"hubProvisioner.classes={leased}"}, has: "  resourceNames:\n    - leased\n  resources:\n  - ipclasses\n  verbs:\n  - provision\n"},
		{usual: []string{east}, values: []string{"image.digest=" + digest}, has: "image: \"cadastre-manager@" + digest + "\"", lost: ":dev"},
	} {
		t.Run(strings.Join(c.values, ","), func(t *testing.T) {
			usual, out := rendered(t, "cadastre", "cadastre-system", c.usual...), rendered(t, "cadastre", "cadastre-system", append(c.usual, c.values...)...)
			if c.has != "" && (!strings.Contains(out, c.has) || c.lost == "" && strings.Contains(usual, c.has)) {
				t.Errorf("%q is not there, or without the value, too", c.has)
			}
			if c.lost != "" && (strings.Contains(out, c.lost) || !strings.Contains(usual, c.lost)) {
				t.Errorf("%q is rendered with the value, or not without it", c.lost)
			}
		})
	}
}

// TestInvalidValuesAreRejected expects the schema, or a template, to name the value.
func TestInvalidValuesAreRejected(t *testing.T) {
	for values, want := range map[string]string{
		"flags.nonsense=1":                "nonsense",
		"flags.operator-namespace=x":      "operator-namespace",
		"flags.workers=many":              "/flags/workers",
		"flags.orphan-grace=long":         "/flags/orphan-grace",
		"flags.health-addr=nowhere":       "/flags/health-addr",
		"replica=3":                       "replica",
		"replicas=-1":                     "/replicas",
		"image.pullPolicy=Sometimes":      "/image/pullPolicy",
		"image.digest=latest":             "/image/digest",
		"serviceAccount.name=":            "/serviceAccount/name",
		"topologySpread.topologyKey=null": "/topologySpread",
		"metrics.interval=often":          "/metrics/interval",
		"hubProvisioner.enabled=true":     "hubProvisioner.namespace is empty: set it",
		"hubProvisioner.clusterName=a/b":  "/hubProvisioner/clusterName",
		"metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true": "scraped twice: leave out one of them",
		"metrics.serviceMonitor.enabled=true,flags.insecure-diagnostics=true": "leave out one of them",
		"certManager.enabled=true,flags.webhook-cert-source=self-signed":      "leave out one of them",
	} {
		if out, err := attempt(t, "cadastre", "cadastre-system", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %.100s, %v, want an error that names %s", values, out, err, want)
		}
	}
}

// TestNotesWarnIfEveryPodMayCallWebhooks reads what helm prints after an installation.
func TestNotesWarnIfEveryPodMayCallWebhooks(t *testing.T) {
	program, err := helm.New(suite.ModuleRoot(t), t.TempDir())
	must.Succeed(t, err)
	for values, warns := range map[string]bool{
		"": true,
		"networkPolicy.apiServerCIDRs={192.0.2.10/32}":                             false,
		"networkPolicy.apiServerCIDRs={192.0.2.10/32},networkPolicy.enabled=false": true,
		"flags.webhook-client-ca=/ca.crt":                                          false,
	} {
		out, err := program.Run(t.Context(), "install", "cadastre", filepath.Join(suite.ModuleRoot(t), Directory), "--dry-run=client", "--set="+values)
		must.Succeed(t, err)
		_, notes, _ := strings.Cut(out, "\nNOTES:\n")
		if !strings.HasPrefix(notes, "Cadastre is installed") || strings.Contains(notes, "WARNING: every Pod") != warns {
			t.Errorf("%s: want a warning: %t, the notes are\n%s", values, warns, notes)
		}
	}
}

// TestNumericNamespaceIsQuoted expects that its name is quoted in each place in which it is the
// whole of a value.
func TestNumericNamespaceIsQuoted(t *testing.T) {
	objects, err := manifests.Decode([]byte(rendered(t, "1", "1e3", "--set-string=serviceAccount.name=2", "certManager.enabled=true")))
	must.Succeed(t, err)
	var find func(path string, value any)
	find = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				find(path+"."+key, inner)
			}
		case []any:
			for i, inner := range value {
				find(fmt.Sprint(path, ".", i), inner)
			}
		case float64, int64:
			if fmt.Sprint(value) == "1000" || strings.HasSuffix(path, "amespace") || strings.HasSuffix(path, ".name") {
				t.Errorf("%s is the number %v", path, value)
			}
		}
	}
	for _, obj := range objects {
		find(obj.GetKind()+" "+obj.GetName(), obj.Object)
	}
}
