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
		case strings.HasSuffix(obj.GetKind(), "IPPool") && obj.GroupVersionKind().Group != v1alpha1.GroupVersion.Group:
			st.sources = append(st.sources, obj)
		case obj.GetKind() == "Cluster":
			st.clusters[keyOf(obj)] = obj
		case obj.GetKind() == kindClaim:
			st.claims = append(st.claims, obj)
		case obj.GetKind() == kindAddress && obj.GroupVersionKind().Group == addressGroup:
			st.addresses = append(st.addresses, obj)
		case obj.GetKind() == "IPClaim": // the plan needs their addresses alone
		case obj.GetKind() == "IPAddress":
			st.ownAddresses = append(st.ownAddresses, obj)
		default:
			t.Fatalf("no place for %s", obj.GetKind())
		}
	}
	return st
}

const subnet = `
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {namespace: team, name: machines, labels: {cluster.x-k8s.io/cluster-name: c1}}
spec:
  addresses: [10.0.0.10-10.0.0.99, 10.0.0.128/26]
  excludedAddresses: [10.0.0.50, 10.9.9.9]
  prefix: 24
  gateway: 10.0.0.1
`

func TestInClusterPoolBecomesEquivalentLocalPool(t *testing.T) {
	pl := newPlan(inCluster(), Options{}, stateOf(t, subnet))
	got := pl.pools[0].pool.(*v1alpha1.LocalIPPool)
	want := v1alpha1.PoolSpec{
		CIDR: "10.0.0.0/24", Ranges: []string{"10.0.0.10-10.0.0.99", "10.0.0.128/26"}, Reserved: []string{"10.0.0.50"},
		Network: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.0.1"},
	}
	equal(t, want, got.Spec.PoolSpec)
	if got.Namespace != "team" || got.Name != "machines" || got.Labels[v1alpha1.LabelCluster] != "c1" || got.Labels[labelImport] != "in-cluster" {
		t.Errorf("metadata is %v", got.ObjectMeta)
	}
	if got.Annotations[v1alpha1.AnnotationPaused] != pausedValue {
		t.Errorf("the pool is not paused: it could hand out addresses in use before they are recorded")
	}
}

func TestInClusterMappingProblemsAreReported(t *testing.T) {
	pool := func(spec string) string {
		return "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: GlobalInClusterIPPool\nmetadata: {name: p}\nspec: " + spec
	}
	address := func(name, addr string) string {
		return "\n---\napiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddress\nmetadata: {namespace: a, name: " + name + "}\n" +
			"spec: {address: " + addr + ", claimRef: {name: " + name + "}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: GlobalInClusterIPPool, name: p}}"
	}
	for name, test := range map[string]struct{ text, want string }{
		"addresses of two subnets":  {pool(`{addresses: [10.0.0.1, 10.0.1.1], prefix: 24}`), "spec.addresses: 10.0.0.1 and 10.0.1.1 do not lie in one subnet of length 24: split it into two pools, one for each CIDR"},
		"addresses of two families": {pool(`{addresses: [10.0.0.1, "2001:db8::1"], prefix: 24}`), "spec.addresses: has addresses of both families: split it into two pools"},
		"no addresses":              {pool(`{addresses: [], prefix: 24}`), "spec.addresses: is empty: there is nothing to hand out"},
		"a range that is none":      {pool(`{addresses: [10.0.0.9-10.0.0.1], prefix: 24}`), `spec.addresses: "10.0.0.9-10.0.0.1" is not a range of two addresses: write one such as 10.0.0.10-10.0.0.20`},
		"no length":                 {pool(`{addresses: [10.0.0.1], prefix: 33}`), "spec.prefix: 33 is not the length of a subnet: correct it"},
		"a gateway elsewhere":       {pool(`{addresses: [10.0.0.9], prefix: 24, gateway: 10.0.1.1}`), `spec.network.gateway: Invalid value: "10.0.1.1": is not an address of the subnet 10.0.0.0/24: correct it, or correct prefixLength`},
		"an address twice":          {pool(`{addresses: [10.0.0.0/24], prefix: 24}`) + address("x", "10.0.0.7") + address("z", "10.0.0.7"), "10.0.0.7 is held twice, by ipam.cadastre.dev/x and by ipam.cadastre.dev/z: delete one of the two"},
		"a claim with two":          {pool(`{addresses: [10.0.0.0/24], prefix: 24}`) + address("x", "10.0.0.7") + strings.Replace(address("x", "10.0.0.8"), "name: x", "name: z", 1), "IPAddresses a/x and a/z are both for the IPAddressClaim a/x: delete one of the two"},
		"an address elsewhere":      {pool(`{addresses: [10.0.0.0/24], prefix: 24}`) + address("x", "10.0.1.7"), "10.0.1.7, held by ipam.cadastre.dev/x, lies outside 10.0.0.0/24: delete it, or correct the pool"},
	} {
		t.Run(name, func(t *testing.T) {
			pl := newPlan(inCluster(), Options{}, stateOf(t, test.text))
			equal(t, []string{test.want}, pl.pools[0].problems)
			if pl.problems() == 0 {
				t.Error("the plan has no problems")
			}
		})
	}
}

func TestOverlappingPoolsAreSeparated(t *testing.T) {
	pool := func(kind, namespace, name, addresses string) string {
		return "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: " + kind + "\nmetadata: {namespace: " + namespace + ", name: " + name + "}\nspec: {addresses: [" + addresses + "], prefix: 24}"
	}
	text := strings.Join([]string{
		pool("InClusterIPPool", "a", "all", "10.0.0.0/24"),
		pool("InClusterIPPool", "b", "low", "10.0.0.0-10.0.0.63"),
		pool("InClusterIPPool", "b", "high", "10.0.0.128-10.0.0.200"),
		pool("InClusterIPPool", "c", "one", "10.0.0.10-10.0.0.90"),
		pool("InClusterIPPool", "c", "two", "10.0.0.50-10.0.0.99"),
	}, "\n---\n")
	pl := newPlan(inCluster(), Options{}, stateOf(t, text))
	got := map[string]string{}
	for _, pp := range pl.pools {
		got[pp.ref.Namespace+"/"+pp.ref.Name] = strings.TrimSpace(pp.pool.PoolSpec().CIDR + " " + pp.pool.PoolSpec().RoutingDomain)
	}
	if notes := pl.pools[len(pl.pools)-1].notes; len(notes) != 1 || !strings.HasPrefix(notes[0], "overlaps LocalIPPool c/one (10.0.0.0/25): it gets the routing domain two") {
		t.Errorf("c/two has the notes %q, want that it overlaps c/one", notes)
	}
	want := map[string]string{
		"a/all": "10.0.0.0/24", "b/low": "10.0.0.0/26", "b/high": "10.0.0.128/25",
		"c/one": "10.0.0.0/25", "c/two": "10.0.0.0/25 two",
	}
	equal(t, want, got)
}

// TestPoolIsImportedBesideRangesThatAnotherOccupies has a pool of ours in the same subnet.
func TestPoolIsImportedBesideRangesThatAnotherOccupies(t *testing.T) {
	st := stateOf(t, "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: InClusterIPPool\nmetadata: {namespace: b, name: low}\nspec: {addresses: [10.0.0.0-10.0.0.63], prefix: 24}")
	st.pools = []v1alpha1.Pool{build.Pool("ours").CIDR("10.0.0.0/24").Occupies("10.0.0.128-10.0.0.199").In("b")}
	spec := newPlan(inCluster(), Options{}, st).pools[0].pool.PoolSpec()
	if spec.CIDR != "10.0.0.0/26" || spec.RoutingDomain != "" {
		t.Errorf("the pool gets %s in routing domain %q, want 10.0.0.0/26 in the default one", spec.CIDR, spec.RoutingDomain)
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
	pool := func(name, addresses string) string {
		return "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: InClusterIPPool\nmetadata: {namespace: a, name: " + name + "}\nspec: {addresses: [" + addresses + "], prefix: 24}"
	}
	st := stateOf(t, pool("low", "10.0.0.0-10.0.0.63")+"\n---\n"+pool("high", "10.0.0.128-10.0.0.200"))
	pl := newPlan(inCluster(), Options{Pools: []string{"low"}}, st)
	if got := pl.pools[0].pool.PoolSpec().CIDR; len(pl.pools) != 1 || got != "10.0.0.0/26" {
		t.Errorf("%d pools, the first of %s; want low alone, without the space of high", len(pl.pools), got)
	}
	if pl := newPlan(inCluster(), Options{Pools: []string{"none"}}, st); pl.problems() != 1 {
		t.Error("a pool that does not exist is no problem")
	}
}

const claims = subnet + `
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata:
  namespace: team
  name: m-0
  uid: one
  labels: {cluster.x-k8s.io/cluster-name: c1}
  finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress, example.com/in-use]
  ownerReferences: [{apiVersion: example.com/v1, kind: VM, name: m-0, uid: vm}]
spec: {clusterName: c1, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: machines}}
status: {addressRef: {name: m-0}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata:
  namespace: team
  name: m-0
  finalizers: [ipam.cluster.x-k8s.io/ProtectAddress]
  ownerReferences:
  - {apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, name: m-0, uid: one, controller: true}
  - {apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, name: machines, uid: pool}
spec: {address: 10.0.0.12, prefix: 24, gateway: 10.0.0.1, claimRef: {name: m-0}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: machines}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {namespace: team, name: m-1}
spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: machines}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {namespace: team, name: other}
spec: {poolRef: {apiGroup: example.com, kind: InClusterIPPool, name: machines}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: team, name: c1}
spec: {paused: true}
`

func TestMigratedClaimChangesOnlyPool(t *testing.T) {
	pl := newPlan(inCluster(), Options{}, stateOf(t, claims))
	entries := pl.pools[0].entries
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
    ipam.cadastre.dev/address: 10.0.0.12
    ipam.cadastre.dev/imported-from: '{"pool":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","namespace":"team","name":"machines"},"addressName":"m-0"}'
  finalizers: [example.com/in-use, ipam.cadastre.dev/release-address]
  ownerReferences: [{apiVersion: example.com/v1, kind: VM, name: m-0, uid: vm}]
spec: {clusterName: c1, poolRef: {apiGroup: ipam.cadastre.dev, kind: LocalIPPool, name: machines}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata:
  namespace: team
  name: m-0
  annotations:
    ipam.cadastre.dev/imported-from: '{"pool":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","namespace":"team","name":"machines"},"addressName":"m-0"}'
  finalizers: [ipam.cadastre.dev/protect-address]
  ownerReferences: [{apiVersion: ipam.cadastre.dev/v1alpha1, kind: LocalIPPool, name: machines, uid: "", controller: false, blockOwnerDeletion: true}]
spec: {address: 10.0.0.12, prefix: 24, gateway: 10.0.0.1, claimRef: {name: m-0}, poolRef: {apiGroup: ipam.cadastre.dev, kind: LocalIPPool, name: machines}}
`)
	equal(t, want[0].Object, got.Claim.Object)
	equal(t, want[1].Object, got.Address.Object)
}

func TestRollbackRestoresClaimAndAddress(t *testing.T) {
	p, st := inCluster(), stateOf(t, claims)
	forward := newPlan(p, Options{}, st).pools[0].entries[0]
	forward.To.Claim.SetUID("two")
	was, ok := originOf(forward.To.Claim)
	if !ok {
		t.Fatal("the claim does not name its source")
	}
	back := p.back(forward.To, was, st.sources[0])
	got, want := back.To.Claim, forward.From.Claim.DeepCopy()
	unstructured.RemoveNestedField(want.Object, "metadata", "uid")
	unstructured.RemoveNestedField(want.Object, "status")
	want.SetFinalizers([]string{"example.com/in-use", "ipam.cluster.x-k8s.io/ReleaseAddress"})
	equal(t, want.Object, got.Object)
	equal(t, forward.From.Address.Object["spec"], back.To.Address.Object["spec"])
}

func TestUnpausedClusterIsReported(t *testing.T) {
	pl := newPlan(inCluster(), Options{}, stateOf(t, strings.Replace(claims, "spec: {paused: true}", "spec: {paused: false}", 1)))
	if pl.problems() != 1 || len(pl.unpaused) != 1 || pl.unpaused[0].Name != "c1" {
		t.Errorf("problems %d, unpaused %v; want c1 alone", pl.problems(), pl.unpaused)
	}
}

func TestPlanIsPrintedAsTable(t *testing.T) {
	var out bytes.Buffer
	if err := printTable(&out, newPlan(inCluster(), Options{}, stateOf(t, claims)).rows(false)); err != nil {
		t.Fatal(err)
	}
	want := `OBJECT                          BECOMES                                   NOTE
InClusterIPPool team/machines   LocalIPPool team/machines                 10.0.0.0/24, ranges 10.0.0.10-10.0.0.99, 10.0.0.128/26, reserved 10.0.0.50, network /24 by 10.0.0.1
1 IPAddressClaim                the same, from LocalIPPool team/machines   with their addresses
1 IPAddressClaim                the same, from LocalIPPool team/machines   without an address: each gets one of the new pool
`
	want = strings.ReplaceAll(want, "LocalIPPool team/machines                 10", "LocalIPPool team/machines                  10")
	want = strings.ReplaceAll(want, "BECOMES                                   NOTE", "BECOMES                                    NOTE")
	equal(t, want, out.String())
}
