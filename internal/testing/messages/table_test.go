package messages

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// root is the root of the module.
var root = os.DirFS("../../..")

// collectRows returns the rows of all sources.
func collectRows(t *testing.T) []Row {
	t.Helper()
	answered, one := Answered(root)
	noted, two := Noted(root)
	policies, three := Policies(root)
	must.Succeed(t, errors.Join(one, two, three))
	return slices.Concat(answered, noted, ruleRows(t), policies)
}

// TestTableHasEveryMessage expects the messages of the runs in docs/messages.md.
func TestTableHasEveryMessage(t *testing.T) {
	templates, err := Templates(root)
	must.Succeed(t, err)
	compare(t, "../../../docs/messages.md", Document(collectRows(t), templates))
}

// TestMessagesStateProblemAndRemedy checks the form of each.
func TestMessagesStateProblemAndRemedy(t *testing.T) {
	for _, row := range collectRows(t) {
		for _, fault := range row.Faults() {
			t.Errorf("%s, on %s, %s: %s:\n%s", row.Object, row.On, row.Answer, fault, row.Message)
		}
	}
}

// internalTexts holds texts in the code that no user of the API gets.
var internalTexts = map[string]string{
	" is not an IPAllocation":                            "of a watch: in the log",
	"set it or spec.routingDomain, to locate the block":  "of an IPAllocation that cannot be read: in the log",
	"set it, to locate the block":                        "of an IPAllocation that cannot be read: in the log",
	"is not of the family of …: remove it":               "of an IPAllocation that cannot be read: in the log",
	"overlaps another block of the record: remove it":    "of an IPAllocation that cannot be read: in the log",
	"set it to the namespace of the ":                    "of an IPAllocation that cannot be read: in the log",
	"the address is not in the cache yet":                "reconciled again",
	"the allocation is not in the view yet":              "reconciled again",
	"too many unclaimed allocations":                     "UnclaimedError names the namespace",
	"the pool is in use":                                 "the answer has other words",
	"another allocation was recorded first":              "another block is tried",
	"it is the turn of another holder":                   "answered as a pool without room",
	" is not known":                                      "answered as a pool that is closed",
	"the pool's own record is missing or being released": "answered as a pool that is closed",
	"the object is null":                                 "the API server sends no such object",
	"more error":                                         "after the first errors of an object",
	"the text is not a JSON object":                      "the API server sends no such text",
	"ranges of ":                                         "a part of what a pool holds",
	"other ranges":                                       "compared, and not shown",
	"routing domain ":                                    "a part of the name of a space",
	"denied the request: ":                               "the API server's own, which is cut off",
}

// TestEveryMessageInCodeIsInTable fails for a new message without a bad input that leads to
// it.
func TestEveryMessageInCodeIsInTable(t *testing.T) {
	templates, err := Templates(root)
	must.Succeed(t, err)
	rows := collectRows(t)
	used := map[string]bool{}
	for _, template := range templates {
		text := template.Text()
		if internalTexts[text] != "" {
			used[text] = true
			continue
		}
		if !slices.ContainsFunc(rows, func(r Row) bool { return template.Meets(r.Message) }) {
			t.Errorf("no row has the message %s", template)
		}
	}
	for text := range internalTexts {
		if !used[text] {
			t.Errorf("the code has no text %q any more", text)
		}
	}
}

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
	{"IPPool", `{cidr: 10.0.0.0/8, occupies: Ranges, ranges: [10.0.0.1]}`, `{cidr: 10.0.0.0/8, ranges: [10.0.0.1]}`},
	{"IPPool", `{parentRef: {name: above}, prefixLength: 9, occupies: Ranges}`, ""},
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
	{"IPClaim", `{cidr: 10.0.0.0/24, prefixLength: 25, ipFamily: IPv6}`, `{cidr: 10.0.0.0/24}`},
	{"IPClaim", `{ipFamily: IPv4, prefixLength: 33}`, `{ipFamily: IPv4}`},
	{"IPClaim", `{}`, `{className: gold, cidr: 10.0.0.0/24, prefixLength: 24, ipFamily: IPv4, allocationName: a}`},
	{"IPClaim", `{}`, `{poolRef: {name: p}}`},
	{"IPClaim", `{}`, `{poolSelector: {matchLabels: {a: b}}}`},
	{"IPClaim", `{cidr: 10.0.1.0/25, prefixLength: 25, ipFamily: IPv6, allocationName: b, poolRef: {name: q}}`, `{cidr: 10.0.0.0/24, prefixLength: 24, ipFamily: IPv4, allocationName: a, poolRef: {name: p}}`},
	{"IPClaim", `{poolSelector: {matchLabels: {a: c}}}`, `{poolSelector: {matchLabels: {a: b}}}`},
	{"IPAllocation", `{` + record + `, routingDomain: lab}`, held},
	{"IPAllocation", `{` + record + `, poolRef: {name: p}, additionalCIDRs: [10.0.0.17/28]}`, held},
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

// ruleRows returns the rows of the rules, each of which a bad spec breaks.
func ruleRows(t *testing.T) []Row {
	t.Helper()
	all, err := RulesOf(root)
	must.Succeed(t, err)
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

// TestRulesCostNoCreateOfClaim covers IPClaims and their records: the operator judges both, and the API server evaluates
// a rule for a create unless it refers to oldSelf. Selectors are rare, and the settings of a network are of the same
// type as a pool's.
func TestRulesCostNoCreateOfClaim(t *testing.T) {
	all, err := RulesOf(root)
	must.Succeed(t, err)
	var judge func(s *schema.Structural, path string)
	judge = func(s *schema.Structural, path string) {
		for _, rule := range s.XValidations {
			if !strings.Contains(rule.Rule, "oldSelf") && !strings.Contains(path, ".poolSelector") && !strings.Contains(path, ".status.network") {
				t.Errorf("%s has a rule for creates: %s", path, rule.Rule)
			}
		}
		for name, property := range s.Properties {
			judge(&property, path+"."+name)
		}
		if s.Items != nil {
			judge(s.Items, path)
		}
	}
	for _, rules := range all {
		if rules.Kind == "IPClaim" || rules.Kind == "IPAllocation" {
			judge(rules.structural, rules.Kind)
		}
	}
}

// TestEveryCRDRuleIsBroken fails for a new rule without a spec that breaks it.
func TestEveryCRDRuleIsBroken(t *testing.T) {
	all, err := RulesOf(root)
	must.Succeed(t, err)
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
