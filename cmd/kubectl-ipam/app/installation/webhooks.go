package installation

import (
	"bytes"
	"context"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/certs"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// webhooks checks the webhook configurations, and the certificates and the Service that they refer
// to.
func (d *Doctor) webhooks(ctx context.Context) []Check {
	var checks []Check
	var all []*manifests.Webhook
	for _, c := range []struct {
		check, name   string
		configuration client.Object
	}{
		{"webhooks/mutating", manifests.MutatingWebhooks, &admissionv1.MutatingWebhookConfiguration{}},
		{"webhooks/cluster", manifests.ClusterWebhooks, &admissionv1.MutatingWebhookConfiguration{}},
		{"webhooks/validating", manifests.ValidatingWebhooks, &admissionv1.ValidatingWebhookConfiguration{}},
	} {
		c.configuration.SetName(c.name)
		if bad := d.get(ctx, c.configuration, failed(c.check, remedyManifests, "")); bad != nil {
			checks = append(checks, *bad)
			continue
		}
		live := webhooksIn(c.configuration)
		checks = append(checks, judgeWebhooks(c.check, live, manifests.Webhooks(c.name, d.account())))
		all = append(all, live...)
	}
	if len(all) > 0 {
		checks = append(checks, judgeTrust(all), d.service(ctx, all))
	}
	return checks
}

func webhooksIn(configuration client.Object) []*manifests.Webhook {
	var found []*manifests.Webhook
	switch c := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			found = append(found, manifests.WebhookOf(&c.Webhooks[i]))
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			found = append(found, &manifests.Webhook{ValidatingWebhook: c.Webhooks[i]})
		}
	}
	return found
}

// judgeWebhooks compares the webhooks of a configuration with the shipped ones.
func judgeWebhooks(name string, live []*manifests.Webhook, shipped map[string]*manifests.Webhook) Check {
	byName := map[string]*manifests.Webhook{}
	for _, w := range live {
		byName[w.Name] = w
	}
	var wrong []string
	for _, want := range slices.Sorted(maps.Keys(shipped)) {
		got := byName[want]
		if got == nil {
			wrong = append(wrong, want+" is missing")
			continue
		}
		for _, difference := range got.Differences(shipped[want]) {
			wrong = append(wrong, want+": "+difference)
		}
	}
	var unknownWebhooks []string
	for _, w := range live {
		if shipped[w.Name] == nil {
			unknownWebhooks = append(unknownWebhooks, w.Name)
		}
	}
	switch {
	case len(wrong) > 0:
		return failed(name, remedyManifests, "%s", strings.Join(wrong, "; "))
	case len(unknownWebhooks) > 0:
		return warned(name, "use a client of the operator's version, or apply the manifests of its version", "this client does not know %s", strings.Join(unknownWebhooks, ", "))
	}
	return ok(name, "all %d are as shipped", len(live))
}

// judgeTrust judges the parts of the configurations that the operator writes: the bundle and the
// path.
func judgeTrust(all []*manifests.Webhook) Check {
	const name, remedy = "webhooks/trust", "let the operator write it: it does so when it starts, and whenever that changes; see deployment and leader"
	first := all[0].ClientConfig.CABundle
	for _, w := range all {
		config := &w.ClientConfig
		switch {
		case len(config.CABundle) == 0:
			return failed(name, remedy, "%s has no caBundle, so the API server trusts no replica", w.Name)
		case len(certs.ParseBundle(config.CABundle)) == 0:
			return failed(name, remedy, "the caBundle of %s has no certificate that can be read", w.Name)
		case !bytes.Equal(config.CABundle, first):
			return failed(name, remedy, "the caBundle of %s is not that of %s", w.Name, all[0].Name)
		case config.Service != nil && (config.Service.Path == nil || *config.Service.Path == "" || *config.Service.Path == "/"):
			return failed(name, remedy, "%s has no path", w.Name)
		}
	}
	return ok(name, "all %d trust one bundle, and have a path", len(all))
}

// service checks that the Service exists by which the webhooks are called.
func (d *Doctor) service(ctx context.Context, all []*manifests.Webhook) Check {
	const name = "webhooks/service"
	reference := all[0].ClientConfig.Service
	if reference == nil {
		return warned(name, remedyManifests, "%s is called by a URL and not by a Service", all[0].Name)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: reference.Name}}
	if bad := d.get(ctx, service, failed(name, remedyManifests, "")); bad != nil {
		return *bad
	}
	return ok(name, "Service %s/%s exists", reference.Namespace, reference.Name)
}

// expiresSoon is the time before its end at which a certificate should have been renewed: the
// operator renews it a month before.
const expiresSoon = 14 * 24 * time.Hour

// certificate checks the certificate that the webhooks serve if the caller can read its Secret,
// else the certificates that the configurations trust.
func (d *Doctor) certificate(ctx context.Context) Check {
	const name = "certificate"
	live := &admissionv1.MutatingWebhookConfiguration{}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: manifests.MutatingWebhooks}, live); err != nil || len(live.Webhooks) == 0 {
		return skipped(name, "there are no webhooks that you may read")
	}
	config := &live.Webhooks[0].ClientConfig
	bundle := certs.ParseBundle(config.CABundle)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: d.Operator, Name: CertificateSecret}}
	bad := d.get(ctx, secret, failed(name, "let the operator or cert-manager write it; see deployment and leader", ""))
	switch {
	case bad != nil && bad.Result == ResultSkipped: // the caller may not read it
		return judgeExpiry(name, bundle, d.Now(), "the authority of the webhooks' certificate", "; "+bad.Message)
	case bad != nil:
		return *bad
	}
	var host string
	if service := config.Service; service != nil {
		host = service.Name + "." + service.Namespace + ".svc"
	}
	return judgeCertificate(certs.ParseBundle(secret.Data[corev1.TLSCertKey]), bundle, host, d.Now())
}

// judgeCertificate judges whether an API server that trusts the bundle accepts a server of
// the name with the certificate.
func judgeCertificate(served, bundle []*x509.Certificate, host string, now time.Time) Check {
	const name, remedy = "certificate", "delete the Secret " + CertificateSecret + ", and the operator issues another; with cert-manager, see its Certificate"
	if len(served) == 0 {
		return failed(name, remedy, "the Secret has no certificate that can be read")
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range bundle {
		roots.AddCert(c)
	}
	for _, c := range served[1:] {
		intermediates.AddCert(c)
	}
	if now.After(served[0].NotAfter) {
		return failed(name, remedy, "expired at %s", at(served[0].NotAfter))
	}
	if _, err := served[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates, CurrentTime: now}); err != nil {
		return failed(name, "let the operator write the caBundle again; see deployment and leader", "the API server does not trust it: %v", err)
	}
	return judgeExpiry(name, served[:1], now, "the webhooks' certificate", "")
}

// judgeExpiry judges the certificate that ends first.
func judgeExpiry(name string, certificates []*x509.Certificate, now time.Time, what, addition string) Check {
	if len(certificates) == 0 {
		return skipped(name, "there is none that you may read")
	}
	end := slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
	switch {
	case now.After(end):
		return failed(name, "see whether the operator runs: deployment and leader", "%s expired at %s%s", what, at(end), addition)
	case now.Add(expiresSoon).After(end):
		return warned(name, "see whether the operator runs, which renews it: deployment and leader", "%s expires at %s%s", what, at(end), addition)
	}
	return ok(name, "%s is trusted until %s%s", what, at(end), addition)
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

const (
	clientCAFlag = "--webhook-client-ca"
	// webhookPort is the name of the webhooks' port in the Pods.
	webhookPort = "webhook"
)

// callers checks that only the API servers can call the webhooks: every reader of an error with
// their path knows the path.
func (d *Doctor) callers(ctx context.Context) Check {
	const name = "webhooks/callers"
	found, err := deployments(ctx, d.Client, d.Operator)
	if err != nil {
		return unread(name, "Deployments of namespace "+d.Operator, err)
	}
	template := shippedPods()
	if len(found) > 0 {
		template = &found[0].Spec.Template
	}
	if asksForCertificates(template.Spec.Containers) {
		return ok(name, "a client needs a certificate (%s)", clientCAFlag)
	}
	policies := &networkingv1.NetworkPolicyList{}
	if err := d.Client.List(ctx, policies, client.InNamespace(d.Operator)); err != nil {
		return unread(name, "NetworkPolicies of namespace "+d.Operator, err)
	}
	return judgeCallers(policies.Items, template)
}

// shippedPods returns the Pods of the manifests, as far as a NetworkPolicy selects them.
func shippedPods() *corev1.PodTemplateSpec {
	pods := &corev1.PodTemplateSpec{}
	pods.Labels = operatorLabels()
	pods.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: webhookPort, ContainerPort: 9443}}}}
	return pods
}

func asksForCertificates(containers []corev1.Container) bool {
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool {
			file, found := strings.CutPrefix(arg, clientCAFlag)
			return found && file != "="
		})
	})
}

// judgeCallers judges which clients can reach the webhooks' port. If there are policies, a client
// can reach it if at least one of them lets it pass.
func judgeCallers(policies []networkingv1.NetworkPolicy, pods *corev1.PodTemplateSpec) Check {
	const name = "webhooks/callers"
	const remedy = "limit them to the API servers: by --webhook-client-ca, or by their addresses in the NetworkPolicy (networkPolicy.apiServerCIDRs in the Helm chart); see docs/operations.md, who may call the webhooks"
	limited, open := "", ""
	for i := range policies {
		policy := &policies[i]
		switch {
		case !selects(policy, pods):
		case opensWebhooks(policy, pods):
			open = policy.Name
		default:
			limited = policy.Name
		}
	}
	switch {
	case open != "":
		return warned(name, remedy, "NetworkPolicy %s lets every Pod reach the webhooks, and they ask for no client certificate: a client that has seen their path in an error can call them", open)
	case limited == "":
		return warned(name, remedy, "no NetworkPolicy limits which Pods reach the webhooks, and they ask for no client certificate: a client that has seen their path in an error can call them")
	}
	return ok(name, "NetworkPolicy %s limits the addresses that reach the webhooks", limited)
}

// selects reports whether a policy limits the ingress of the Pods.
func selects(policy *networkingv1.NetworkPolicy, pods *corev1.PodTemplateSpec) bool {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	ingress := len(policy.Spec.PolicyTypes) == 0 || slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	return err == nil && ingress && selector.Matches(labels.Set(pods.Labels))
}

// opensWebhooks reports whether a policy lets every Pod of the cluster reach the webhooks.
func opensWebhooks(policy *networkingv1.NetworkPolicy, pods *corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
		return isForWebhooks(rule.Ports, pods) && (len(rule.From) == 0 || slices.ContainsFunc(rule.From, isEverybody))
	})
}

func isForWebhooks(ports []networkingv1.NetworkPolicyPort, pods *corev1.PodTemplateSpec) bool {
	number := int32(0)
	for i := range pods.Spec.Containers {
		for _, port := range pods.Spec.Containers[i].Ports {
			if port.Name == webhookPort {
				number = port.ContainerPort
			}
		}
	}
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		switch {
		case p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return p.Port.StrVal == webhookPort
		case p.EndPort != nil:
			return p.Port.IntVal <= number && number <= *p.EndPort
		}
		return p.Port.IntVal == number
	})
}

// isEverybody reports whether a peer covers every Pod of the cluster, or every address.
func isEverybody(peer networkingv1.NetworkPolicyPeer) bool {
	if peer.IPBlock != nil {
		return strings.HasSuffix(peer.IPBlock.CIDR, "/0")
	}
	isAny := func(s *metav1.LabelSelector) bool { return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 }
	return isAny(peer.NamespaceSelector) && (peer.PodSelector == nil || isAny(peer.PodSelector))
}
