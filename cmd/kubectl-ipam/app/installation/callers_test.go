package installation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

func policyOf(t *testing.T, spec string) networkingv1.NetworkPolicy {
	t.Helper()
	policy := networkingv1.NetworkPolicy{}
	policy.Name = "p"
	if err := yaml.UnmarshalStrict([]byte(spec), &policy.Spec); err != nil {
		t.Fatal(err)
	}
	return policy
}

func TestNetworkPolicyLimitsCallers(t *testing.T) {
	const shipped = "podSelector: {matchLabels: {app.kubernetes.io/name: cadastre}}\npolicyTypes: [Ingress]\n"
	const named = shipped + "ingress: [{ports: [{port: webhook}], from: [{ipBlock: {cidr: 192.0.2.10/32}}]}, {ports: [{port: metrics}]}]"
	for name, test := range map[string]struct {
		policies []string
		want     Result
	}{
		"no policy":                         {nil, ResultWarning},
		"the shipped one":                   {[]string{shipped + "ingress: [{ports: [{port: webhook}, {port: metrics}]}]"}, ResultWarning},
		"addresses":                         {[]string{named}, ResultOK},
		"all addresses":                     {[]string{shipped + "ingress: [{ports: [{port: webhook}], from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]"}, ResultWarning},
		"all Pods":                          {[]string{shipped + "ingress: [{ports: [{port: webhook}], from: [{namespaceSelector: {}}]}]"}, ResultWarning},
		"some Pods":                         {[]string{shipped + "ingress: [{ports: [{port: webhook}], from: [{namespaceSelector: {matchLabels: {a: b}}}]}]"}, ResultOK},
		"addresses, and another that opens": {[]string{named, "podSelector: {}\ningress: [{}]"}, ResultWarning},
		"the port by its number":            {[]string{shipped + "ingress: [{ports: [{port: 9443}]}]"}, ResultWarning},
		"the port within a range":           {[]string{shipped + "ingress: [{ports: [{port: 9000, endPort: 9999}]}]"}, ResultWarning},
		"another port":                      {[]string{shipped + "ingress: [{ports: [{port: 8443}]}]"}, ResultOK},
		"another protocol":                  {[]string{shipped + "ingress: [{ports: [{port: 9443, protocol: UDP}]}]"}, ResultOK},
		"nothing reaches any Pod":           {[]string{"podSelector: {}"}, ResultOK},
		"of other Pods":                     {[]string{"podSelector: {matchLabels: {a: b}}"}, ResultWarning},
		"of what Pods send":                 {[]string{"podSelector: {}\npolicyTypes: [Egress]"}, ResultWarning},
	} {
		t.Run(name, func(t *testing.T) {
			var policies []networkingv1.NetworkPolicy
			for _, spec := range test.policies {
				policies = append(policies, policyOf(t, spec))
			}
			if got := judgeCallers(policies, shippedPods()); got.Result != test.want {
				t.Errorf("%+v, want %s", got, test.want)
			}
		})
	}
}

func TestClientCertificateLimitsCallers(t *testing.T) {
	for arg, want := range map[string]bool{"--webhook-client-ca=/certs/ca.crt": true, "--webhook-client-ca=": false, "--webhook-port=9443": false} {
		if got := asksForCertificates([]corev1.Container{{Args: []string{"--leader-elect", arg}}}); got != want {
			t.Errorf("%s: %v, want %v", arg, got, want)
		}
	}
}
