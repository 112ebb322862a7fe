package convert

import (
	"encoding/json"
	"reflect"
	"testing"

	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestClusterIsReadFromAnyDecoder(t *testing.T) {
	const text = `{"metadata": {"name": "prod", "labels": {"a": "b"}}, "spec": {
		"clusterNetwork": {"pods": {"cidrBlocks": ["10.4.0.0/16"]}, "services": {"cidrBlocks": ["10.5.0.0/20"]}},
		"controlPlaneEndpoint": {"host": "10.6.0.7", "port": 6443},
		"topology": {"variables": [{"name": "vip", "value": "10.6.0.7"}]}}}`
	want := Cluster{
		Name: ipam.Name{Name: "prod"}, Labels: map[string]string{"a": "b"}, Pods: []string{"10.4.0.0/16"}, Services: []string{"10.5.0.0/20"},
		Host: "10.6.0.7", Port: 6443, Variables: map[string]any{"vip": "10.6.0.7"},
	}
	for name, decode := range map[string]func([]byte, *map[string]any) error{
		"integers are float64": func(text []byte, into *map[string]any) error { return json.Unmarshal(text, into) },
		"integers are int64":   func(text []byte, into *map[string]any) error { return k8sjson.Unmarshal(text, into) },
	} {
		var object map[string]any
		if err := decode([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if got := ClusterOf(want.Name, object); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestClusterIsEnabledByItsLabelOrThatOfItsNamespace(t *testing.T) {
	const enabled, disabled = v1alpha1.ClusterNetworksEnabled, v1alpha1.ClusterNetworksDisabled
	label := func(value string) map[string]string {
		if value == "" {
			return nil
		}
		return map[string]string{v1alpha1.LabelClusterNetworks: value}
	}
	for _, test := range []struct {
		cluster, namespace string
		want               bool
	}{
		{"", "", false}, {"", enabled, true}, {"", disabled, false},
		{enabled, "", true}, {enabled, disabled, true},
		{disabled, "", false}, {disabled, enabled, false},
		{"typo", "", false}, {"typo", enabled, true}, {"", "typo", false},
	} {
		if got := (Cluster{Labels: label(test.cluster)}).IsEnabled(label(test.namespace)); got != test.want {
			t.Errorf("a Cluster with %q in a Namespace with %q: got %v", test.cluster, test.namespace, got)
		}
	}
}

func TestClusterUsesBlocksThatItHas(t *testing.T) {
	cluster := Cluster{Pods: []string{"10.4.0.0/16", ""}, Host: "10.6.0.7"}
	for cidr, want := range map[string]bool{"10.4.0.0/16": true, "10.6.0.7/32": true, "10.5.0.0/16": false, "10.4.0.1/16": false, "": false} {
		claim := ClusterNetwork{Purpose: PurposePods}.Claim(ipam.Name{Name: "prod"})
		if claim.Spec.CIDR = cidr; cluster.Uses(claim) != want {
			t.Errorf("the claim of %q is used: %v", cidr, !want)
		}
	}
}
