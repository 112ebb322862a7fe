package messages

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// refused holds a spec that the rules of a kind refuse, and the one before for an update.
type refused struct{ kind, spec, older string }

const (
	record = `cidr: 10.0.0.0/28, ipFamily: IPv4, purpose: Claim, claimRef: {apiGroup: ipam.cadastre.dev, kind: IPClaim, name: a}`
	held   = `{` + record + `, poolRef: {name: p}, project: red, requestedBy: bob, stickyKey: a}`
)

// badSpecs breaks every rule of the CRDs.
var badSpecs = []refused{
	{"IPPool", `{}`, ""},
	{"IPPool", `{parentRef: {name: above}}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, prefixLength: 8}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, parentRef: {name: above}, routingDomain: lab}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, parentRef: {name: above}, prefixLength: 9}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, ipFamily: IPv6}`, ""},
	{"IPPool", `{parentRef: {name: above}, ipFamily: IPv4, prefixLength: 33}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/9, parentRef: {name: b}, prefixLength: 9, ipFamily: IPv6, network: {prefixLength: 9}}`, `{cidr: 10.0.0.0/8, parentRef: {name: a}, prefixLength: 8, ipFamily: IPv4}`},
	{"IPPool", `{cidr: 10.0.0.0/8, routingDomain: b}`, `{cidr: 10.0.0.0/8, routingDomain: a}`},
	{"IPPool", `{cidr: 10.0.0.0/8, network: {prefixLength: 8}}`, `{cidr: 10.0.0.0/8, network: {prefixLength: 7}}`},
	{"IPPool", `{cidr: lab}`, ""},
	{"IPPool", `{cidr: 10.0.0.1/8}`, ""},
	{"IPPool", `{cidr: "2001:DB8::/32"}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, ranges: [first-last], reserved: [10.0.0.0/33], reuseDelay: -1s, retentionPeriod: 0s}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, network: {prefixLength: 8, gateway: router, dnsServers: [dns]}}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, allocation: {minPrefixLength: 28, maxPrefixLength: 24}}`, ""},
	{"IPPool", `{cidr: 10.0.0.0/8, limits: {perProject: {addresses: many}}, visibility: Consumer}`, ""},
	{"IPPool", `{parentRef: {kind: LocalIPPool, name: above}, prefixLength: 9}`, ""},
	{"IPClass", `{ipFamily: IPv4, defaultPrefixLength: 33, allowedPrefixLengths: {min: 34, max: 33}}`, ""},
	{"IPClass", `{ipFamily: IPv4, defaultPrefixLength: 29, allowedPrefixLengths: {min: 24, max: 28}}`, ""},
	{"IPClass", `{ipFamily: IPv4, allowRetain: false, reclaimPolicy: Retain, visibility: Consumer, retentionPeriod: 0s, reuseDelay: -1s}`, ""},
	{"IPClass", `{ipFamily: IPv4, limits: {perProject: {addresses: many}}}`, ""},
	{"IPClass", `{ipFamily: IPv6, provisioner: example.com/b}`, `{ipFamily: IPv4, provisioner: example.com/a}`},
	{"IPClaim", `{poolSelector: {matchLabels: {` + strings.Join(labels("a", 9), ", ") + `}, matchExpressions: [` + strings.Repeat("{key: a, operator: Exists}, ", 8) + `]}}`, ""},
	{"IPClaim", `{poolSelector: {matchLabels: {` + strings.Repeat("a", 318) + `: a}}}`, ""},
	{"IPClaim", `{className: gold, poolRef: {name: p}}`, ""},
	{"IPClaim", `{cidr: 10.0.0.0/24, prefixLength: 25, ipFamily: IPv6}`, ""},
	{"IPClaim", `{ipFamily: IPv4, prefixLength: 33, allocationName: mine}`, ""},
	{"IPClaim", `{cidr: lab}`, ""},
	{"IPClaim", `{cidr: 10.0.0.1/24}`, ""},
	{"IPClaim", `{cidr: "2001:DB8::/64"}`, ""},
	{"IPClaim", `{}`, `{className: gold, cidr: 10.0.0.0/24, prefixLength: 24, ipFamily: IPv4, allocationName: a}`},
	{"IPClaim", `{}`, `{poolRef: {name: p}}`},
	{"IPClaim", `{}`, `{poolSelector: {matchLabels: {a: b}}}`},
	{"IPClaim", `{cidr: 10.0.1.0/25, prefixLength: 25, ipFamily: IPv6, allocationName: b, poolRef: {name: q}}`, `{cidr: 10.0.0.0/24, prefixLength: 24, ipFamily: IPv4, allocationName: a, poolRef: {name: p}}`},
	{"IPClaim", `{poolSelector: {matchLabels: {a: c}}}`, `{poolSelector: {matchLabels: {a: b}}}`},
	{"IPAllocation", `{` + record + `}`, ""},
	{"IPAllocation", `{` + record + `, routingDomain: lab}`, held},
	{"IPAllocation", `{` + record + `, poolRef: {name: p}, state: Releasing}`, ""},
	{"IPAllocation", `{cidr: 10.0.0.1/28, ipFamily: IPv6, purpose: Pool, claimRef: {apiGroup: ipam.cadastre.dev, kind: LocalIPPool, name: b}, poolRef: {name: q}, project: blue, requestedBy: eve, stickyKey: b}`, held},
	{"IPAllocation", `{cidr: 10.0.0.0/28, ipFamily: IPv4, purpose: Pool, claimRef: {apiGroup: ipam.cadastre.dev, kind: LocalIPPool, namespace: b, name: c}, poolRef: {name: q}}`,
		`{cidr: 10.0.0.0/28, ipFamily: IPv4, purpose: Pool, claimRef: {apiGroup: ipam.cadastre.dev, kind: LocalIPPool, namespace: a, name: c}, poolRef: {name: q}}`},
}

// labels returns n labels with the prefix.
func labels(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d: a", prefix, i)
	}
	return all
}

// ruled returns the rows of the rules, each of which a bad spec breaks.
func ruleRows(t *testing.T) []Row {
	t.Helper()
	all, err := RulesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	for _, bad := range badSpecs {
		rules := all[slices.IndexFunc(all, func(r Rules) bool { return r.Kind == bad.kind })]
		found, err := rules.Refuse(t.Context(), bad.spec, bad.older)
		if err != nil || len(found) == 0 {
			t.Errorf("%s %s: refused are %v (%v), want something", bad.kind, bad.spec, found, err)
		}
		rows = append(rows, found...)
	}
	return rows
}

// TestEveryCRDRuleIsBroken fails for a new rule without a spec that breaks it.
func TestEveryCRDRuleIsBroken(t *testing.T) {
	all, err := RulesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	rows := ruleRows(t)
	for _, rules := range all {
		kind := rules.Kind
		if kind == "LocalIPPool" { // it has the rules of an IPPool
			continue
		}
		for _, template := range rules.Templates() {
			if strings.HasPrefix(template.At, kind+" .status") { // the operator's own
				continue
			}
			if !slices.ContainsFunc(rows, func(r Row) bool { return r.Object == kind && template.Meets(r.Message) }) {
				t.Errorf("no bad spec breaks the rule of %s", template)
			}
		}
	}
}
