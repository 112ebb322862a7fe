package migrate

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

const metal3Pool = `
apiVersion: ipam.metal3.io/v1alpha1
kind: IPPool
metadata: {namespace: team, name: hosts}
spec:
  clusterName: c1
  namePrefix: hosts
  prefix: 24
  gateway: 192.168.0.1
  dnsServers: [8.8.8.8]
  pools:
  - {start: 192.168.0.10, end: 192.168.0.99}
  - {start: 192.168.0.200, subnet: 192.168.0.0/24}
  preAllocations: {special: 192.168.0.20}
`

// metal3Held has claims of Cluster API, and the address of one of Metal3's own kind.
const metal3Held = claims + `
---
apiVersion: ipam.metal3.io/v1alpha1
kind: IPAddress
metadata: {namespace: team, name: hosts-192-168-0-13}
spec: {address: 192.168.0.13, claim: {name: own}, pool: {name: hosts}}
`

func TestMetal3PoolBecomesLocalPool(t *testing.T) {
	pp := planOf(stateOf(t, metal3Held)).pools[0]
	if len(pp.problems) > 0 {
		t.Fatal(pp.problems)
	}
	want := v1alpha1.PoolSpec{
		CIDR: "192.168.0.0/24", Ranges: []string{"192.168.0.10-192.168.0.99", "192.168.0.200-192.168.0.255"}, Reserved: []string{"192.168.0.13", "192.168.0.20"},
		Network: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "192.168.0.1", HostSettings: v1alpha1.HostSettings{DNSServers: []string{"8.8.8.8"}}},
	}
	equal(t, want, *pp.pool.PoolSpec())
	equal(t, "team/hosts-cadastre", keyOf(pp.pool).String()) // Metal3 serves the claims of a pool of the same name
	equal(t, map[string]string{v1alpha1.LabelCluster: "c1", labelImport: importMetal3}, pp.pool.GetLabels())
	if pp.pool.GetAnnotations()[v1alpha1.AnnotationPaused] != pausedValue {
		t.Errorf("the pool is not paused: it could hand out addresses in use before they are recorded")
	}
}

func TestPoolNameUsedByMetal3IsRejected(t *testing.T) {
	st := stateOf(t, metal3Pool+"---\n"+metal3PoolOf("team", "hosts-cadastre", "{pools: [{start: 10.0.0.1, end: 10.0.0.9}], prefix: 24}"))
	want := []string{"Metal3 has a pool named hosts-cadastre, and serves all claims that name one of that name, whatever its API group: choose another suffix"}
	equal(t, want, planOf(st, "hosts").pools[0].problems)
}

func TestClosedMetal3PoolHasNoFreeAddress(t *testing.T) {
	pp := planOf(stateOf(t, metal3Held)).pools[0]
	original := pp.obj.DeepCopy()
	if err := closeMetal3(pp.obj, pp.holdings); err != nil {
		t.Fatal(err)
	}
	spec := pp.obj.Object["spec"].(map[string]any)
	want := []any{
		map[string]any{"start": "192.168.0.12", "end": "192.168.0.13"},
		map[string]any{"start": "192.168.0.20", "end": "192.168.0.20"},
	}
	equal(t, want, spec["pools"])
	// When the IPAddress of m-0 is deleted, only m-0 can get its address.
	equal(t, map[string]any{"m-0": "192.168.0.12", "special": "192.168.0.20"}, spec["preAllocations"])
	closed := pp.obj.DeepCopy()
	if err := closeMetal3(pp.obj, pp.holdings); err != nil || !reflect.DeepEqual(closed, pp.obj) {
		t.Errorf("closing once more: %v\n%s", err, cmp.Diff(closed.Object, pp.obj.Object))
	}
	if again, err := readMetal3(pp.obj); err != nil || !again.addresses.Equal(pp.addresses) {
		t.Errorf("a closed pool is read as %v, %v, want the state before", textsOf(again.addresses), err)
	}
	if err := reopenMetal3(pp.obj); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(pp.obj.Object, "metadata", "annotations")
	equal(t, original.Object, pp.obj.Object)
}

func TestMetal3MappingProblemsAreReported(t *testing.T) {
	const subnet = `{pools: [{start: 10.0.0.0, end: 10.0.0.255}], prefix: 24}`
	address := func(name, addr string) string {
		return "\n---\napiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddress\nmetadata: {namespace: a, name: " + name + "}\n" +
			"spec: {address: " + addr + ", claimRef: {name: " + name + "}, poolRef: {apiGroup: ipam.metal3.io, kind: IPPool, name: p}}"
	}
	for name, test := range map[string]struct{ text, want string }{
		"another gateway": {`{pools: [{start: 10.0.0.1, end: 10.0.0.9}, {start: 10.0.0.20, end: 10.0.0.30, gateway: 10.0.0.254}], prefix: 24}`,
			"spec.pools[1]: has another prefix, gateway or other dnsServers than spec.pools[0], and a pool of Cadastre has one of each: split it into two pools"},
		"no end":                    {`{pools: [{start: 10.0.0.1}], prefix: 24}`, "spec.pools[0]: has neither a subnet, nor both start and end: set end"},
		"a range that is none":      {`{pools: [{start: 10.0.0.9, end: 10.0.0.1}], prefix: 24}`, "spec.pools[0]: begins with 10.0.0.9 and ends with 10.0.0.1: correct start or end"},
		"no ranges":                 {`{pools: [], prefix: 24}`, "spec.pools: is empty: there is nothing to hand out"},
		"addresses of two subnets":  {`{pools: [{start: 10.0.0.1, end: 10.0.1.1}], prefix: 24}`, "spec.pools: 10.0.0.1 and 10.0.1.1 do not lie in one subnet of length 24: split it into two pools, one for each CIDR"},
		"addresses of two families": {`{pools: [{start: 10.0.0.1, end: 10.0.0.1}, {start: "2001:db8::1", end: "2001:db8::1"}], prefix: 24}`, "spec.pools: has addresses of both families: split it into two pools"},
		"no length":                 {`{pools: [{start: 10.0.0.1, end: 10.0.0.9}], prefix: 33}`, "spec.prefix: 33 is not the length of a subnet: correct it"},
		"a preallocated name":       {`{pools: [{start: 10.0.0.1, end: 10.0.0.9}], prefix: 24, preAllocations: {m: x}}`, `spec.preAllocations[m]: "x" is not an IP address: write one such as 10.0.0.1`},
		"a gateway elsewhere":       {`{pools: [{start: 10.0.0.9, end: 10.0.0.9}], prefix: 24, gateway: 10.0.1.1}`, `spec.network.gateway: Invalid value: "10.0.1.1": is not an address of the subnet 10.0.0.0/24: correct it, or correct prefixLength`},
		"an address twice":          {subnet + address("x", "10.0.0.7") + address("z", "10.0.0.7"), "10.0.0.7 is held twice, by ipam.cadastre.dev/x and by ipam.cadastre.dev/z: delete one of the two"},
		"a claim with two":          {subnet + address("x", "10.0.0.7") + strings.Replace(address("x", "10.0.0.8"), "name: x", "name: z", 1), "IPAddresses a/x and a/z are both for the IPAddressClaim a/x: delete one of the two"},
		"an address elsewhere":      {subnet + address("x", "10.0.1.7"), "10.0.1.7, held by ipam.cadastre.dev/x, lies outside 10.0.0.0/24: delete it, or correct the pool"},
	} {
		t.Run(name, func(t *testing.T) {
			pl := planOf(stateOf(t, metal3PoolOf("a", "p", test.text)))
			equal(t, []string{test.want}, pl.pools[0].problems)
			if pl.problems() == 0 {
				t.Error("the plan has no problems")
			}
		})
	}
}

func TestAddressReleasedByMetal3IsUnreserved(t *testing.T) {
	pp := planOf(stateOf(t, metal3Held)).pools[0]
	spec := pp.pool.PoolSpec()
	if err := pp.reserveKept(); err != nil {
		t.Fatal(err)
	}
	spec.Reserved = append(spec.Reserved, "192.168.0.77") // by a person
	pp.own = nil
	if err := pp.reserveKept(); err != nil {
		t.Fatal(err)
	}
	equal(t, []string{"192.168.0.20", "192.168.0.77"}, spec.Reserved)
}
