package cli

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// CommandRights are the rights that a command asks for.
type CommandRights struct {
	// Command without "kubectl ipam".
	Command string
	// Needed are those without which it fails.
	Needed []rbacv1.PolicyRule
	// Wanted are those without which it leaves something out, and says so.
	Wanted []rbacv1.PolicyRule
}

// Rights are those of the commands that deal with the register, in the order of their names.
// What doctor, support-bundle and version may not read they list as such, and
// docs/import.md has the rights of import.
func Rights() []CommandRights {
	register := rules(
		ours("list", "ippools", "localippools", "ipallocations", "ipclaims"),
	)
	all := rules(
		ours("get list", "ippools", "localippools", "ipallocations", "ipclaims"), capi("get list", "ipaddressclaims", "ipaddresses"),
	)
	return []CommandRights{
		{Command: "check", Wanted: all},
		{Command: "claim", Needed: rules(ours("create get watch list", "ipclaims"))},
		{Command: "create class", Needed: rules(ours("create", "ipclasses"))},
		{Command: "create pool", Needed: rules(ours("create get list watch", "ippools", "localippools"))},
		{Command: "default-class", Needed: rules(ours("get list patch", "ipclasses"))},
		{Command: "explain", Needed: rules(ours("get", "ipclaims"), capi("get", "ipaddressclaims")), Wanted: append(register, ours("list", "ipclasses"), capi("list", "ipaddressclaims"), core("list", "namespaces"))},
		{Command: "free", Wanted: register},
		{Command: "map", Wanted: register},
		{Command: "pause", Needed: rules(ours("get patch", "ippools", "localippools"))},
		{Command: "pools", Wanted: register},
		{Command: "release", Needed: rules(ours("get delete list watch", "ipclaims", "ipallocations"))},
		{Command: "resume", Needed: rules(ours("get patch", "ippools", "localippools"))},
		{Command: "tree", Wanted: register},
		{Command: "who", Wanted: append(register, ours("get", "ipclaims"), capi("get", "ipaddressclaims"))},
	}
}

func rules(all ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return all }

// ours is a rule about our own API group.
func ours(verbs string, resources ...string) rbacv1.PolicyRule {
	return rule(v1alpha1.GroupVersion.Group, verbs, resources)
}

// capi is a rule about Cluster API's group of address management.
func capi(verbs string, resources ...string) rbacv1.PolicyRule {
	return rule(ipamv1.GroupVersion.Group, verbs, resources)
}

// core is a rule about the core group.
func core(verbs string, resources ...string) rbacv1.PolicyRule { return rule("", verbs, resources) }

func rule(group, verbs string, resources []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: strings.Fields(verbs)}
}
