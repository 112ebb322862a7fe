package webhooks

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// furnishStage puts more of everything on the stage: pools of another project, visible and not, a
// claim that has 10.0.0.16/28 of the pool p, and a class that no pool backs.
func furnishStage(t *testing.T, s *stage) {
	t.Helper()
	for name, pool := range map[string]ipam.Pool{
		"owned":  {Visibility: ipam.VisibilityShared, CIDR: netip.MustParsePrefix("10.1.0.0/16")},
		"hidden": {Visibility: ipam.VisibilityConsumer, CIDR: netip.MustParsePrefix("10.2.0.0/16")},
		"small":  {Visibility: ipam.VisibilityShared, CIDR: netip.MustParsePrefix("10.3.0.0/30")},
		"wires":  {Visibility: ipam.VisibilityShared, CIDR: netip.MustParsePrefix("10.5.0.0/24"), Classes: []string{"lan"}, Network: &ipam.Network{Length: 24}},
		"hosts": {Visibility: ipam.VisibilityShared, CIDR: netip.MustParsePrefix("10.4.0.0/24"), Classes: []string{"lan"}, Network: &ipam.Network{
			Length: 20, Gateway: netip.MustParseAddr("10.4.0.254"), DNSServers: []netip.Addr{netip.MustParseAddr("10.4.0.253"), netip.MustParseAddr("2001:db8::53")},
			SearchDomains: []string{"example.com"}, MTU: 9000, VLAN: 42,
		}},
	} {
		pool.Key, pool.Family, pool.Strategy, pool.Length = ipam.PoolNamed(name), ipam.IPv4, ipam.StrategyFirstFit, pool.CIDR.Bits()
		pool.Lengths, pool.OnExhaustion = ipam.Lengths{Min: 8, Max: 32}, ipam.OnExhaustionWait
		pool.Home = ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Name: "default", Family: ipam.IPv4}
		if name == "owned" || name == "hidden" {
			pool.Project, pool.Spec.UID = "others", "uid-of-"+name
		}
		s.Ledger.Describe(pool)
		s.Catalog.SetPool(pool)
		s.record(t, poolRecord(pool))
	}
	s.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "lan", Family: ipam.IPv4, Length: 32, Lengths: ipam.Lengths{Min: 16, Max: 32}}})
	s.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "six", Family: ipam.IPv6, Length: 64}})
	s.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "unbacked", Family: ipam.IPv4, Length: 28, Lengths: ipam.Lengths{Min: 16, Max: 32}, Reclaim: ipam.ReclaimDelete}})
	s.record(t, claimRecord("others", "secret", "10.0.0.16/28"))
	for _, there := range []client.Object{
		&v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "there"}},
		&v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: "secret"}},
		&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "there"}},
	} {
		must(t, s.store.Create(t.Context(), there))
	}
}

// record stores a record, and waits until the view shows it.
func (s *stage) record(t *testing.T, record ipam.Record) {
	t.Helper()
	must(t, s.store.Create(t.Context(), convert.Allocation(record)))
	for {
		if _, ok := s.Ledger.Record(record.Name); ok {
			return
		}
		<-s.changed
	}
}

func claimJSON(spec string) string {
	return `{"metadata":{"name":"c","namespace":"team"},"spec":` + spec + `}`
}

func TestClaimCreateAnswers(t *testing.T) {
	answers{
		{name: "by the default class", kind: "IPClaim", object: claimJSON(`{}`)},
		{name: "by a class, with a block", kind: "IPClaim", object: claimJSON(`{"className":"gold","cidr":"10.0.1.0/28"}`)},
		{name: "by a pool", kind: "IPClaim", object: claimJSON(`{"poolRef":{"name":"p"},"prefixLength":30}`)},
		{name: "by a selector", kind: "IPClaim", object: claimJSON(`{"poolSelector":{"matchExpressions":[{"key":"x","operator":"DoesNotExist"}]},"prefixLength":30}`)},
		{name: "by a pool that one may use", kind: "IPClaim", object: claimJSON(`{"poolRef":{"name":"owned"},"prefixLength":30}`)},
		{name: "by a pool that one may not use", kind: "IPClaim", how: unentitled, object: claimJSON(`{"poolRef":{"name":"owned"},"prefixLength":30}`)},
		{name: "by a pool that is hidden", kind: "IPClaim", object: claimJSON(`{"poolRef":{"name":"hidden"},"prefixLength":30}`)},
		{name: "with a name that is made", kind: "IPClaim", object: `{"metadata":{"generateName":"made-","namespace":"team"},"spec":{}}`},
		{name: "as a dry run", kind: "IPClaim", how: dry, object: claimJSON(`{}`)},
		{name: "of an address of a network", kind: "IPClaim", object: claimJSON(`{"poolRef":{"name":"hosts"}}`)},
		{name: "of an address of one of two networks", kind: "IPClaim", object: claimJSON(`{"className":"lan"}`)},
		{name: "of an address of the other network", kind: "IPClaim", object: claimJSON(`{"className":"lan","cidr":"10.5.0.7/32"}`)},
		{name: "of more than one address of a network", kind: "IPClaim", object: claimJSON(`{"poolRef":{"name":"hosts"},"prefixLength":30}`)},
		{name: "with a status in the request", kind: "IPClaim", object: `{"metadata":{"name":"c","namespace":"team"},"spec":{},"status":{"phase":"Bound","allocatedCIDR":"10.0.0.16/28","conditions":[{"type":"Ready","status":"True","reason":"Forged","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`},
		{name: "that waits, with a status in the request", kind: "IPClaim", object: `{"metadata":{"name":"c","namespace":"team"},"spec":{"className":"missing"},"status":{"phase":"Bound","allocatedCIDR":"10.0.0.16/28"}}`},
		{name: "with a status that is none", kind: "IPClaim", object: `{"metadata":{"name":"c","namespace":"team"},"spec":{"poolRef":{"name":"p"},"prefixLength":30},"status":{"phase":"Held","conditions":[{}]}}`},
		{name: "with annotations that only the operator may write", kind: "IPClaim", how: unentitled, object: `{"metadata":{"name":"c","namespace":"team","annotations":{"ipam.cadastre.dev/use-granted":"owned","ipam.cadastre.dev/requester":"forged","ipam.cadastre.dev/requested-by":"forged","a":"b"}},"spec":{"poolRef":{"name":"owned"},"prefixLength":30}}`},
		{name: "with the record and the block of another's", kind: "IPClaim", object: claimJSON(`{"cidr":"10.0.0.16/28","allocationName":"secret-12345678"}`)},
		{name: "with a record alone", kind: "IPClaim", object: claimJSON(`{"allocationName":"secret-12345678"}`)},
		{name: "of a class that is missing", kind: "IPClaim", object: claimJSON(`{"className":"missing","cidr":"10.0.1.0/28"}`)},
		{name: "of a class without pools", kind: "IPClaim", object: claimJSON(`{"className":"unbacked"}`)},
		{name: "of a block that another has", kind: "IPClaim", object: claimJSON(`{"cidr":"10.0.0.16/28"}`)},
		{name: "of a block outside", kind: "IPClaim", object: claimJSON(`{"poolRef":{"name":"p"},"cidr":"10.9.0.0/28"}`)},
		{name: "of more than there is", kind: "IPClaim", object: claimJSON(`{"prefixLength":16}`)},
		{name: "of more than the pool is", kind: "IPClaim", object: claimJSON(`{"poolRef":{"name":"small"},"prefixLength":29}`)},
		{name: "of a length that is not allowed", kind: "IPClaim", object: claimJSON(`{"className":"gold","prefixLength":8}`)},
		{name: "of the other family", kind: "IPClaim", object: claimJSON(`{"className":"gold","ipFamily":"IPv6"}`)},
		{name: "to be retained", kind: "IPClaim", object: claimJSON(`{"reclaimPolicy":"Retain"}`)},
		{name: "that exists", kind: "IPClaim", object: `{"metadata":{"name":"there","namespace":"team"},"spec":{}}`},
		{name: "with a name that is none", kind: "IPClaim", object: `{"metadata":{"name":"C_","namespace":"team"},"spec":{}}`},
		{name: "with a field of another type", kind: "IPClaim", object: claimJSON(`{"prefixLength":"24"}`)},
		{name: "with a value that is none", kind: "IPClaim", object: claimJSON(`{"ipFamily":"IPv5"}`)},
		{name: "with a block that is none", kind: "IPClaim", object: claimJSON(`{"cidr":"10.0.0.1/28"}`)},
		{name: "that is null", kind: "IPClaim", object: `null`},
		{name: "that returns before its pool", kind: "IPClaim", object: claimJSON(`{"cidr":"10.9.0.0/28","allocationName":"c-12345678"}`)},
		{name: "that returns to its record", kind: "IPClaim", object: `{"metadata":{"name":"back","namespace":"team"},"spec":{"className":"gold","cidr":"10.0.0.32/28","allocationName":"back-12345678"}}`},
		{name: "as a dry run, of more than there is", kind: "IPClaim", how: dry, object: claimJSON(`{"poolRef":{"name":"p"},"prefixLength":16}`)},
		{name: "as a dry run, by a pool that one may not use", kind: "IPClaim", how: dry | unentitled, object: claimJSON(`{"poolRef":{"name":"owned"},"prefixLength":30}`)},
		{name: "as a dry run, by a pool that one may use", kind: "IPClaim", how: dry, object: claimJSON(`{"poolRef":{"name":"owned"},"prefixLength":30}`)},
		{name: "as a dry run, of more than the pool is", kind: "IPClaim", how: dry, object: claimJSON(`{"poolRef":{"name":"small"},"prefixLength":29}`)},
		{name: "of one address, by a selector", kind: "IPClaim", object: claimJSON(`{"poolSelector":{"matchExpressions":[{"key":"x","operator":"DoesNotExist"}]}}`)},
		{name: "without a namespace in it", kind: "IPClaim", object: `{"metadata":{"name":"c"},"spec":{}}`},
		{name: "that forges the right to use a pool", kind: "IPClaim", how: unentitled, object: `{"metadata":{"name":"c","annotations":{"ipam.cadastre.dev/use-granted":"p"}},"spec":{"poolRef":{"name":"p"},"prefixLength":30}}`},
		{name: "that forges its requester", kind: "IPClaim", object: `{"metadata":{"name":"c","annotations":{"ipam.cadastre.dev/requested-by":"system:serviceaccount:a:forged"}},"spec":{"poolRef":{"name":"p"},"prefixLength":30}}`},
		{name: "of a class that was just made", kind: "IPClaim", object: claimJSON(`{"className":"new"}`)},
		{name: "while classes cannot be read", kind: "IPClaim", fails: "get IPClass", object: claimJSON(`{"className":"missing"}`)},
		{name: "while pools cannot be listed", kind: "IPClaim", fails: "list IPPoolList", object: claimJSON(`{"className":"unbacked"}`)},
		{name: "while claims cannot be read", kind: "IPClaim", fails: "get IPClaim", object: claimJSON(`{}`)},
		{name: "while claims are read too slowly", kind: "IPClaim", late: "get IPClaim", object: claimJSON(`{}`)},
		{name: "while pools are listed too slowly", kind: "IPClaim", late: "list IPPoolList", object: claimJSON(`{"className":"unbacked"}`)},
		{name: "while rights cannot be reviewed", kind: "IPClaim", fails: "create SubjectAccessReview", object: claimJSON(`{"poolRef":{"name":"owned"},"prefixLength":30}`)},
		{name: "while nothing can be recorded", kind: "IPClaim", fails: "create IPAllocation", object: claimJSON(`{}`)},
	}.check(t, "claim-created.txt", func(t *testing.T, s *stage) {
		t.Helper()
		furnishStage(t, s)
		s.record(t, claimRecord("team", "back", "10.0.0.32/28"))
		must(t, s.store.Create(t.Context(), &v1alpha1.IPClass{
			ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: v1alpha1.IPClassSpec{Provisioner: v1alpha1.NativeProvisioner, IPFamily: v1alpha1.IPv4},
		}))
	})
}

func TestClaimUpdateVerdicts(t *testing.T) {
	const going = `{"metadata":{"name":"c","namespace":"team","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidr":"10.0.0.0/28"}}`
	const judged = updating | validating
	retained := func(spec string) string {
		return claimJSON(`{"poolRef":{"name":"p"},"reclaimPolicy":"Retain"` + spec + `}`)
	}
	answers{
		{name: "nothing changes", kind: "IPClaim", how: judged, object: claimJSON(`{}`), old: claimJSON(`{}`)},
		{name: "a class is filled in", kind: "IPClaim", how: judged, object: claimJSON(`{"className":"gold"}`), old: claimJSON(`{}`)},
		{name: "a block and a record are filled in", kind: "IPClaim", how: judged, object: claimJSON(`{"cidr":"10.0.0.0/28","allocationName":"x"}`), old: claimJSON(`{}`)},
		{name: "they are, by the operator", kind: "IPClaim", how: judged, user: operator, object: claimJSON(`{"cidr":"10.0.0.0/28","allocationName":"x"}`), old: claimJSON(`{}`)},
		{name: "a block is, and it is going", kind: "IPClaim", how: judged, object: going, old: claimJSON(`{}`)},
		{name: "a block was, and another field changes", kind: "IPClaim", how: judged, object: claimJSON(`{"cidr":"10.0.0.0/28","reclaimPolicy":"Delete"}`), old: claimJSON(`{"cidr":"10.0.0.0/28"}`)},
		{name: "it is to be retained, which its pool does not allow", kind: "IPClaim", how: judged, object: retained(""), old: claimJSON(`{"poolRef":{"name":"p"}}`)},
		{name: "it was to be retained before", kind: "IPClaim", how: judged, object: retained(""), old: retained("")},
		{name: "it is to be retained, with a block that is none", kind: "IPClaim", how: judged, object: retained(`,"cidr":"10.0.0.1/28"`), old: claimJSON(`{"poolRef":{"name":"p"},"cidr":"10.0.0.1/28"}`)},
	}.check(t, "claim-judged.txt", furnishStage)
}

func TestClaimUpdateKeepsDefaultedFields(t *testing.T) {
	const filled = `{"metadata":{"name":"c","namespace":"team"},"spec":{"className":"gold","ipFamily":"IPv4","prefixLength":28,"cidr":"10.0.0.0/28","allocationName":"c-12345678","reclaimPolicy":"Delete"}}`
	answers{
		{name: "all is left out", kind: "IPClaim", how: updating, object: claimJSON(`{}`), old: filled},
		{name: "nothing is", kind: "IPClaim", how: updating, object: filled, old: filled},
		{name: "something differs", kind: "IPClaim", how: updating, object: claimJSON(`{"className":"other","reclaimPolicy":"Retain"}`), old: filled},
		{name: "the status is left out", kind: "IPClaim", how: updating, object: filled, old: addClaimStatus(filled)},
		{name: "the status is emptied", kind: "IPClaim", how: updating, object: strings.TrimSuffix(filled, "}") + `,"status":{}}`, old: addClaimStatus(filled)},
		{name: "the status is null", kind: "IPClaim", how: updating, object: strings.TrimSuffix(filled, "}") + `,"status":null}`, old: addClaimStatus(filled)},
		{name: "the status differs", kind: "IPClaim", how: updating, object: strings.TrimSuffix(filled, "}") + `,"status":{"phase":"Pending"}}`, old: addClaimStatus(filled)},
		{name: "the allocation is that of another cluster", kind: "IPClaim", how: updating, object: strings.Replace(filled, `"allocationName":"`, `"allocationName":"other-`, 1), old: filled},
		{name: "it had nothing", kind: "IPClaim", how: updating, object: claimJSON(`{}`), old: claimJSON(`{}`)},
		{name: "the notes about its creator are left out", kind: "IPClaim", how: updating, object: claimJSON(`{}`), old: addNotes(claimJSON(`{}`))},
		{name: "they are removed from its annotations", kind: "IPClaim", how: updating, object: strings.Replace(claimJSON(`{}`), `{"name"`, `{"annotations":{"x":"y"},"name"`, 1), old: addNotes(claimJSON(`{}`))},
		{name: "the old is no JSON", kind: "IPClaim", how: updating, object: claimJSON(`{}`), old: `{`},
	}.check(t, "claim-updated.txt", func(*testing.T, *stage) {})
}

// addClaimStatus returns an object with the status of a claim that is Bound.
func addClaimStatus(object string) string {
	return strings.TrimSuffix(object, "}") + `,"status":{"phase":"Bound","allocatedCIDR":"10.0.0.0/28"}}`
}

// addNotes returns an object with the notes that admission makes about the creator of one that waits.
func addNotes(object string) string {
	return strings.Replace(object, `{"name"`, `{"annotations":{"ipam.cadastre.dev/use-granted":"owned","ipam.cadastre.dev/requested-by":"alice"},"name"`, 1)
}

func poolJSON(name, spec string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

func TestPoolCreateAnswers(t *testing.T) {
	const child = `{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":26}`
	answers{
		{name: "a root", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/16"}`)},
		{name: "a root of a routing domain", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.0.0.0/16","routingDomain":"lab"}`)},
		{name: "a root that overlaps another", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.0.4.0/24"}`)},
		{name: "a root that overlaps a pool of another project", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.2.4.0/24"}`)},
		{name: "a root as a dry run", kind: "IPPool", how: dry, object: poolJSON("q", `{"cidr":"10.9.0.0/16"}`)},
		{name: "a root of a namespace's own", kind: "LocalIPPool", object: poolJSON("own", `{"cidr":"10.0.0.0/16"}`)},
		{name: "a root of IPv6", kind: "IPPool", object: poolJSON("q", `{"cidr":"2001:db8::/48"}`)},
		{name: "with our finalizer", kind: "IPPool", object: `{"metadata":{"name":"q","finalizers":["x","` + v1alpha1.FinalizerPool + `"]},"spec":{"cidr":"10.9.0.0/16"}}`},
		{name: "with another finalizer", kind: "IPPool", object: `{"metadata":{"name":"q","finalizers":["x"]},"spec":{"cidr":"10.9.0.0/16"}}`},
		{name: "a child", kind: "IPPool", object: poolJSON("q", child)},
		{name: "a child as a dry run", kind: "IPPool", how: dry, object: poolJSON("q", child)},
		{name: "a child of a namespace's own, by one who may", kind: "LocalIPPool", object: poolJSON("own", child)},
		{name: "a child of a namespace's own, by one who may not", kind: "LocalIPPool", how: unentitled, object: poolJSON("own", child)},
		{name: "a child of a pool that is missing", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"missing"},"prefixLength":26}`)},
		{name: "a child of itself", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"q"},"prefixLength":26}`)},
		{name: "a child that is larger than its parent", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":8}`)},
		{name: "a child whose ranges are not in what it is given", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":26,"ranges":["10.0.9.1-10.0.9.9"]}`)},
		{name: "that forges a right", kind: "LocalIPPool", how: unentitled, object: `{"metadata":{"name":"own","annotations":{"ipam.cadastre.dev/use-granted":"p","ipam.cadastre.dev/requested-by":"system:serviceaccount:a:forged"}},"spec":` + child + `}`},
		{name: "with classes that are missing, or of the other family", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/16","classNames":["gold","six","a","b","c","d","e","f"]}`)},
		{name: "with a name server that is none", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/16","network":{"prefixLength":16,"dnsServers":["10.9.0.1","dns"]}}`)},
		{name: "with an MTU that IPv6 does not have", kind: "IPPool", object: poolJSON("q", `{"cidr":"2001:db8::/64","network":{"prefixLength":64,"mtu":1279}}`)},
		{name: "with a network", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/16","network":{"prefixLength":16,"gateway":"10.9.0.1","dnsServers":["2001:db8::53"],"searchDomains":["example.com"],"mtu":68,"vlan":4094}}`)},
		{name: "with a gateway outside", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/16","network":{"prefixLength":16,"gateway":"10.8.0.1"}}`)},
		{name: "with a gateway at the edge of its subnet", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/24","network":{"prefixLength":24,"gateway":"10.9.0.255"}}`)},
		{name: "of ranges", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/24","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.50"]}`)},
		{name: "of ranges as a dry run", kind: "IPPool", how: dry, object: poolJSON("q", `{"cidr":"10.9.0.0/24","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.50"]}`)},
		{name: "of ranges that another pool has a part of", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.0.0.0/8","occupies":"Ranges","ranges":["10.9.0.1","10.0.7.0/30"]}`)},
		{name: "of ranges of all of its parent", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"cidr":"10.0.0.0/16","occupies":"Ranges","ranges":["10.0.9.1-10.0.9.9"]}`)},
		{name: "of ranges, without what it needs", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":24,"occupies":"Ranges"}`)},
		{name: "of ranges of too many blocks", kind: "IPPool", object: poolJSON("q", `{"cidr":"2001:db8::/32","occupies":"Ranges","ranges":["2001:db8::1-2001:db8:ffff:ffff:ffff:ffff:ffff:fffe"]}`)},
		{name: "that occupies what is not known", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/24","occupies":"Some"}`)},
		{name: "without anything", kind: "IPPool", object: poolJSON("q", `{}`)},
		{name: "with a time that is none", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/16","reuseDelay":"soon"}`)},
		{name: "with a name that is none", kind: "IPPool", object: poolJSON("Q_", `{"cidr":"10.9.0.0/16"}`)},
		{name: "with a name that is made", kind: "IPPool", object: `{"metadata":{"generateName":"made-"},"spec":{"cidr":"10.9.0.0/16"}}`},
		{name: "with a value that is none", kind: "IPPool", object: poolJSON("q", `{"cidr":"10.9.0.0/16","onExhaustion":"Panic"}`)},
		{name: "a child as a dry run, whose ranges are not in what it is given", kind: "IPPool", how: dry, object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":26,"ranges":["10.0.9.1-10.0.9.9"]}`)},
		{name: "a child with its CIDR, whose ranges are not in it", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"cidr":"10.0.0.64/26","ranges":["10.0.9.1-10.0.9.9"]}`)},
		{name: "a child with its CIDR", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"cidr":"10.0.0.64/26"}`)},
		{name: "a child of another project's pool, by one who may not", kind: "LocalIPPool", how: unentitled, object: poolJSON("own", `{"parentRef":{"kind":"IPPool","name":"owned"},"prefixLength":26}`)},
		{name: "the same as a dry run", kind: "LocalIPPool", how: unentitled | dry, object: poolJSON("own", `{"parentRef":{"kind":"IPPool","name":"owned"},"prefixLength":26}`)},
		{name: "a child of a parent that was just made", kind: "IPPool", object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"there"},"prefixLength":26}`)},
		{name: "while pools cannot be read", kind: "IPPool", fails: "get IPPool", object: poolJSON("q", child)},
		{name: "while its parent cannot be read", kind: "LocalIPPool", fails: "get IPPool", object: poolJSON("own", `{"parentRef":{"kind":"IPPool","name":"missing"},"prefixLength":26}`)},
		{name: "while rights cannot be reviewed", kind: "LocalIPPool", fails: "create SubjectAccessReview", object: poolJSON("own", child)},
		{name: "while nothing can be recorded", kind: "IPPool", fails: "create IPAllocation", object: poolJSON("q", child)},
		{name: "that exists", kind: "IPPool", object: poolJSON("there", `{"cidr":"10.9.0.0/16"}`)},
	}.check(t, "pool-created.txt", furnishStage)
}

func TestPoolUpdateAnswers(t *testing.T) {
	before := poolJSON("q", `{"cidr":"10.9.0.0/16","ipFamily":"IPv4"}`)
	answers{
		{name: "the notes about its creator are left out", kind: "LocalIPPool", how: updating, object: before, old: addNotes(before)},
		{name: "nothing changes", kind: "IPPool", how: updating | validating, object: before, old: before},
		{name: "it names classes now", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"cidr":"10.9.0.0/16","ipFamily":"IPv4","classNames":["gold","nothing","six"]}`), old: before},
		{name: "its ranges are outside", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"cidr":"10.9.0.0/16","ipFamily":"IPv4","ranges":["10.8.0.0/24"]}`), old: before},
		{name: "its visibility alone changes", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"cidr":"10.9.0.0/16","ipFamily":"IPv4","visibility":"Consumer"}`), old: before},
		{name: "it is going", kind: "IPPool", how: updating | validating, object: `{"metadata":{"name":"q","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidr":"10.9.0.0/16","ranges":["10.8.0.0/24"]}}`, old: before},
		{name: "its project alone changes, and its ranges are outside", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"cidr":"10.9.0.0/16","project":"b","ranges":["10.8.0.0/24"]}`), old: poolJSON("q", `{"cidr":"10.9.0.0/16","project":"a","ranges":["10.8.0.0/24"]}`)},
		{name: "it occupies more ranges", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"cidr":"10.9.0.0/16","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.60"]}`), old: poolJSON("q", `{"cidr":"10.9.0.0/16","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.50"]}`)},
		{name: "it occupies ranges that another pool has", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"cidr":"10.0.0.0/8","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.50","10.0.7.1"]}`), old: poolJSON("q", `{"cidr":"10.0.0.0/8","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.50"]}`)},
		{name: "it occupies ranges that it has itself, without its UID", kind: "IPPool", how: updating | validating, object: poolJSON("p", `{"cidr":"10.0.0.0/16","occupies":"Ranges","ranges":["10.0.9.0/24"]}`), old: poolJSON("p", `{"cidr":"10.0.0.0/16","occupies":"Ranges","ranges":["10.0.8.0/24"]}`)},
		{name: "it occupies ranges of a parent that is missing", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"missing"},"cidr":"10.0.0.0/8","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.51"]}`), old: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"missing"},"cidr":"10.0.0.0/8","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.50"]}`)},
		{name: "it occupies ranges outside of its parent", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"cidr":"10.0.0.0/8","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.51"]}`), old: poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"p"},"cidr":"10.0.0.0/8","occupies":"Ranges","ranges":["10.9.0.10-10.9.0.50"]}`)},
		{name: "nothing changes, and its ranges are outside", kind: "IPPool", how: updating | validating, object: poolJSON("q", `{"cidr":"10.9.0.0/16","project":"a","ranges":["10.8.0.0/24"]}`), old: poolJSON("q", `{"cidr":"10.9.0.0/16","project":"a","ranges":["10.8.0.0/24"]}`)},
	}.check(t, "pool-updated.txt", furnishStage)
}

func TestPoolDeleteAnswers(t *testing.T) {
	answers{
		{name: "nothing is in it", kind: "IPPool", how: validating | dry, object: poolJSON("owned", `{"cidr":"10.1.0.0/16"}`)},
		{name: "a claim is in it", kind: "IPPool", how: validating | dry, object: poolJSON("p", `{"cidr":"10.0.0.0/16"}`)},
		{name: "it is going already", kind: "IPPool", how: validating | dry, object: `{"metadata":{"name":"p","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidr":"10.0.0.0/16"}}`},
		{name: "claims are read too slowly", kind: "IPPool", how: validating | dry, late: "get IPClaim", object: poolJSON("p", `{"cidr":"10.0.0.0/16"}`)},
		{name: "claims cannot be read", kind: "IPPool", how: validating | dry, fails: "get IPClaim", object: poolJSON("p", `{"cidr":"10.0.0.0/16"}`)},
	}.check(t, "pool-deleted.txt", furnishStage)
}

func TestClassAnswers(t *testing.T) {
	class := func(name, annotation, spec string) string {
		return `{"metadata":{"name":"` + name + `","annotations":{"ipam.cadastre.dev/is-default-class":"` + annotation + `"}},"spec":` + spec + `}`
	}
	replacing := func(name, replaced string) string {
		return `{"metadata":{"name":"` + name + `","annotations":{"ipam.cadastre.dev/is-default-class":"true","ipam.cadastre.dev/replaces-default":"` + replaced + `"}},"spec":{"provisioner":"ipam.cadastre.dev","ipFamily":"IPv4"}}`
	}
	four, bad := `{"provisioner":"ipam.cadastre.dev","ipFamily":"IPv4"}`, `{"provisioner":"ipam.cadastre.dev","ipFamily":"IPv4","defaultPrefixLength":40}`
	answers{
		{name: "created", kind: "IPClass", object: class("n", "false", four)},
		{name: "created as a second default", kind: "IPClass", object: class("n", "true", four)},
		{name: "created as the default that replaces the other", kind: "IPClass", object: replacing("n", "first")},
		{name: "created as the default that replaces another than the default", kind: "IPClass", object: replacing("n", "second")},
		{name: "created as the default of the other family", kind: "IPClass", object: class("n", "true", `{"ipFamily":"IPv6"}`)},
		{name: "created while classes cannot be listed", kind: "IPClass", fails: "list IPClassList", object: class("n", "true", four)},
		{name: "created while classes are listed too slowly", kind: "IPClass", late: "list IPClassList", object: class("n", "true", four)},
		{name: "created with a length that is none", kind: "IPClass", object: class("n", "false", bad)},
		{name: "created with a time that is none", kind: "IPClass", object: class("n", "false", `{"ipFamily":"IPv4","reuseDelay":"soon","retentionPeriod":"x"}`)},
		{name: "the default, updated", kind: "IPClass", how: updating, object: class("first", "true", `{"ipFamily":"IPv4","defaultPrefixLength":24}`), old: class("first", "true", four)},
		{name: "made a second default", kind: "IPClass", how: updating, object: class("n", "true", four), old: class("n", "false", four)},
		{name: "made the default that replaces the other", kind: "IPClass", how: updating, object: replacing("n", "first"), old: class("n", "false", four)},
		{name: "the default that replaces the other, updated", kind: "IPClass", how: updating, object: replacing("n", "first"), old: replacing("n", "first")},
		{name: "the default that replaced the other, and does so no more", kind: "IPClass", how: updating, object: class("n", "true", four), old: replacing("n", "first")},
		{name: "replaced as the default, updated", kind: "IPClass", how: updating, object: class("second", "true", `{"ipFamily":"IPv4","defaultPrefixLength":24}`), old: class("second", "true", four)},
		{name: "bad before, and not changed", kind: "IPClass", how: updating, object: class("n", "false", bad), old: class("n", "false", bad)},
		{name: "made bad", kind: "IPClass", how: updating, object: class("n", "false", bad), old: class("n", "false", four)},
		{name: "going, and made bad", kind: "IPClass", how: updating, object: `{"metadata":{"name":"n","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":` + bad + `}`, old: class("n", "false", four)},
		{name: "with an old one that is none", kind: "IPClass", how: updating, object: class("n", "false", four), old: `[]`},
		{name: "deleted while claims wait", kind: "IPClass", how: validating | dry, object: class("unbacked", "false", four)},
		{name: "deleted, and no claim waits", kind: "IPClass", how: validating | dry, object: class("gold", "false", four)},
		{name: "deleted again", kind: "IPClass", how: validating | dry, object: `{"metadata":{"name":"unbacked","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":` + four + `}`},
	}.check(t, "class.txt", func(t *testing.T, s *stage) {
		t.Helper()
		furnishStage(t, s)
		first := &v1alpha1.IPClass{Spec: v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4}}
		first.Name, first.Annotations = "first", map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
		must(t, s.store.Create(t.Context(), first))
		other := &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Spec: first.Spec} // is never a default
		must(t, s.store.Create(t.Context(), other))
		for _, name := range []string{"w1", "w2", "w3", "w4"} {
			claim := ipam.Name{Namespace: "team", Name: name}
			s.Queue.Wait(queue.Waiter{Holder: convert.HolderOfClaim(claim), Request: ipam.Request{Claim: claim, Class: "unbacked"}})
		}
	})
}

func TestClusterAPIObjectAnswers(t *testing.T) {
	object := func(meta, group, kind, name, more string) string {
		return `{"metadata":` + meta + `,"spec":{"poolRef":{"apiGroup":"` + group + `","kind":"` + kind + `","name":"` + name + `"}` + more + `}}`
	}
	const ours, named = "ipam.cadastre.dev", `{"name":"a","namespace":"team"}`
	at := func(address string) string { return `,"address":"` + address + `","prefix":24` }
	answers{
		{name: "a claim", kind: "IPAddressClaim", object: object(named, ours, "IPPool", "p", "")},
		{name: "a claim of a class", kind: "IPAddressClaim", object: object(named, ours, "IPClass", "gold", "")},
		{name: "a claim with a name that is made", kind: "IPAddressClaim", how: unentitled, object: object(`{"generateName":"made-","namespace":"team"}`, ours, "IPPool", "owned", "")},
		{name: "a claim with our finalizer", kind: "IPAddressClaim", object: object(`{"name":"a","finalizers":["`+v1alpha1.FinalizerRelease+`"]}`, ours, "IPPool", "p", "")},
		{name: "a claim of a pool that one may use", kind: "IPAddressClaim", object: object(named, ours, "IPPool", "owned", "")},
		{name: "a claim of a pool that one may not use", kind: "IPAddressClaim", how: unentitled, object: object(named, ours, "IPPool", "owned", "")},
		{name: "a claim of a pool that may come", kind: "IPAddressClaim", object: object(named, ours, "IPPool", "missing", "")},
		{name: "a claim that forges a right", kind: "IPAddressClaim", how: unentitled, object: object(`{"name":"a","annotations":{"ipam.cadastre.dev/use-granted":"p"}}`, ours, "IPPool", "p", "")},
		{name: "a claim that forges the right to use its pool", kind: "IPAddressClaim", how: unentitled, object: object(`{"name":"a","annotations":{"ipam.cadastre.dev/use-granted":"owned"}}`, ours, "IPPool", "owned", "")},
		{name: "a claim that forges its requester", kind: "IPAddressClaim", object: object(`{"name":"a","annotations":{"ipam.cadastre.dev/requested-by":"system:serviceaccount:a:forged"}}`, ours, "IPPool", "p", "")},
		{name: "a claim of another provider", kind: "IPAddressClaim", object: object(named, "example.com", "Pool", "p", "")},
		{name: "a claim of a kind that there is not", kind: "IPAddressClaim", object: object(named, ours, "IPPol", "p", "")},
		{name: "a claim of an address that is none", kind: "IPAddressClaim", object: object(`{"name":"a","annotations":{"ipam.cadastre.dev/address":"10.0.0.1/24"}}`, ours, "IPPool", "p", "")},
		{name: "a claim, which leaves the notes about its creator out", kind: "IPAddressClaim", how: updating, object: object(named, ours, "IPPool", "owned", ""), old: addNotes(object(named, ours, "IPPool", "owned", ""))},
		{name: "an address", kind: "IPAddress", object: object(named, ours, "IPPool", "p", at("10.0.0.7"))},
		{name: "an address as a dry run", kind: "IPAddress", how: dry, object: object(named, ours, "IPPool", "p", at("10.0.0.7"))},
		{name: "an address that another has", kind: "IPAddress", object: object(named, ours, "IPPool", "p", at("10.0.0.17"))},
		{name: "an address outside", kind: "IPAddress", object: object(named, ours, "IPPool", "p", at("10.9.0.7"))},
		{name: "an address that is none", kind: "IPAddress", object: object(named, ours, "IPPool", "p", at("x"))},
		{name: "an address of a pool that is hidden", kind: "IPAddress", object: object(named, ours, "IPPool", "hidden", at("10.2.0.7"))},
		{name: "an address of a class", kind: "IPAddress", object: object(named, ours, "IPClass", "gold", at("10.0.0.7"))},
		{name: "an address of a class, with its pool", kind: "IPAddress", object: object(`{"name":"a","labels":{"ipam.cadastre.dev/pool":"p","ipam.cadastre.dev/pool-kind":"IPPool"}}`, ours, "IPClass", "gold", at("10.0.0.7"))},
		{name: "a claim while rights cannot be reviewed", kind: "IPAddressClaim", fails: "create SubjectAccessReview", object: object(named, ours, "IPPool", "owned", "")},
		{name: "a claim while rights are reviewed too slowly", kind: "IPAddressClaim", late: "create SubjectAccessReview", object: object(named, ours, "IPPool", "owned", "")},
		{name: "an address while nothing can be recorded", kind: "IPAddress", fails: "create IPAllocation", object: object(named, ours, "IPPool", "p", at("10.0.0.7"))},
		{name: "an address of another provider", kind: "IPAddress", object: object(named, "example.com", "Pool", "p", at("10.0.0.7"))},
	}.check(t, "cluster-api.txt", furnishStage)
}

func TestAllocationDeleteAnswers(t *testing.T) {
	record := func(state, claim string) string {
		return `{"metadata":{"name":"a-12345678","namespace":"team"},"spec":{"cidr":"10.0.0.0/28","ipFamily":"IPv4","poolRef":{"kind":"IPPool","name":"p"},"purpose":"Claim","reclaimPolicy":"Delete","state":"` + state + `","claimRef":` + claim + `}}`
	}
	const claim = `{"apiGroup":"ipam.cadastre.dev","kind":"IPClaim","name":"a"}`
	answers{
		{name: "of a claim", kind: "IPAllocation", how: validating | dry, object: record("Bound", claim)},
		{name: "retained", kind: "IPAllocation", how: validating | dry, object: record("Retained", claim)},
		{name: "that cannot be read", kind: "IPAllocation", how: validating | dry, object: strings.Replace(record("Bound", claim), "10.0.0.0/28", "x", 1)},
		{name: "of a claim, by the operator", kind: "IPAllocation", how: validating | dry, user: operator, object: record("Bound", claim)},
		{name: "that is going", kind: "IPAllocation", how: validating | dry, object: strings.Replace(record("Bound", claim), `"namespace"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","namespace"`, 1)},
	}.check(t, "allocation-deleted.txt", furnishStage)
}
