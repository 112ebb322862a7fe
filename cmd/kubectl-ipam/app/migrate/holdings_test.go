package migrate

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// clusterWith returns a cluster with the namespaces team, default, and dc, and with objects, whose
// user has all rights except those that are written VERB RESOURCE NAMESPACE.
func clusterWith(forbidden string, objects ...client.Object) client.WithWatch {
	scheme := command.Scheme()
	for _, name := range []string{"team", "default", "dc"} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(build.Tracker(scheme)).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if review, ok := obj.(*authorizationv1.SelfSubjectAccessReview); ok {
				what := review.Spec.ResourceAttributes
				review.Status.Allowed = what.Verb+" "+what.Resource+" "+what.Namespace != forbidden
				return nil
			}
			return c.Create(ctx, obj, opts...)
		},
	}).Build()
}

// made returns a pool that exists, with its own record.
func made(pool *v1alpha1.IPPool) []client.Object {
	read, _ := convert.Pool(pool)
	return []client.Object{pool, recorded(ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: "ippool." + pool.Name}, Block: read.CIDR, Pool: read.Home,
		Holder: convert.HolderOfPool(read.Key), Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	})}
}

func recorded(record ipam.Record) *v1alpha1.IPAllocation {
	obj := convert.Allocation(record)
	obj.UID = types.UID(record.Name.String())
	return obj
}

// held returns a claim that exists and is bound, with its record.
func held(namespace, name, pool, cidr string) []client.Object {
	claim := build.Claim(namespace, name).Pool(pool).CIDR(cidr).Obj()
	claim.Spec.AllocationName, claim.Status.AllocatedCIDR = name, cidr
	block, _ := blockOf(cidr)
	return []client.Object{claim, recorded(ipam.Record{
		Name: ipam.Name{Namespace: namespace, Name: name}, Block: block, Pool: ipam.PoolNamed(pool),
		Holder: convert.HolderOfClaim(ipam.Name{Namespace: namespace, Name: name}), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	})}
}

// resultLines returns the result of a register in a cluster, a line each.
func resultLines(t *testing.T, c client.Client, g *register) []string {
	t.Helper()
	g.sort()
	if err := g.judge(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	g.table(false) // sorts the rows
	var lines []string
	for _, pool := range g.pools {
		text := "pool " + pool.Name + " " + pool.Spec.CIDR
		if pool.Spec.ParentRef != nil {
			text += " of " + pool.Spec.ParentRef.Name
		}
		if pool.Spec.RoutingDomain != "" {
			text += " in " + pool.Spec.RoutingDomain
		}
		if pool.Spec.Network != nil {
			text += fmt.Sprintf(" network %d %s", pool.Spec.Network.PrefixLength, pool.Spec.Network.Gateway)
		}
		if len(pool.Spec.Reserved) > 0 {
			text += " reserved " + strings.Join(pool.Spec.Reserved, " ")
		}
		lines = append(lines, strings.TrimSpace(text))
	}
	for _, claim := range g.claims {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("claim %s %s of %s %s", keyOf(claim), claim.Spec.CIDR, claim.Spec.PoolRef.Name, claim.Annotations[annotationDescription])))
	}
	for _, r := range g.rows {
		lines = append(lines, r.object+" | "+r.becomes+" | "+r.note)
	}
	return lines
}

// problemsOf returns the lines about rows that cannot be mapped.
func problemsOf(lines []string) []string {
	var problems []string
	for _, line := range lines {
		if strings.Contains(line, cannot) {
			problems = append(problems, strings.Replace(line, " | "+cannot+" | ", ": ", 1))
		}
	}
	return problems
}

// equal fails the test, and goes on, if two values differ.
func equal(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// csvOf reads a CSV file with the columns that the tests use.
func csvOf(t *testing.T, lines string) *register {
	t.Helper()
	g, err := readCSV(strings.NewReader("kind,name,cidr,pool,parent,namespace,routingDomain,network,gateway\n"+lines), Options{Namespace: "team"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestCSVFileIsParsed(t *testing.T) {
	g, err := readCSV(strings.NewReader(`kind,name,cidr,pool,parent,namespace,routingDomain,network,gateway,description
pool,lab,10.0.0.0/8,,,,,,,"the lab, all of it"
pool,hosts,10.1.0.0/24,,lab,,,24,10.1.0.1,
pool,other,10.0.0.0/8,,,,red,,,
claim,db,10.1.0.7,,,team,,,,database
claim,,10.2.0.0/16,lab,,,,,,
reserved,,10.1.0.100-10.1.0.199,,,,,,,
`), Options{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pool lab 10.0.0.0/8",
		"pool other 10.0.0.0/8 in red",
		"pool hosts 10.1.0.0/24 of lab network 24 10.1.0.1 reserved 10.1.0.100-10.1.0.199",
		"claim team/db 10.1.0.7/32 of hosts database",
		"claim default/block-10-2-0-0-16 10.2.0.0/16 of lab",
	}
	equal(t, want, resultLines(t, clusterWith(""), g))
}

func TestCSVErrorsAreReported(t *testing.T) {
	g, err := readCSV(strings.NewReader(`kind,name,cidr,pool,namespace,network
pool,lab,10.0.0.0/24,,,
pool,lab,10.0.1.0/24,,,
pool,Lab,10.0.2.0/24,,,
pool,bits,10.0.3.1/24,,,
pool,net,10.0.3.0/24,,,big
claim,a,10.0.0.300,,team,
claim,a,10.0.0.3,,team,
claim,a,10.0.0.4,,team,
claim,b,10.0.0.3,,team,
claim,c,10.0.0.5,,,
claim,d,10.9.0.3,,team,
claim,e,10.9.0.3,lab,team,
claim,f,10.9.0.3,none,team,
reserved,,here,,,
host,g,10.0.0.9,,team,
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := problemsOf(resultLines(t, clusterWith(""), g))
	want := []string{
		`line 3: name: there are two pools "lab": rename one`,
		`line 4: name: "Lab": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		`line 5: cidr: "10.0.3.1/24": has host bits set: did you mean "10.0.3.0/24"?`,
		`line 6: network: "big" is not the length of a subnet: write one such as 24`,
		`line 7: cidr: "10.0.0.300" is neither an address nor a CIDR without host bits: correct it`,
		`line 9: name: there are two claims team/a: rename one`,
		`line 10: 10.0.0.3/32 overlaps 10.0.0.3/32 of IPClaim team/a: correct one of them`,
		`line 11: it names no namespace: name one, or choose one with -n`,
		`line 12: cidr: no pool in the file has 10.9.0.3: add one, or name one that exists in the column pool`,
		`line 13: cidr: 10.9.0.3/32: lies outside pool lab, which is 10.0.0.0/24: ask for a block within it, or name another pool`,
		`line 14: there is no IPPool "none" that this namespace may use: create it, name another one, or ask for the right to use it and then create this object again`,
		`line 15: cidr: "here" is not an IP address: write one such as 10.0.0.1`,
		`line 16: kind: "host" is none of pool, claim and reserved: correct it`,
	}
	equal(t, want, got)
}

func TestUnknownCSVColumnsAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		"kind,cidr,color\n": `the first line names the column "color": write some of kind,name,cidr,pool,parent,namespace,routingDomain,network,gateway,description`,
		"kind,name\n":       `the first line lacks the column "cidr": add it`,
	} {
		if _, err := readCSV(strings.NewReader(text), Options{}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

const netBoxPrefixes = `{"count": 5, "next": null, "previous": null, "results": [
 {"id": 3, "prefix": "10.1.0.0/24", "vrf": null, "status": {"value": "active", "label": "Active"}, "is_pool": false, "description": "hosts"},
 {"id": 1, "prefix": "10.0.0.0/8", "vrf": null, "status": {"value": "container", "label": "Container"}, "is_pool": false, "description": ""},
 {"id": 4, "prefix": "10.2.0.0/24", "vrf": null, "status": {"value": "reserved", "label": "Reserved"}, "is_pool": false, "description": ""},
 {"id": 5, "prefix": "10.1.0.0/24", "vrf": {"id": 1, "name": "Blue Team", "rd": "65000:1"}, "status": {"value": "active", "label": "Active"}, "is_pool": true, "description": ""},
 {"id": 6, "prefix": "2001:db8::/64", "vrf": null, "status": {"value": "deprecated", "label": "Deprecated"}, "is_pool": false, "description": ""}
]}`

const netBoxAddresses = `[
 {"id": 10, "address": "10.1.0.7/24", "vrf": null, "status": {"value": "active"}, "dns_name": "db1.example.com", "description": "",
  "assigned_object": {"id": 1, "name": "eth0", "device": {"id": 5, "name": "db1"}}},
 {"id": 11, "address": "10.1.0.8/24", "vrf": null, "status": {"value": "reserved"}, "dns_name": "", "description": "spare"},
 {"id": 12, "address": "10.1.0.9/24", "vrf": null, "status": {"value": "deprecated"}, "dns_name": "", "description": ""},
 {"id": 13, "address": "10.1.0.9/24", "vrf": null, "status": {"value": "active"}, "dns_name": "", "description": "anycast"},
 {"id": 14, "address": "10.1.0.0/24", "vrf": null, "status": {"value": "active"}, "dns_name": "", "description": ""},
 {"id": 15, "address": "10.1.0.7/24", "vrf": {"id": 1, "name": "Blue Team", "rd": "65000:1"}, "status": {"value": "active"}, "dns_name": "db1.example.com", "description": ""},
 {"id": 16, "address": "172.16.0.1/24", "vrf": null, "status": {"value": "active"}, "dns_name": "", "description": ""},
 {"id": 17, "start_address": "10.1.0.100/24", "end_address": "10.1.0.199/24", "vrf": null, "status": {"value": "active"}}
]`

func TestNetBoxExportIsParsed(t *testing.T) {
	g, err := readNetBox([]io.Reader{strings.NewReader(netBoxPrefixes), strings.NewReader(netBoxAddresses)}, Options{Namespace: "dc"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pool net-10-0-0-0-8 10.0.0.0/8 reserved 10.2.0.0/24",
		"pool net-10-1-0-0-24 10.1.0.0/24 of net-10-0-0-0-8 network 24  reserved 10.1.0.8 10.1.0.100-10.1.0.199",
		"pool net-10-1-0-0-24-blue-team 10.1.0.0/24 in blue-team",
		"claim dc/db1.example.com 10.1.0.7/32 of net-10-1-0-0-24 db1 eth0",
		"claim dc/ip-10-1-0-9 10.1.0.9/32 of net-10-1-0-0-24 anycast",
		"claim dc/ip-10-1-0-7-blue-team 10.1.0.7/32 of net-10-1-0-0-24-blue-team NetBox IP address 15",
		"prefix 10.2.0.0/24 | reserved in IPPool net-10-0-0-0-8 | is reserved",
		"prefix 2001:db8::/64 | - | is deprecated, and part of no other prefix: nothing could hand it out",
		"IP address 10.1.0.0/24 | - | IPPool net-10-1-0-0-24 never hands it out, so no claim has to hold it",
		"IP address 10.1.0.8/24 | reserved in IPPool net-10-1-0-0-24 | is reserved",
		"IP address 10.1.0.9/24 | - | is in the export more than once, as NetBox IP address 12: one claim holds it",
		"IP address 172.16.0.1/24 | cannot be mapped | no prefix of the global VRF has it: export that as well",
		"IP range 10.1.0.100/24-10.1.0.199/24 | reserved in IPPool net-10-1-0-0-24 | is active",
	}
	equal(t, want, resultLines(t, clusterWith(""), g))
}

// TestPlanListsAdmissionErrors states, for each row, the file and the existing objects,
// and the problems that the plan lists.
func TestPlanListsAdmissionErrors(t *testing.T) {
	const hosts = "pool,hosts,10.1.0.0/24,,,,,24,10.1.0.1\n"
	for name, test := range map[string]struct {
		lines     string
		forbidden string
		exists    []client.Object
		want      []string
	}{
		"a parent that is nowhere": {
			lines: "pool,small,10.36.1.0/24,,none,,,,\n",
			want:  []string{`line 2: there is no IPPool "none" that this pool may use: create it, name another parent, or ask for the right to use it and then create this object again`},
		},
		"a child outside its parent": {
			lines: "pool,big,10.36.0.0/16,,,,,,\npool,small,10.37.1.0/24,,big,,,,\n",
			want:  []string{`line 3: cidr: 10.37.1.0/24: lies outside pool big, which is 10.36.0.0/16: ask for a block within it, or name another pool`},
		},
		"a child over another child": {
			lines: "pool,big,10.36.0.0/16,,,,,,\npool,a,10.36.0.0/17,,big,,,,\npool,b,10.36.1.0/24,,big,,,,\n",
			want:  []string{`line 4: 10.36.1.0/24 lies in 10.36.0.0/17 of IPPool a: name that as the pool or parent, or choose another block`},
		},
		"two pools of one CIDR": {
			lines: "pool,a,10.36.0.0/16,,,,,,\npool,b,10.36.0.0/16,,,,,,\n",
			want:  []string{`line 3: 10.36.0.0/16 overlaps 10.36.0.0/16 of IPPool a: correct one of them`},
		},
		"pools that are each other's parent": {
			lines: "pool,a,10.36.0.0/16,,b,,,,\npool,b,10.36.0.0/15,,a,,,,\n",
			want:  []string{`line 2: parent: "b" is part of this pool itself: name a pool outside of it`, `line 3: parent: "a" is part of this pool itself: name a pool outside of it`},
		},
		"claims of withheld addresses": {
			lines: hosts + "reserved,,10.1.0.100-10.1.0.199,,,,,,\nclaim,gateway,10.1.0.1,,,,,,\nclaim,network,10.1.0.0,,,,,,\nclaim,broadcast,10.1.0.255,,,,,,\nclaim,dhcp,10.1.0.150,,,,,,\n",
			want: []string{
				`line 4: 10.1.0.1/32 is not handed out by pool hosts: it is reserved, a gateway or edge address, or outside its ranges: leave it out, as no claim is given it, or let the pool hand it out`,
				`line 5: 10.1.0.0/32 is not handed out by pool hosts: it is reserved, a gateway or edge address, or outside its ranges: leave it out, as no claim is given it, or let the pool hand it out`,
				`line 6: 10.1.0.255/32 is not handed out by pool hosts: it is reserved, a gateway or edge address, or outside its ranges: leave it out, as no claim is given it, or let the pool hand it out`,
				`line 7: 10.1.0.150/32 is not handed out by pool hosts: it is reserved, a gateway or edge address, or outside its ranges: leave it out, as no claim is given it, or let the pool hand it out`,
			},
		},
		"a claim over a child pool": {
			lines: "pool,big,10.36.0.0/16,,,,,,\npool,small,10.36.1.0/24,,,,,,\nclaim,a,10.36.1.7,big,,,,,\nclaim,b,10.36.0.0/23,,,,,,\n",
			want: []string{
				`line 4: 10.36.1.7/32 lies in 10.36.1.0/24 of IPPool small: name that as the pool or parent, or choose another block`,
				`line 5: 10.36.0.0/23 overlaps 10.36.1.0/24 of IPPool small: correct one of them`,
			},
		},
		"a namespace that does not exist": {
			lines: hosts + "claim,a,10.1.0.7,,,nowhere,,,\nclaim,b,10.1.0.8,,,nowhere,,,\n",
			want:  []string{`namespace nowhere: nowhere is to have 2 claims, and does not exist: create it`},
		},
		"a CIDR that an existing pool has": {
			lines:  "pool,new,10.36.0.0/16,,,,,,\n",
			exists: made(build.Pool("old").CIDR("10.36.0.0/16").Obj()),
			want:   []string{`line 2: 10.36.0.0/16 overlaps 10.36.0.0/16 of IPPool old: correct one of them`},
		},
		"a CIDR inside an existing pool": {
			lines:  "pool,new,10.36.1.0/24,,,,,,\n",
			exists: made(build.Pool("old").CIDR("10.36.0.0/16").Obj()),
			want:   []string{`line 2: 10.36.1.0/24 lies in 10.36.0.0/16 of IPPool old: name that as the parent, or choose another routing domain`},
		},
		"a pool of the name that has another CIDR": {
			lines:  "pool,old,10.37.0.0/16,,,,,,\n",
			exists: made(build.Pool("old").CIDR("10.36.0.0/16").Obj()),
			want:   []string{`line 2: IPPool old exists, with the CIDR 10.36.0.0/16 in place of 10.37.0.0/16, or with another parent: rename or delete it`},
		},
		"a pool of the name that hands out what the file reserves": {
			lines:  "pool,old,10.36.0.0/16,,,,,,\nreserved,,10.36.0.9,,,,,,\n",
			exists: made(build.Pool("old").CIDR("10.36.0.0/16").Obj()),
			want:   []string{`line 2: IPPool old exists, and hands out 10.36.0.9, which is reserved here: reserve it there, or leave it out`},
		},
		"a claim of the name for another block, and one for a block that is held": {
			lines:  "claim,a,10.36.0.8,old,,,,,\nclaim,b,10.36.0.7,old,,,,,\n",
			exists: append(made(build.Pool("old").CIDR("10.36.0.0/16").Obj()), held("team", "a", "old", "10.36.0.7/32")...),
			want: []string{
				`line 2: IPClaim team/a exists, for 10.36.0.7/32 in place of 10.36.0.8/32 of IPPool old: rename or delete it`,
				`line 3: 10.36.0.7/32 overlaps 10.36.0.7/32 of IPClaim team/a: correct one of them`,
			},
		},
		"a claim for a block whose holder was just deleted": {
			lines:  "claim,b,10.36.0.7,old,,,,,\nclaim,c,10.36.0.7,old,,,,,\n",
			exists: append(made(build.Pool("old").CIDR("10.36.0.0/16").Obj()), held("team", "a", "old", "10.36.0.7/32")[1]),
			want:   []string{`line 3: 10.36.0.7/32 overlaps 10.36.0.7/32 of IPClaim team/b: correct one of them`},
		},
		"claims in a pool that cannot be made": {
			lines: "pool,hosts,10.1.0.0/24,,,,Red!,,\npool,more,10.1.0.0/25,,hosts,,,,\nclaim,a,10.1.0.200,,,,,,\nclaim,b,10.1.0.7,more,,,,,\n",
			want: []string{
				`IPPool hosts: cannot be made, nor its parts (2 rows): correct it first`,
				`IPPool more: cannot be made, nor its parts (1 row): correct it first`,
				`line 2: routingDomain: "Red!": spec.routingDomain in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'`,
			},
		},
		"pools that the user may not create": {
			lines: hosts, forbidden: "create ippools ",
			want: []string{`line 2: you may not create ippools: ask for the right`},
		},
		"claims that the user may not create": {
			lines: hosts + "claim,a,10.1.0.7,,,dc,,,\nclaim,b,10.1.0.8,,,,,,\n", forbidden: "create ipclaims dc",
			want: []string{`line 3: you may not create ipclaims in namespace dc: ask for the right, or choose another`},
		},
		"a claim over another one": {
			lines: hosts + "claim,a,10.1.0.7,,,,,,\nclaim,b,10.1.0.4/30,,,,,,\n",
			want:  []string{`line 3: 10.1.0.7/32 overlaps 10.1.0.4/30 of IPClaim team/b: correct one of them`},
		},
		"an address that two pools have": {
			lines: "pool,a,10.0.0.0/8,,,,,,\npool,b,10.0.0.0/8,,,,red,,\nclaim,c,10.0.0.7,,,,,,\n",
			want:  []string{`line 4: cidr: the pools a and b both have 10.0.0.7: name one of them in the column pool`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := problemsOf(resultLines(t, clusterWith(test.forbidden, test.exists...), csvOf(t, test.lines)))
			equal(t, test.want, got)
		})
	}
}

func TestCSVPoolsAreNestedByLongestMatch(t *testing.T) {
	got := resultLines(t, clusterWith("", made(build.Pool("old").CIDR("10.40.0.0/16").Obj())...), csvOf(t, `pool,small,10.36.1.0/24,,,,,,
pool,big,10.36.0.0/16,,,,,,
pool,red,10.36.2.0/24,,,,red,,
pool,part,10.36.2.0/25,,,,red,,
pool,explicit,10.36.3.0/24,,big,,,,
pool,below,10.36.3.0/25,,,,,,
pool,there,10.40.1.0/24,,old,,,,
pool,old,10.40.0.0/16,,,,,,
claim,c,10.40.0.7,old,,,,,
`))
	want := []string{
		"pool big 10.36.0.0/16",
		"pool old 10.40.0.0/16",
		"pool small 10.36.1.0/24 of big",
		"pool red 10.36.2.0/24 in red",
		"pool explicit 10.36.3.0/24 of big",
		"pool there 10.40.1.0/24 of old",
		"pool part 10.36.2.0/25 of red",
		"pool below 10.36.3.0/25 of explicit",
		"claim team/c 10.40.0.7/32 of old",
	}
	equal(t, want, got)
}
