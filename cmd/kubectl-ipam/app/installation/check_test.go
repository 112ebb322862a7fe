package installation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"maps"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func expect(t *testing.T, name string, got Check, want Result, says string) {
	t.Helper()
	if got.Result != want || !strings.Contains(got.Message, says) {
		t.Errorf("%s: %s: %q, want %s with %q", name, got.Result, got.Message, want, says)
	}
	if needs := want == ResultFailed || want == ResultWarning; needs && got.Remedy == "" {
		t.Errorf("%s: %q has no remedy", name, got.Message)
	}
}

func TestDeploymentIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		want, updated, available int32
		generation               int64
		result                   Result
		says                     string
	}{
		"all are ready":       {2, 2, 2, 1, ResultOK, "all 2 replicas"},
		"one is missing":      {2, 2, 1, 1, ResultWarning, "1 of 2"},
		"none is ready":       {2, 2, 0, 1, ResultFailed, "none of 2"},
		"scaled to none":      {0, 0, 0, 1, ResultFailed, "scaled to no replica"},
		"being rolled out":    {2, 1, 2, 1, ResultWarning, "being rolled out"},
		"not yet rolled out":  {2, 2, 2, 2, ResultWarning, "being rolled out"},
		"one, which is ready": {1, 1, 1, 1, ResultWarning, "has one replica"},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: c.generation}, Spec: appsv1.DeploymentSpec{Replicas: &c.want}}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: c.updated, AvailableReplicas: c.available}
		expect(t, name, judgeDeployment(d), c.result, c.says)
	}
}

func TestProvisionerOfHubIsNotTheOperator(t *testing.T) {
	text, err := os.ReadFile("../../../../config/hub-provisioner/deployment.yaml")
	must.Succeed(t, err)
	deployment := &appsv1.Deployment{}
	must.Succeed(t, yaml.Unmarshal(text, deployment))
	maps.Copy(deployment.Labels, Labels())
	k8s := fake.NewClientBuilder().WithObjects(deployment).Build()
	if found, err := deployments(t.Context(), k8s, deployment.Namespace); len(found) > 0 || err != nil {
		t.Errorf("got %v, %v, want none", found, err)
	}
}

func TestLeaseIsJudged(t *testing.T) {
	holder, nobody, seconds := "a_1", "", int32(2)
	for name, c := range map[string]struct {
		holder  *string
		renewed time.Time
		result  Result
	}{
		"a replica leads":                {&holder, now.Add(-time.Second), ResultOK},
		"within the clocks' slack":       {&holder, now.Add(-6 * time.Second), ResultOK},
		"a replica has led":              {&holder, now.Add(-8 * time.Second), ResultFailed},
		"the lease was given back":       {&nobody, now, ResultFailed},
		"no replica has ever renewed it": {nil, now, ResultFailed},
	} {
		renewed := metav1.NewMicroTime(c.renewed)
		expect(t, name, judgeLease(&coordinationv1.LeaseSpec{HolderIdentity: c.holder, RenewTime: &renewed, LeaseDurationSeconds: &seconds}, now), c.result, "")
	}
}

// signed returns a certificate for a host; an authority if it signs itself.
func signed(t *testing.T, issuer *x509.Certificate, key *ecdsa.PrivateKey, end time.Time) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-time.Hour), NotAfter: end,
		DNSNames: []string{"svc.ns.svc"}, IsCA: issuer == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if issuer == nil {
		template.Subject.CommonName = "authority"
		issuer = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestCertificateIsJudged(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	year := now.Add(365 * 24 * time.Hour)
	authority := signed(t, nil, key, year)
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other := signed(t, nil, otherKey, year)
	bundle := []*x509.Certificate{authority}
	for name, c := range map[string]struct {
		served, bundle []*x509.Certificate
		host           string
		result         Result
		says           string
	}{
		"a good one":                  {[]*x509.Certificate{signed(t, authority, key, year)}, bundle, "svc.ns.svc", ResultOK, "2027"},
		"one that ends soon":          {[]*x509.Certificate{signed(t, authority, key, now.Add(time.Hour))}, bundle, "svc.ns.svc", ResultWarning, "expires at"},
		"one that has ended":          {[]*x509.Certificate{signed(t, authority, key, now.Add(-time.Minute))}, bundle, "svc.ns.svc", ResultFailed, "expired at"},
		"one of another host":         {[]*x509.Certificate{signed(t, authority, key, year)}, bundle, "other.ns.svc", ResultFailed, "does not trust it"},
		"one that the bundle has not": {[]*x509.Certificate{signed(t, authority, key, year)}, []*x509.Certificate{other}, "svc.ns.svc", ResultFailed, "does not trust it"},
		"none":                        {nil, bundle, "svc.ns.svc", ResultFailed, "no certificate"},
	} {
		expect(t, name, judgeCertificate(c.served, c.bundle, c.host, now), c.result, c.says)
	}
	several := []*x509.Certificate{authority, signed(t, authority, key, now.Add(time.Hour))}
	expect(t, "one of several ends soon", judgeExpiry("certificate", several, now, "the authority", ""), ResultWarning, "expires at")
}

func TestVersionsAreJudged(t *testing.T) {
	same := []Definition{{Name: "a", Same: true}}
	for name, c := range map[string]struct {
		client, operator string
		definitions      []Definition
		want             Skew
	}{
		"one version":                         {"v0.1.0", "v0.1.0", same, SkewNone},
		"another patch":                       {"v0.1.0", "v0.1.3", same, SkewSupported},
		"the next minor version":              {"v0.1.0", "v0.2.0", same, SkewSupported},
		"the one before":                      {"v0.2.0", "v0.1.9", same, SkewSupported},
		"two minor versions":                  {"v0.1.0", "v0.3.0", same, SkewUnsupported},
		"another major version":               {"v0.1.0", "v1.1.0", same, SkewUnsupported},
		"a CRD lacks a field":                 {"v0.1.0", "v0.1.0", []Definition{{Lacks: []string{"spec.a"}}}, SkewUnsupported},
		"a CRD has a field more":              {"v0.1.0", "v0.1.0", []Definition{{Unknown: []string{"spec.a"}}}, SkewSupported},
		"no leader":                           {"v0.1.0", "", same, SkewUnknown},
		"builds of no version":                {"(devel)", "v0.1.0", same, SkewUnknown},
		"the same build, without the history": {"x", "x", nil, SkewNone},
	} {
		got, message := judgeVersions(&Versions{Client: c.client, Operator: c.operator, Definitions: c.definitions})
		if got != c.want || message == "" {
			t.Errorf("%s: %s: %s, want %s", name, got, message, c.want)
		}
	}
}

func TestTrialIsJudged(t *testing.T) {
	group := schema.GroupResource{Group: "ipam.cadastre.dev", Resource: "ipclaims"}
	with := func(phase v1alpha1.ClaimPhase, message string) *v1alpha1.IPClaim {
		c := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
		c.Status.Phase, c.Status.AllocatedCIDR = phase, "10.0.0.0/24"
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Message: message}}
		return c
	}
	for name, c := range map[string]struct {
		claim  *v1alpha1.IPClaim
		err    error
		result Result
		says   string
	}{
		"bound":                 {with(v1alpha1.ClaimBound, ""), nil, ResultOK, "would get 10.0.0.0/24"},
		"would wait":            {with(v1alpha1.ClaimExhausted, "pool p is full"), nil, ResultWarning, "pool p is full"},
		"no webhook":            {&v1alpha1.IPClaim{}, nil, ResultFailed, "no webhook answered"},
		"no right":              {with("", ""), apierrors.NewForbidden(group, "", errors.New("User cannot create resource")), ResultSkipped, "you may not create"},
		"a limit":               {with("", ""), apierrors.NewForbidden(group, "", errors.New("exceeded limit")), ResultWarning, "exceeded limit"},
		"no namespace":          {with("", ""), apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "team"), ResultSkipped, "does not exist"},
		"no CRD":                {with("", ""), apierrors.NewNotFound(group, ""), ResultFailed, "does not know"},
		"no replica":            {with("", ""), apierrors.NewInternalError(errors.New(`Post "https://svc:443/secret/mutate": EOF`)), ResultFailed, `Post "https://svc:443": EOF`},
		"exhausted":             {with("", ""), &apierrors.StatusError{ErrStatus: metav1.Status{Code: 507, Message: "no room"}}, ResultWarning, "no room"},
		"no answer of any kind": {with("", ""), errors.New("connection refused"), ResultFailed, "connection refused"},
	} {
		expect(t, name, judgeTrial(c.claim, c.err), c.result, c.says)
	}
}

// TestEmbeddedManifestsPassChecks judges the embedded manifests as if they were installed
// for an operator in another namespace, under another service account.
func TestEmbeddedManifestsPassChecks(t *testing.T) {
	elsewhere := manifests.Account{Namespace: "elsewhere", Name: "someone"}
	for _, definition := range manifests.Definitions() {
		if c := compareDefinitions(&definition, &definition); len(c.lacks)+len(c.more)+len(c.differs) > 0 {
			t.Errorf("%s: %v", definition.Name, c)
		}
	}
	for name, conditioned := range map[string]string{
		manifests.MutatingWebhooks: "create.ipaddress.ipam.cadastre.dev", manifests.ClusterWebhooks: "", // names no account
		manifests.ValidatingWebhooks: "delete.ipallocation.ipam.cadastre.dev",
	} {
		shipped := manifests.Webhooks(name, elsewhere)
		var live []*manifests.Webhook
		for _, w := range shipped {
			live = append(live, w)
		}
		expect(t, name, judgeWebhooks(name, live, shipped), ResultOK, "")
		for _, other := range []manifests.Account{{Namespace: manifests.DefaultNamespace, Name: elsewhere.Name}, {Namespace: elsewhere.Namespace, Name: manifests.ServiceAccount}} {
			if conditioned != "" {
				expect(t, name, judgeWebhooks(name, live, manifests.Webhooks(name, other)), ResultFailed, conditioned+": matchConditions")
			}
		}
		expect(t, name, judgeWebhooks(name, live[1:], shipped), ResultFailed, live[0].Name+" is missing")
		expect(t, name, judgeWebhooks(name, append(live, &manifests.Webhook{ValidatingWebhook: admissionv1.ValidatingWebhook{Name: "x"}}), shipped), ResultWarning, "x")
	}
	policies := manifests.Policies(elsewhere)
	if len(policies) != 3 {
		t.Fatalf("%d policies are shipped", len(policies))
	}
	for i := range policies {
		if wrong := manifests.PolicyDifferences(&policies[i], &policies[i]); len(wrong) > 0 {
			t.Errorf("%s: %v", policies[i].Name, wrong)
		}
	}
	roles := manifests.OperatorRoles(elsewhere)
	if len(roles[""]) == 0 || len(roles["elsewhere"]) == 0 || len(roles) != 2 {
		t.Errorf("the operator's roles are of %d namespaces: %v", len(roles), roles)
	}
	if n := len(manifests.UserRoles()); n != 5 {
		t.Errorf("%d roles for people are shipped", n)
	}
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
			policies := make([]networkingv1.NetworkPolicy, len(test.policies))
			for i, spec := range test.policies {
				if err := yaml.UnmarshalStrict([]byte(spec), &policies[i].Spec); err != nil {
					t.Fatal(err)
				}
				policies[i].Name = "p" // a policy without a name counts as none
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
