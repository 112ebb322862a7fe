package convert

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// networksOf returns the networks of a Cluster as one line each: its purpose and index, class, length,
// value, port and source.
func networksOf(t *testing.T, c Cluster, namespace map[string]string) (string, []string, string) {
	t.Helper()
	networks, warnings, errs := c.Networks(namespace)
	var lines []string
	for _, n := range networks {
		if len(errs) == 0 && (n.Value != "") != n.Block.IsValid() {
			t.Errorf("%s has the value %q and the block %s", n.Identity("c"), n.Value, n.Block)
		}
		parts := []string{strings.TrimPrefix(n.Identity("c"), "c/"), n.Class, n.Value, string(n.SameAs)}
		if n.Length != ipam.NoLength {
			parts[1] += "/" + strings.TrimLeft(n.Text[strings.LastIndex(n.Text, "/")+1:], "/")
		}
		lines = append(lines, strings.TrimRight(strings.Join(parts, " "), " "))
	}
	text := ""
	if len(errs) > 0 {
		text = errs.ToAggregate().Error()
	}
	return strings.Join(lines, "; "), warnings, text
}

func TestNetworksOfAnnotations(t *testing.T) {
	pods, services, endpoint, variables := v1alpha1.AnnotationPods, v1alpha1.AnnotationServices, v1alpha1.AnnotationControlPlaneEndpoint, v1alpha1.AnnotationVariables
	topology := map[string]any{}
	var sixteen []string
	for i := range 16 {
		sixteen = append(sixteen, fmt.Sprintf("v%d=c", i))
	}
	for name, test := range map[string]struct {
		cluster   Cluster
		namespace map[string]string
		want      string
		err       string // a part of it
		warning   string
	}{
		"dual stack": {
			cluster: Cluster{Annotations: map[string]string{pods: "pod-networks/20 , pod-networks-v6", services: "service-networks"}},
			want:    "pods/0 pod-networks/20; pods/1 pod-networks-v6; services/0 service-networks",
		},
		"defaults of the Namespace, one of them overridden": {
			cluster:   Cluster{Annotations: map[string]string{services: "own", pods: ""}},
			namespace: map[string]string{pods: "p", services: "s", endpoint: "vips"},
			want:      "services/0 own; control-plane-endpoint/0 vips",
		},
		"the longest length": {
			cluster: Cluster{Annotations: map[string]string{endpoint: "vips/128"}},
			want:    "control-plane-endpoint/0 vips/128",
		},
		"the most variables": {
			cluster: Cluster{Variables: topology, Annotations: map[string]string{variables: strings.Join(sixteen, ",")}},
			want:    "variable." + strings.ReplaceAll(strings.Join(sixteen, "; variable."), "=", "/0 "),
		},
		"stated values": {
			cluster: Cluster{Pods: []string{"10.4.0.0/16"}, Host: "10.6.0.7", Annotations: map[string]string{pods: "p/20", endpoint: "vips:443"}},
			want:    "pods/0 p/20 10.4.0.0/16; control-plane-endpoint/0 vips 10.6.0.7",
		},
		"variables": {
			cluster: Cluster{Variables: map[string]any{"ntp": "10.6.0.9"}, Annotations: map[string]string{variables: "lbRange=lb-ranges/28, ntp=vips"}},
			want:    "variable.lbRange/0 lb-ranges/28; variable.ntp/0 vips 10.6.0.9",
		},
		"an endpoint of a variable": {
			cluster: Cluster{Variables: topology, Annotations: map[string]string{variables: "vip=vips", endpoint: "variable:vip:6443"}},
			want:    "variable.vip/0 vips; control-plane-endpoint/0   variable.vip",
		},
		"an endpoint of a variable that is stated": {
			cluster: Cluster{Variables: map[string]any{"vip": "10.6.0.7"}, Annotations: map[string]string{variables: "vip=vips", endpoint: "variable:vip"}},
			want:    "variable.vip/0 vips 10.6.0.7; control-plane-endpoint/0  10.6.0.7 variable.vip",
		},
		"a variable of an endpoint that is stated": {
			cluster: Cluster{Host: "10.6.0.7", Variables: topology, Annotations: map[string]string{variables: "vip=vips", endpoint: "variable:vip"}},
			want:    "variable.vip/0 vips 10.6.0.7; control-plane-endpoint/0  10.6.0.7 variable.vip",
		},
		"a host that is a name": {
			cluster: Cluster{Host: "api.example.com", Annotations: map[string]string{endpoint: "vips"}},
			warning: "is not an IP address",
		},
		"defaults for topologies": {
			cluster:   Cluster{},
			namespace: map[string]string{pods: "p", variables: "vip=vips", endpoint: "variable:vip"},
			want:      "pods/0 p", warning: "Clusters with a spec.topology",
		},
		"nothing asked":               {cluster: Cluster{}, err: "has no effect without a class"},
		"three classes":               {cluster: Cluster{Annotations: map[string]string{pods: "a,b,c"}}, err: "one for each address family"},
		"no class":                    {cluster: Cluster{Annotations: map[string]string{pods: "a,"}}, err: `metadata.annotations[ipam.cadastre.dev/pods]: Invalid value: ""`},
		"no length":                   {cluster: Cluster{Annotations: map[string]string{pods: "a/x"}}, err: "no valid prefix length"},
		"a length beyond IPv6":        {cluster: Cluster{Annotations: map[string]string{pods: "a/129"}}, err: "no valid prefix length"},
		"fewer blocks than classes":   {cluster: Cluster{Pods: []string{"10.0.0.0/16"}, Annotations: map[string]string{pods: "a,b"}}, err: "has 1 block where metadata.annotations[ipam.cadastre.dev/pods] names 2 classes"},
		"a block with host bits":      {cluster: Cluster{Pods: []string{"10.0.0.1/16"}, Annotations: map[string]string{pods: "a"}}, err: `spec.clusterNetwork.pods.cidrBlocks[0]: Invalid value: "10.0.0.1/16"`},
		"no topology":                 {cluster: Cluster{Annotations: map[string]string{variables: "a=b"}}, err: "has no spec.topology"},
		"a variable without class":    {cluster: Cluster{Variables: topology, Annotations: map[string]string{variables: "vip"}}, err: "names no variable and class"},
		"a variable twice":            {cluster: Cluster{Variables: topology, Annotations: map[string]string{variables: "a=b,a=c"}}, err: "for the second time"},
		"a variable that is a number": {cluster: Cluster{Variables: map[string]any{"a": 1.0}, Annotations: map[string]string{variables: "a=b"}}, err: "is not a string"},
		"many variables":              {cluster: Cluster{Variables: topology, Annotations: map[string]string{variables: strings.Repeat("a=b,", 17)}}, err: "more than 16"},
		"a port that is none":         {cluster: Cluster{Annotations: map[string]string{endpoint: "vips:0"}}, err: "no valid port"},
		"an endpoint of no variable": {
			cluster: Cluster{Variables: topology, Annotations: map[string]string{pods: "p", endpoint: "variable:vip:6443"}},
			want:    "pods/0 p", err: `add vip=<IPClass>`,
		},
		"an endpoint beside a variable": {cluster: Cluster{Host: "10.6.0.8", Variables: map[string]any{"vip": "10.6.0.7"}, Annotations: map[string]string{variables: "vip=v", endpoint: "variable:vip"}}, err: "differs from"},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := networksOf(t, test.cluster, test.namespace)
			if test.err == "" && (err != "" || got != test.want) {
				t.Errorf("got  %s, error %q\nwant %s", got, err, test.want)
			}
			if test.err != "" && (!strings.Contains(err, test.err) || test.want != "" && got != test.want) {
				t.Errorf("got  %s, error %q\nwant %s, error %q", got, err, test.want, test.err)
			}
			if warned := strings.Join(warnings, "\n"); !strings.Contains(warned, test.warning) || (warned != "") != (test.warning != "") {
				t.Errorf("got the warnings %q, want %q", warned, test.warning)
			}
		})
	}
}

func TestNotedNetworksAreLeftOut(t *testing.T) {
	const asked = "pods=10.4.0.0/16@a,pods=fd00::/56@b,services=10.5.0.0/20@c,services=fd01::/112@d"
	noted := ParseNetworks("pods=10.8.0.0/16@e,services=10.9.0.0/20@f")
	if got := FormatNetworks(WithoutNoted(ParseNetworks(asked), noted)); got != "pods=fd00::/56@b,services=fd01::/112@d" {
		t.Errorf("left are %s", got)
	}
	if got := FormatNetworks(WithoutNoted(ParseNetworks(asked), nil)); got != asked {
		t.Errorf("without noted ones, left are %s", got)
	}
}

func TestFilledNetworksAreReadAsWritten(t *testing.T) {
	const filled = "pods=10.4.0.0/16@a,pods=fd00::/56@b,services=10.5.0.0/20@c,variable.vip=10.6.0.7@d,variable.lb=10.7.0.0/28@e,control-plane-endpoint=10.6.0.7"
	networks := ParseNetworks(filled)
	if got := FormatNetworks(networks); got != filled {
		t.Errorf("got  %s\nwant %s", got, filled)
	}
	cluster := Cluster{
		Pods: []string{"10.4.0.0/16", "fd00::/56"}, Services: []string{"10.5.0.0/20"}, Host: "10.6.0.7",
		Variables: map[string]any{"vip": "10.6.0.7", "lb": "10.7.0.0/28"},
	}
	for _, n := range networks {
		if !cluster.Has(n) || (Cluster{Variables: map[string]any{"vip": 1}}).Has(n) {
			t.Errorf("%+v is not told from a Cluster without it", n)
		}
	}
	claim := networks[1].Claim(ipam.Name{Name: "prod"})
	if networks[1].Identity("prod") != "prod/pods/1" || ClusterOfClaim(claim) != "prod" || PurposeOfClaim(claim) != PurposePods {
		t.Errorf("the identity is %s", networks[1].Identity("prod"))
	}
	for _, forged := range []string{"", ",", "pods", "pods=", "pods=x@y", "nodes=10.0.0.0/8@a", strings.Repeat("pods,", 1000)} {
		if got := ParseNetworks(forged); len(got) > 0 {
			t.Errorf("%.20q is read as %+v", forged, got)
		}
	}
	if got := ParseNetworks(strings.Repeat("pods=10.4.0.0/16,", 1000)); len(got) > 21 {
		t.Errorf("%d networks are read", len(got))
	}
}

func TestClaimNamesAreUniqueLabels(t *testing.T) {
	variable := ClusterNetwork{Purpose: purposeVariable("Za_09")}
	if name := variable.ClaimName(ipam.Name{Name: "prod"}); !strings.HasPrefix(name, "prod-za-09-") {
		t.Errorf("the claim of variable Za_09 is %s", name)
	}
	seen := map[string]bool{}
	for _, cluster := range []string{"a", "a-pods", "a.b", strings.Repeat("c", 63), strings.Repeat("c", 62) + "d", strings.Repeat("c", 51) + "-" + strings.Repeat("d", 11)} {
		for _, purpose := range []NetworkPurpose{PurposePods, PurposeServices, PurposeEndpoint, purposeVariable("vip"), purposeVariable("VIP"), purposeVariable("ä_")} {
			for index := range 2 {
				for _, namespace := range []string{"one", "two"} {
					name := ClusterNetwork{Purpose: purpose, Index: index}.ClaimName(ipam.Name{Namespace: namespace, Name: cluster})
					if wrong := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...); len(wrong) > 0 || seen[name] {
						t.Errorf("%s %s %d: %s: %v, seen before: %v", cluster, purpose, index, name, wrong, seen[name])
					}
					seen[name] = true
				}
			}
		}
	}
}
