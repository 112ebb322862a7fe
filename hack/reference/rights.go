package reference

import (
	"fmt"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/bundle"
)

// WriteRights writes the rights of all commands as a table.
func WriteRights(out io.Writer) error {
	var b strings.Builder
	b.WriteString("| command | needs | asks for, if it may |\n|---|---|---|\n")
	for _, needs := range Rights() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", needs.Command, formatRules(needs.Needed), wanted(needs))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func wanted(needs Needs) string {
	text := formatRules(needs.Wanted)
	if len(needs.Operator) > 0 {
		text += "; in the operator's namespace: " + formatRules(needs.Operator)
	}
	if len(needs.Like) > 0 {
		text += "; and what `" + strings.Join(needs.Like, "`, `") + "` ask for, whose reports it has"
	}
	return text
}

func formatRules(all []rbacv1.PolicyRule) string {
	if len(all) == 0 {
		return "-"
	}
	var parts []string
	for _, rule := range all {
		resources := make([]string, len(rule.Resources))
		for i, resource := range rule.Resources {
			resources[i] = "`" + resource + "`"
			if group := rule.APIGroups[0]; group != "" && group != "ipam.cadastre.dev" {
				resources[i] = "`" + resource + "." + group + "`"
			}
		}
		parts = append(parts, strings.Join(rule.Verbs, ", ")+" "+strings.Join(resources, ", "))
	}
	return strings.Join(parts, "; ")
}

// Needs holds the rights that a command asks for.
type Needs struct {
	// Command is the command without "kubectl ipam".
	Command string
	// Needed holds the rights without which it fails.
	Needed []rbacv1.PolicyRule
	// Wanted holds the rights without which it leaves something out, and reports that.
	Wanted []rbacv1.PolicyRule
	// Operator holds the rights that it asks for in the operator's namespace alone.
	Operator []rbacv1.PolicyRule
	// Like names the commands whose reports it makes too, with their rights.
	Like []string
}

// Rights returns the rights of the commands, in the order of their names. docs/import.md has the
// rights of import.
func Rights() []Needs {
	register := rules(ours("list", "ippools", "localippools", "ipallocations", "ipclaims"), capi("list", "inclusterippools", "globalinclusterippools"))
	all := rules(ours("get list", "ippools", "localippools", "ipallocations", "ipclaims"), capi("get list", "inclusterippools", "globalinclusterippools", "ipaddressclaims", "ipaddresses"))
	bundled, bundledOfOperator := bundle.Rights()
	return []Needs{
		{Command: "check", Wanted: append(all, admission("get", "mutatingwebhookconfigurations")), Operator: rules(lease())},
		{Command: "claim", Needed: rules(ours("create get watch list", "ipclaims"))},
		{Command: "classes", Needed: rules(ours("get list", "ipclasses"), ours("create", "ipclaims"))},
		{Command: "create class", Needed: rules(ours("create", "ipclasses"))},
		{Command: "create pool", Needed: rules(ours("create get list watch", "ippools", "localippools"))},
		{Command: "default-class", Needed: rules(ours("get list patch", "ipclasses"))},
		doctorRights(),
		{Command: "explain", Needed: rules(ours("get", "ipclaims"), capi("get", "ipaddressclaims"), rule(clusterv1.GroupVersion.Group, "get", "clusters")), Wanted: append(register, ours("list", "ipclasses"), capi("list", "ipaddressclaims"), core("get list", "namespaces"))},
		{Command: "free", Wanted: register},
		{Command: "map", Wanted: register},
		{Command: "pause", Needed: rules(ours("get patch", "ippools", "localippools"))},
		{Command: "pools", Wanted: register},
		{Command: "release", Needed: rules(ours("get delete list watch", "ipclaims", "ipallocations"))},
		{Command: "resume", Needed: rules(ours("get patch", "ippools", "localippools"))},
		{Command: "support-bundle", Wanted: bundled, Operator: bundledOfOperator, Like: []string{"check", "doctor", "version"}},
		{Command: "tree", Wanted: register},
		uiRights(),
		{
			Command: "version", Wanted: rules(definitions(), admission("get", "mutatingwebhookconfigurations")),
			Operator: rules(lease(), rule("apps", "list", "deployments")),
		},
		{Command: "who", Wanted: append(register, ours("get", "ipclaims"), capi("get", "ipaddressclaims"))},
	}
}

// doctorRights returns the rights to read an installation, to ask for the operator's rights, and
// to try the answers of webhooks and policies in dry runs.
func doctorRights() Needs {
	return Needs{
		Command: "doctor",
		Wanted: rules(
			definitions(),
			admission("get", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
			rule("flowcontrol.apiserver.k8s.io", "get", "flowschemas", "prioritylevelconfigurations"),
			rule("authorization.k8s.io", "create", "subjectaccessreviews"),
			ours("create", "ipclaims", "ipallocations"),
			capi("list", "inclusterippools", "globalinclusterippools"), rule("discovery.k8s.io", "list", "endpointslices"),
		),
		Operator: rules(
			core("get", "secrets", "services"), lease(), rule("apps", "list", "deployments"),
			rule("networking.k8s.io", "list", "networkpolicies"), rule("policy", "list", "poddisruptionbudgets"),
		),
	}
}

// uiRights returns the rights to follow the register, and to answer the requests of the page. The
// rights to create and to delete are for --read-only=false.
func uiRights() Needs {
	return Needs{
		Command: "ui",
		Wanted: rules(
			ours("list watch", "ippools", "localippools", "ipallocations", "ipclasses"), ours("get list watch create delete", "ipclaims"),
			capi("list watch", "inclusterippools", "globalinclusterippools"), capi("get list watch", "ipaddressclaims"), core("list", "namespaces"),
		),
	}
}

func rules(all ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return all }

// ours returns a rule about our own API group.
func ours(verbs string, resources ...string) rbacv1.PolicyRule {
	return rule(v1alpha1.GroupVersion.Group, verbs, resources...)
}

// capi returns a rule about Cluster API's group of address management.
func capi(verbs string, resources ...string) rbacv1.PolicyRule {
	return rule(ipamv1.GroupVersion.Group, verbs, resources...)
}

// core returns a rule about the core group.
func core(verbs string, resources ...string) rbacv1.PolicyRule { return rule("", verbs, resources...) }

// admission returns a rule about webhooks and admission policies.
func admission(verbs string, resources ...string) rbacv1.PolicyRule {
	return rule("admissionregistration.k8s.io", verbs, resources...)
}

func definitions() rbacv1.PolicyRule {
	return rule("apiextensions.k8s.io", "get", "customresourcedefinitions")
}

// lease returns the rule to read the leader, its start, and its version.
func lease() rbacv1.PolicyRule { return rule("coordination.k8s.io", "get", "leases") }

func rule(group, verbs string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: strings.Fields(verbs)}
}
