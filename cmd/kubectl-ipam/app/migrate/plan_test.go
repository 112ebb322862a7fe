package migrate

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// objects reads the objects of a YAML stream.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for part := range strings.SplitSeq(text, "\n---\n") {
		obj := &unstructured.Unstructured{}
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(part), 4096)
		if err := decoder.Decode(obj); err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		all = append(all, obj)
	}
	return all
}

// stateOf sorts objects into the state that is read from a cluster.
func stateOf(t *testing.T, text string) state {
	t.Helper()
	st := state{clusters: map[client.ObjectKey]*unstructured.Unstructured{}}
	for _, obj := range objects(t, text) {
		switch {
		case obj.GetKind() == "IPPool":
			st.sources = append(st.sources, obj)
		case obj.GetKind() == "Cluster":
			st.clusters[keyOf(obj)] = obj
		case obj.GetKind() == kindClaim:
			st.claims = append(st.claims, obj)
		case obj.GetKind() == kindAddress && obj.GroupVersionKind().Group == addressGroup:
			st.addresses = append(st.addresses, obj)
		case obj.GetKind() == kindAddress:
			st.ownAddresses = append(st.ownAddresses, obj)
		default:
			t.Fatalf("no place for %s", obj.GetKind())
		}
	}
	return st
}

// planOf decides about the pools of a state.
func planOf(st state, pools ...string) plan {
	return newPlan(Options{Pools: pools}.withDefaults(), st)
}

// metal3PoolOf returns the YAML of one of Metal3's pools with a spec.
func metal3PoolOf(namespace, name, spec string) string {
	return "apiVersion: ipam.metal3.io/v1alpha1\nkind: IPPool\nmetadata: {namespace: " + namespace + ", name: " + name + "}\nspec: " + spec
}

func TestPoolsOfOneSubnetOccupyTheirRanges(t *testing.T) {
	pool := func(namespace, name, start, end string) string {
		return metal3PoolOf(namespace, name, "{pools: [{start: "+start+", end: "+end+"}], prefix: 24}")
	}
	text := strings.Join([]string{
		pool("a", "all", "10.0.0.0", "10.0.0.255"),
		pool("b", "nodes", "10.0.0.10", "10.0.0.50"),
		pool("b", "vips", "10.0.0.51", "10.0.0.99"),
		pool("c", "one", "10.0.0.10", "10.0.0.90"),
		pool("c", "two", "10.0.0.50", "10.0.0.99"),
		pool("d", "beside", "10.0.0.0", "10.0.0.63"),
		pool("d", "within", "10.0.0.130", "10.0.0.140"),
	}, "\n---\n")
	st := stateOf(t, text)
	st.pools = []*v1alpha1.LocalIPPool{build.Pool("ours").CIDR("10.0.0.0/24").Occupies("10.0.0.128-10.0.0.199").In("d")}
	got := map[string]string{}
	for _, pp := range planOf(st).pools {
		got[pp.ref.Namespace+"/"+pp.ref.Name] = strings.Join(append([]string{pp.describe()}, pp.notes...), "; ")
	}
	equal(t, map[string]string{
		"a/all":    "10.0.0.0/24, network /24",
		"b/nodes":  "10.0.0.0/24, occupies only 10.0.0.10-10.0.0.50, network /24",
		"b/vips":   "10.0.0.0/24, occupies only 10.0.0.51-10.0.0.99, network /24",
		"c/one":    "10.0.0.0/24, occupies only 10.0.0.10-10.0.0.90, network /24",
		"c/two":    "10.0.0.0/24, ranges 10.0.0.50-10.0.0.99, network /24, routing domain two-cadastre; overlaps LocalIPPool c/one-cadastre (10.0.0.32/27): it gets the routing domain two-cadastre, in which nothing keeps the two from handing out the same address",
		"d/beside": "10.0.0.0/24, occupies only 10.0.0.0/26, network /24",
		"d/within": "10.0.0.0/24, ranges 10.0.0.130-10.0.0.140, network /24, routing domain within-cadastre; overlaps LocalIPPool d/ours (10.0.0.128/26): it gets the routing domain within-cadastre, in which nothing keeps the two from handing out the same address",
	}, got)
}

// TestHeldAddressOutsideOfRangesIsReserved expects that nobody gets such an address from the pool,
// also after Metal3 has released it.
func TestHeldAddressOutsideOfRangesIsReserved(t *testing.T) {
	pp := planOf(stateOf(t, strings.Join([]string{
		metal3PoolOf("a", "low", "{pools: [{start: 10.0.0.0, end: 10.0.0.63}], prefix: 24}"),
		metal3PoolOf("a", "high", "{pools: [{start: 10.0.0.128, end: 10.0.0.200}], prefix: 24}"),
		"apiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddress\nmetadata: {namespace: a, name: x}\n" +
			"spec: {address: 10.0.0.70, claimRef: {name: x}, poolRef: {apiGroup: ipam.metal3.io, kind: IPPool, name: low}}",
		"apiVersion: ipam.metal3.io/v1alpha1\nkind: IPAddress\nmetadata: {namespace: a, name: own}\n" +
			"spec: {address: 10.0.0.80, claim: {name: own}, pool: {name: low}}",
	}, "\n---\n")), "low").pools[0]
	spec := pp.pool.PoolSpec()
	equal(t, []string{"10.0.0.0/26", "10.0.0.70", "10.0.0.80"}, spec.Ranges)
	for _, own := range [][]holding{pp.own, nil} {
		if pp.own = own; pp.reserveKept() != nil {
			t.Fatal("addresses cannot be read")
		}
		equal(t, []string{"10.0.0.70", "10.0.0.80"}, spec.Reserved)
	}
}

func TestAdditionalBlockOfRecordIsInTheWay(t *testing.T) {
	record := &v1alpha1.IPAllocation{Spec: v1alpha1.IPAllocationSpec{
		CIDR: "10.0.0.10/31", AdditionalCIDRs: []string{"10.0.0.12/30"}, PoolRef: &v1alpha1.RecordPoolReference{Name: "p"},
	}}
	for cidr, want := range map[string]bool{"10.0.0.10/32": true, "10.0.0.13/32": true, "10.0.0.16/32": false} {
		if got := isInTheWay(record, build.Claim("team", "c").Pool("p").CIDR(cidr).Obj()); got != want {
			t.Errorf("%s: %t, want %t", cidr, got, want)
		}
	}
}

func TestPoolsOfOneSubnetCanBeImportedSeparately(t *testing.T) {
	low := metal3PoolOf("a", "low", "{pools: [{start: 10.0.0.0, end: 10.0.0.63}], prefix: 24}")
	st := stateOf(t, low+"\n---\n"+metal3PoolOf("a", "high", "{pools: [{start: 10.0.0.128, end: 10.0.0.200}], prefix: 24}"))
	pl := planOf(st, "low")
	if got := pl.pools[0].describe(); len(pl.pools) != 1 || got != "10.0.0.0/24, occupies only 10.0.0.0/26, network /24" {
		t.Errorf("%d pools, the first is %s; want low alone, without the space of high", len(pl.pools), got)
	}
	if pl := planOf(st, "none"); pl.problems() != 1 {
		t.Error("a pool that does not exist is no problem")
	}
}

const claims = metal3Pool + `
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata:
  namespace: team
  name: m-0
  uid: one
  labels: {cluster.x-k8s.io/cluster-name: c1}
  finalizers: [ipam.metal3.io/ipaddressclaim, example.com/in-use]
  ownerReferences: [{apiVersion: example.com/v1, kind: VM, name: m-0, uid: vm}]
spec: {clusterName: c1, poolRef: {apiGroup: ipam.metal3.io, kind: IPPool, name: hosts}}
status: {addressRef: {name: hosts-192-168-0-12}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata:
  namespace: team
  name: hosts-192-168-0-12
  finalizers: [ipam.metal3.io/ipaddress]
  ownerReferences:
  - {apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, name: hosts, uid: pool}
  - {apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, name: m-0, uid: one, controller: true}
spec: {address: 192.168.0.12, prefix: 24, gateway: 192.168.0.1, claimRef: {name: m-0}, poolRef: {apiGroup: ipam.metal3.io, kind: IPPool, name: hosts}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {namespace: team, name: m-1}
spec: {poolRef: {apiGroup: ipam.metal3.io, kind: IPPool, name: hosts}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {namespace: team, name: other}
spec: {poolRef: {apiGroup: example.com, kind: IPPool, name: hosts}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: team, name: c1}
spec: {paused: true}
`

func TestMigratedClaimChangesOnlyPool(t *testing.T) {
	entries := planOf(stateOf(t, claims)).pools[0].entries
	if len(entries) != 2 {
		t.Fatalf("%d entries, want those of m-0 and m-1: %v", len(entries), entries)
	}
	got := entries[0].To
	want := objects(t, `
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata:
  namespace: team
  name: m-0
  labels: {cluster.x-k8s.io/cluster-name: c1}
  annotations:
    ipam.cadastre.dev/address: 192.168.0.12
    ipam.cadastre.dev/imported-from: '{"pool":"hosts","addressName":"hosts-192-168-0-12"}'
  finalizers: [example.com/in-use, ipam.cadastre.dev/release-address]
  ownerReferences: [{apiVersion: example.com/v1, kind: VM, name: m-0, uid: vm}]
spec: {clusterName: c1, poolRef: {apiGroup: ipam.cadastre.dev, kind: LocalIPPool, name: hosts-cadastre}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata:
  namespace: team
  name: m-0
  annotations:
    ipam.cadastre.dev/imported-from: '{"pool":"hosts","addressName":"hosts-192-168-0-12"}'
  finalizers: [ipam.cadastre.dev/protect-address]
  ownerReferences: [{apiVersion: ipam.cadastre.dev/v1alpha1, kind: LocalIPPool, name: hosts-cadastre, uid: "", controller: false, blockOwnerDeletion: true}]
spec: {address: 192.168.0.12, prefix: 24, gateway: 192.168.0.1, claimRef: {name: m-0}, poolRef: {apiGroup: ipam.cadastre.dev, kind: LocalIPPool, name: hosts-cadastre}}
`)
	equal(t, want[0].Object, got.Claim.Object)
	equal(t, want[1].Object, got.Address.Object)
}

func TestRollbackRestoresClaimAndAddress(t *testing.T) {
	st := stateOf(t, claims)
	forward := planOf(st).pools[0].entries[0]
	forward.To.Claim.SetUID("two")
	was, ok := originOf(forward.To.Claim)
	if !ok {
		t.Fatal("the claim does not name its source")
	}
	back := back(forward.To, was, st.sources[0])
	got, want := back.To.Claim, forward.From.Claim.DeepCopy()
	unstructured.RemoveNestedField(want.Object, "metadata", "uid")
	unstructured.RemoveNestedField(want.Object, "status")
	want.SetFinalizers([]string{"example.com/in-use", claimFinalizer})
	equal(t, want.Object, got.Object)
	equal(t, forward.From.Address.Object["spec"], back.To.Address.Object["spec"])
	if name := back.To.Address.GetName(); name != "hosts-192-168-0-12" {
		t.Errorf("the IPAddress gets the name %s, want its former one", name)
	}
}

func TestUnpausedClusterIsReported(t *testing.T) {
	pl := planOf(stateOf(t, strings.Replace(claims, "spec: {paused: true}", "spec: {paused: false}", 1)))
	if pl.problems() != 1 || len(pl.unpaused) != 1 || pl.unpaused[0].Name != "c1" {
		t.Errorf("problems %d, unpaused %v; want c1 alone", pl.problems(), pl.unpaused)
	}
}

func TestPlanIsPrintedAsTable(t *testing.T) {
	var out bytes.Buffer
	if err := printTable(&out, planOf(stateOf(t, claims)).rows(false)); err != nil {
		t.Fatal(err)
	}
	want := `OBJECT              BECOMES                                          NOTE
IPPool team/hosts   LocalIPPool team/hosts-cadastre                  192.168.0.0/24, ranges 192.168.0.10-192.168.0.99, 192.168.0.200-192.168.0.255, reserved 192.168.0.20, network /24 by 192.168.0.1
                                                                     preAllocations of 1 claim are reserved: for such a claim take the address out of spec.reserved, and set its annotation ipam.cadastre.dev/address
1 IPAddressClaim    the same, from LocalIPPool team/hosts-cadastre   with their addresses
1 IPAddressClaim    the same, from LocalIPPool team/hosts-cadastre   without an address: each gets one of the new pool
`
	equal(t, want, out.String())
}
