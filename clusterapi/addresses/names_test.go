package addresses

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestClaimNameIsValid(t *testing.T) {
	long := strings.Repeat("a", 250)
	for name, test := range map[string]struct {
		owner, instance, device string
		want                    string
	}{
		"as it is":                  {owner: "web", device: "eth0", want: "web-eth0-1"},
		"with an instance":          {owner: "pool", instance: "i-1", device: "eth0", want: "pool-i-1-eth0-1"},
		"with a point":              {owner: "web", device: "bond0.100", want: "web-bond0.100-1"},
		"with other characters":     {owner: "web", device: "aZ09_z", want: "web-az09-z-1-64f6ec8efb"},
		"too long":                  {owner: long, device: "eth0", want: long[:242] + "-791bb3595a"},
		"too long, another device":  {owner: long, device: "eth1", want: long[:242] + "-a33703c7c8"},
		"cut at the end of a label": {owner: long[:241] + ".bbbbbbbbbb", device: "eth0", want: long[:241] + "-7ac93d2cc3"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Machine{Owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: test.owner}}, Instance: test.instance}
			got := m.claimName(test.device, 1)
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
				t.Errorf("%s: %q", got, problems)
			}
		})
	}
}

func TestInstanceLabelIsValid(t *testing.T) {
	long := strings.Repeat("a", 70)
	for instance, want := range map[string]string{
		"":                     "",
		"i-1":                  "i-1",
		"a/b":                  "a-b-c14cddc033",
		"/":                    "8a5edab282",
		long:                   long[:52] + "-6bd5e50348",
		long[:51] + "/" + long: long[:51] + "-81ebe29386",
	} {
		got := (&Machine{Instance: instance}).instanceLabel()
		if got != want {
			t.Errorf("%s: got %s, want %s", instance, got, want)
		}
		if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
			t.Errorf("%s: %q", got, problems)
		}
	}
}
