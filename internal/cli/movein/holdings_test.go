package movein

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// told is what a register comes to, a line each.
func told(g *register) []string {
	g.check()
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

func TestACSVFile(t *testing.T) {
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
	if diff := cmp.Diff(want, told(g)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatIsWrongInACSVFile(t *testing.T) {
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
	var got []string
	for _, line := range told(g) {
		if strings.Contains(line, cannot) {
			got = append(got, strings.Replace(line, " | "+cannot+" | ", ": ", 1))
		}
	}
	want := []string{
		`line 3: name: there are two pools "lab": rename one`,
		`line 4: name: "Lab" is not the name of an object: use lower-case letters, digits, - and .`,
		`line 5: cidr: "10.0.3.1/24" is not a CIDR without host bits: write one such as 10.0.0.0/24`,
		`line 6: network: "big" is not the length of a subnet: write one such as 24`,
		`line 7: cidr: "10.0.0.300" is neither an address nor a CIDR without host bits: correct it`,
		`line 9: name: there are two claims team/a: rename one`,
		`line 11: it says no namespace: name one, or choose one with -n`,
		`line 12: cidr: no pool in the file has 10.9.0.3: add one`,
		`line 13: cidr: 10.9.0.3 does not lie in the pool lab, which is 10.0.0.0/24: correct one of them`,
		`line 14: pool: there is no pool "none" in the file: add it`,
		`line 15: cidr: "here" is not an IP address: write one such as 10.0.0.1`,
		`line 16: kind: "host" is none of pool, claim and reserved: correct it`,
		`IPClaim team/b: 10.0.0.3/32 overlaps 10.0.0.3/32 of IPClaim team/a: correct one of them`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestColumnsThatDoNotExist(t *testing.T) {
	for text, want := range map[string]string{
		"kind,cidr,colour\n": `the first line names the column "colour": write some of kind,name,cidr,pool,parent,namespace,routingDomain,network,gateway,description`,
		"kind,name\n":        `the first line lacks the column "cidr": add it`,
	} {
		if _, err := readCSV(strings.NewReader(text), Options{}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

const netBoxPrefixes = `{"count": 6, "next": null, "previous": null, "results": [
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

func TestAnExportOfNetBox(t *testing.T) {
	g, err := readNetBox([]io.Reader{strings.NewReader(netBoxPrefixes), strings.NewReader(netBoxAddresses)}, Options{Namespace: "dc"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pool net-10-0-0-0-8 10.0.0.0/8 reserved 10.2.0.0/24",
		"pool net-10-1-0-0-24 10.1.0.0/24 of net-10-0-0-0-8 network 24  reserved 10.1.0.8 10.1.0.100-10.1.0.199",
		"pool net-10-1-0-0-24-blue-team 10.1.0.0/24 in blue-team",
		"claim dc/db1.example.com 10.1.0.7/32 of net-10-1-0-0-24 db1 eth0",
		"claim dc/ip-10-1-0-9 10.1.0.9/32 of net-10-1-0-0-24 NetBox IP address 12",
		"claim dc/ip-10-1-0-7-blue-team 10.1.0.7/32 of net-10-1-0-0-24-blue-team NetBox IP address 15",
		"prefix 10.2.0.0/24 | reserved in IPPool net-10-0-0-0-8 | is reserved",
		"prefix 2001:db8::/64 | - | is deprecated, and part of no other prefix: nothing could hand it out",
		"IP address 10.1.0.8/24 | reserved in IPPool net-10-1-0-0-24 | is reserved",
		"IP address 10.1.0.9/24 | - | is in the export more than once, as anycast: one claim holds it",
		"IP address 10.1.0.0/24 | - | IPPool net-10-1-0-0-24 never hands it out, so nobody has to hold it",
		"IP address 172.16.0.1/24 | cannot be mapped | no prefix of the global VRF has it: export that as well",
		"IP range 10.1.0.100/24-10.1.0.199/24 | reserved in IPPool net-10-1-0-0-24 | is active",
	}
	if diff := cmp.Diff(want, told(g)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOnePageOfSeveralIsRefused(t *testing.T) {
	_, err := readNetBox([]io.Reader{strings.NewReader(`{"count": 100, "next": "http://netbox/api/ipam/prefixes/?offset=50", "results": []}`)}, Options{})
	if err == nil || err.Error() != "what was read is one page of several: export all of it, with ?limit=0" {
		t.Errorf("got %v", err)
	}
}

func TestAPlanThatIsNotAppliedNeedsNoClient(t *testing.T) {
	var out bytes.Buffer
	err := CSV(t.Context(), nil, Options{Out: &out}, strings.NewReader("kind,name,cidr\npool,lab,10.0.0.0/24\n"))
	if err != nil || !strings.Contains(out.String(), "10.0.0.0/24   IPPool lab") {
		t.Errorf("%v: %s", err, out.String())
	}
}
