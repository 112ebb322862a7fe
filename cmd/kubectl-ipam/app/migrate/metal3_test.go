package migrate

import (
	"reflect"
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

const metal3Held = metal3Pool + `
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {namespace: team, name: m-0, finalizers: [ipam.metal3.io/ipaddressclaim]}
spec: {poolRef: {apiGroup: ipam.metal3.io, kind: IPPool, name: hosts}}
status: {addressRef: {name: hosts-192-168-0-12}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata: {namespace: team, name: hosts-192-168-0-12, finalizers: [ipam.metal3.io/ipaddress]}
spec: {address: 192.168.0.12, prefix: 24, gateway: 192.168.0.1, claimRef: {name: m-0}, poolRef: {apiGroup: ipam.metal3.io, kind: IPPool, name: hosts}}
---
apiVersion: ipam.metal3.io/v1alpha1
kind: IPClaim
metadata: {namespace: team, name: own}
spec: {pool: {name: hosts}}
---
apiVersion: ipam.metal3.io/v1alpha1
kind: IPAddress
metadata: {namespace: team, name: hosts-192-168-0-13}
spec: {address: 192.168.0.13, claim: {name: own}, pool: {name: hosts}}
`

func TestMetal3PoolBecomesLocalPool(t *testing.T) {
	pp := newPlan(metal3(), Options{}, stateOf(t, metal3Held)).pools[0]
	if len(pp.problems) > 0 {
		t.Fatal(pp.problems)
	}
	want := v1alpha1.PoolSpec{
		CIDR: "192.168.0.0/24", Ranges: []string{"192.168.0.10-192.168.0.99", "192.168.0.200-192.168.0.255"}, Reserved: []string{"192.168.0.13", "192.168.0.20"},
		Network: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "192.168.0.1", HostSettings: v1alpha1.HostSettings{DNSServers: []string{"8.8.8.8"}}},
	}
	equal(t, want, *pp.pool.PoolSpec())
	if pp.pool.GetName() == "hosts" {
		t.Error("the pool has the name of Metal3's, whose provider then serves its claims")
	}
	if pp.pool.GetLabels()[v1alpha1.LabelCluster] != "c1" {
		t.Error("the pool does not belong to the Cluster")
	}
	e := pp.entries[0]
	if e.To.Address.GetName() != "m-0" || e.To.Address.GetFinalizers()[0] != v1alpha1.FinalizerProtect || len(e.To.Address.GetFinalizers()) != 1 {
		t.Errorf("the IPAddress becomes %v, want the name of its claim and our finalizer alone", e.To.Address.Object)
	}
}

func TestPoolNameUsedByMetal3IsRejected(t *testing.T) {
	pp := newPlan(metal3(), Options{Suffix: new("")}, stateOf(t, metal3Held)).pools[0]
	want := []string{"the metal3 provider has a pool named hosts, and serves all claims that name one of that name, whatever its API group: choose another suffix"}
	equal(t, want, pp.problems)
}

func TestClosedMetal3PoolHasNoFreeAddress(t *testing.T) {
	pp := newPlan(metal3(), Options{}, stateOf(t, metal3Held)).pools[0]
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
	for name, test := range map[string]struct{ pools, want string }{
		"another gateway": {`[{start: 10.0.0.1, end: 10.0.0.9}, {start: 10.0.0.20, end: 10.0.0.30, gateway: 10.0.0.254}]`,
			"spec.pools[1]: has another prefix, gateway or other dnsServers than spec.pools[0], and a pool of Cadastre has one of each: split it into two pools"},
		"no end": {`[{start: 10.0.0.1}]`, "spec.pools[0]: has neither a subnet, nor both start and end: set end"},
		"none":   {`[]`, "spec.pools: is empty: there is nothing to hand out"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := objects(t, "kind: IPPool\napiVersion: ipam.metal3.io/v1alpha1\nspec: {prefix: 24, pools: "+test.pools+"}")[0]
			if _, err := readMetal3(pool); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestAddressReleasedByMetal3IsUnreserved(t *testing.T) {
	pp := newPlan(metal3(), Options{}, stateOf(t, metal3Held)).pools[0]
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
