package installation

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	clientCAFlag = "--webhook-client-ca"
	// webhookPort is the name of the webhooks' port in the Pods.
	webhookPort = "webhook"
)

// callers checks that only the API servers can call the webhooks: every reader of an error with
// their path knows the path.
func (d *Doctor) callers(ctx context.Context) Check {
	const name = "webhooks/callers"
	deployments := &appsv1.DeploymentList{}
	if err := d.Client.List(ctx, deployments, client.InNamespace(d.Operator), Labels()); err != nil {
		return unread(name, "Deployments of namespace "+d.Operator, err)
	}
	template := shippedPods()
	if len(deployments.Items) > 0 {
		template = &deployments.Items[0].Spec.Template
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
	pods.Labels = map[string]string{"app.kubernetes.io/name": "cadastre", "control-plane": "controller-manager"}
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
	return peer.NamespaceSelector != nil && isEmpty(peer.NamespaceSelector) && (peer.PodSelector == nil || isEmpty(peer.PodSelector))
}

func isEmpty(selector *metav1.LabelSelector) bool {
	return len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}
