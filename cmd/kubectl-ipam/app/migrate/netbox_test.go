package migrate

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// netBoxOf reads exports of NetBox, or fails the test.
func netBoxOf(t *testing.T, exports ...string) *register {
	t.Helper()
	var readers []io.Reader
	for _, export := range exports {
		readers = append(readers, strings.NewReader(export))
	}
	g, err := readNetBox(readers, Options{Namespace: "dc"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestVRFsBecomeRoutingDomainsByID(t *testing.T) {
	objects := []netBoxObject{}
	for id, name := range map[int64]string{
		1: "Lab", 2: "Lab", 3: "Lab A", 4: "lab-a", 5: "default", 6: "東京", 7: "", 8: "Blue", 9: "Lab 1", 10: "VRF 6",
		11: strings.Repeat("long-", 8) + "a", 12: strings.Repeat("long-", 8) + "b",
	} {
		objects = append(objects, netBoxObject{ID: id, Prefix: "10.0.0.0/24", Status: "active", VRF: &netBoxNamed{ID: id, Name: name}})
	}
	long := strings.TrimSuffix(strings.Repeat("long-", 8), "-")
	want := map[int64]string{
		0: "", 1: "lab-1", 2: "lab-2", 3: "lab-a-3", 4: "lab-a-4", 5: "default-5", 6: "vrf-6", 7: "vrf-7", 8: "blue", 9: "lab-1-9", 10: "vrf-6-10",
		11: long + "-11", 12: long + "-12",
	}
	equal(t, want, domainsOf(objects))
	got := resultLines(t, clusterWith(""), registerOf(objects, Options{Namespace: "dc"}))
	if len(got) != len(objects) || len(problemsOf(got)) > 0 {
		t.Errorf("want a pool for each VRF, got\n%s", strings.Join(got, "\n"))
	}
}

func TestVRFWithoutIDIsReported(t *testing.T) {
	got := resultLines(t, clusterWith(""), netBoxOf(t, `[{"id": 1, "prefix": "10.0.0.0/24", "vrf": {"name": "Lab"}}]`))
	equal(t, []string{`prefix 10.0.0.0/24 | cannot be mapped | its VRF "Lab" has no id: export it as NetBox's REST API gives it`}, got)
}

// TestNetBoxObjectOrderDoesNotMatter reads a range with a holder in it, prefixes that occur
// twice, a range over several prefixes, and names that occur twice.
func TestNetBoxObjectOrderDoesNotMatter(t *testing.T) {
	objects := []string{
		`{"id": 1, "prefix": "10.32.0.0/24", "status": {"value": "active"}}`,
		`{"id": 2, "start_address": "10.32.0.100/24", "end_address": "10.32.0.199/24", "status": {"value": "active"}}`,
		`{"id": 3, "address": "10.32.0.150/24", "status": {"value": "active"}, "dns_name": "a.example.com"}`,
		`{"id": 4, "prefix": "10.33.0.0/24", "status": {"value": "container"}}`,
		`{"id": 5, "prefix": "10.33.0.0/24", "status": {"value": "active"}}`,
		`{"id": 6, "prefix": "10.32.0.0/15", "status": {"value": "container"}}`,
		`{"id": 7, "start_address": "10.32.0.250/24", "end_address": "10.32.1.9/24", "status": {"value": "active"}}`,
		`{"id": 8, "prefix": "10.32.8.0/21", "status": {"value": "reserved"}}`,
		`{"id": 9, "prefix": "10.32.9.0/24", "status": {"value": "active"}}`,
		`{"id": 10, "address": "10.32.8.7/24", "status": {"value": "active"}, "dns_name": "a.example.com"}`,
		`{"id": 11, "address": "10.32.8.7/24", "status": {"value": "deprecated"}}`,
	}
	want := []string{
		"pool net-10-32-0-0-15 10.32.0.0/15 reserved 10.32.1.0-10.32.1.9 10.32.8.0-10.32.8.6 10.32.8.8-10.32.8.255 10.32.10.0-10.32.15.255",
		"pool net-10-32-0-0-24 10.32.0.0/24 of net-10-32-0-0-15 network 24  reserved 10.32.0.100-10.32.0.149 10.32.0.151-10.32.0.199 10.32.0.250-10.32.0.255",
		"pool net-10-32-9-0-24 10.32.9.0/24 of net-10-32-0-0-15 network 24",
		"pool net-10-33-0-0-24 10.33.0.0/24 of net-10-32-0-0-15 network 24",
		"claim dc/ip-10-32-8-7 10.32.8.7/32 of net-10-32-0-0-15 NetBox IP address 10",
		"claim dc/a.example.com 10.32.0.150/32 of net-10-32-0-0-24 NetBox IP address 3",
		"prefix 10.32.8.0/21 | reserved in IPPool net-10-32-0-0-15 | is reserved",
		"prefix 10.33.0.0/24 | - | is in the export twice: the other one becomes IPPool net-10-33-0-0-24",
		"IP address 10.32.8.7/24 | - | is in the export more than once, as NetBox IP address 11: one claim holds it",
		"IP range 10.32.0.100/24-10.32.0.199/24 | reserved in IPPool net-10-32-0-0-24 | is active",
		"IP range 10.32.0.250/24-10.32.1.9/24 | reserved in IPPool net-10-32-0-0-15, net-10-32-0-0-24 | is active",
	}
	dice := rand.New(rand.NewPCG(1, 0))
	for range 20 {
		dice.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		cut := dice.IntN(len(objects))
		files := []string{"[" + strings.Join(objects[:cut], ",") + "]", "[" + strings.Join(objects[cut:], ",") + "]"}
		if diff := cmp.Diff(want, resultLines(t, clusterWith(""), netBoxOf(t, files...))); diff != "" {
			t.Fatalf("of %s: -want +got:\n%s", files, diff)
		}
	}
}

// pageOf returns a page of an endpoint that has count prefixes, 10.0.N.0/24 with the id N+1.
func pageOf(offset, length, count int) string {
	const endpoint = "https://netbox.example.com/api/ipam/prefixes/"
	next, previous := "null", "null"
	if offset+length < count {
		next = fmt.Sprintf(`"%s?limit=%d&offset=%d"`, endpoint, length, offset+length)
	}
	if offset > 0 {
		previous = fmt.Sprintf(`"%s?limit=%d"`, endpoint, length)
	}
	var objects []string
	for i := offset; i < min(offset+length, count); i++ {
		objects = append(objects, fmt.Sprintf(`{"id": %d, "prefix": "10.0.%d.0/24", "status": {"value": "active"}}`, i+1, i))
	}
	return fmt.Sprintf(`{"count": %d, "next": %s, "previous": %s, "results": [%s]}`, count, next, previous, strings.Join(objects, ","))
}

func TestNetBoxPagesAreMerged(t *testing.T) {
	addresses := `{"count": 1, "next": null, "previous": null, "results": [{"id": 1, "address": "10.0.7.7/24", "status": {"value": "active"}}]}`
	for name, exports := range map[string][]string{
		"in order":              {pageOf(0, 4, 10), pageOf(4, 4, 10), pageOf(8, 4, 10), addresses},
		"in another order":      {addresses, pageOf(8, 4, 10), pageOf(0, 4, 10), pageOf(4, 4, 10)},
		"in one file":           {pageOf(0, 4, 10) + "\n" + pageOf(4, 4, 10) + pageOf(8, 4, 10) + addresses},
		"one of them twice":     {pageOf(0, 4, 10), pageOf(0, 4, 10), pageOf(4, 4, 10), pageOf(8, 4, 10), addresses},
		"of different lengths":  {pageOf(0, 8, 10), pageOf(8, 2, 10), addresses},
		"the whole in one page": {pageOf(0, 10, 10), addresses},
	} {
		t.Run(name, func(t *testing.T) {
			g := netBoxOf(t, exports...)
			if len(g.pools) != 10 || len(g.claims) != 1 || len(g.rows) > 0 {
				t.Errorf("got %d pools, %d claims and the rows %v, want 10, 1 and none", len(g.pools), len(g.claims), g.rows)
			}
		})
	}
}

func TestMissingNetBoxPagesAreReported(t *testing.T) {
	for want, exports := range map[string][]string{
		"prefixes: NetBox has 10 objects, and 4 of them were read: export the page with offset=4 as well, or read them with --url":                            {pageOf(0, 4, 10)},
		"prefixes: NetBox has 10 objects, and 6 of them were read: export the page with offset=4 as well, or read them with --url":                            {pageOf(8, 4, 10), pageOf(0, 4, 10)},
		"prefixes: NetBox has 10 objects, and 2 of them were read: export the page with offset=0 as well, or read them with --url":                            {pageOf(8, 4, 10)},
		"prefixes: NetBox has 10 objects, and 8 of them were read: export the page with offset=8 as well, or read them with --url":                            {pageOf(4, 4, 10), pageOf(0, 4, 10)},
		"prefixes: NetBox has 10 objects, and 9 of them were read, as they changed while the pages were exported: export them again":                          {pageOf(0, 5, 10), strings.Replace(pageOf(5, 5, 10), `"id": 6,`, `"id": 5,`, 1)},
		"there are no objects in the input: export /api/ipam/prefixes/ and /api/ipam/ip-addresses/, or read them with --url":                                  {`{"count": 0, "next": null, "results": []}`},
		"the input is not JSON as NetBox's REST API gives it: invalid character '<' looking for beginning of value":                                           {"<html>"},
		"the input is not JSON as NetBox's REST API gives it: json: cannot unmarshal string into Go struct field page.results of type []migrate.netBoxObject": {`{"results": "none"}`},
	} {
		var readers []io.Reader
		for _, export := range exports {
			readers = append(readers, strings.NewReader(export))
		}
		if _, err := readNetBox(readers, Options{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNetBoxCSVExportIsRejected(t *testing.T) {
	for header, what := range map[string]string{
		"id,prefix,status,vrf,tenant,description":                           "prefixes",
		"Prefix,Status,Children,VRF,Utilization,Tenant,Site,VLAN,Role":      "prefixes",
		`"IP Address";"VRF";"Status";"Role";"Tenant";"Assigned";"DNS Name"`: "IP addresses",
		"\ufeffStart address\tEnd address\tSize\tVRF\tStatus":               "IP ranges",
	} {
		want := netBoxExportError(what).Error()
		if _, err := readCSV(strings.NewReader(header+"\n"), Options{}); err == nil || err.Error() != want {
			t.Errorf("csv %q: got %v, want %s", header, err, want)
		}
		if _, err := readNetBox([]io.Reader{strings.NewReader(header + "\n")}, Options{}); err == nil || err.Error() != want {
			t.Errorf("netbox %q: got %v, want %s", header, err, want)
		}
	}
}

// TestCSVFormatsAreEquivalent reads the formats in which spreadsheets write one table.
func TestCSVFormatsAreEquivalent(t *testing.T) {
	const table = "kind,cidr,name,description\npool,10.0.0.0/24,lab,the lab\nclaim,10.0.0.7,db,\n"
	want := []string{"pool lab 10.0.0.0/24", "claim team/db 10.0.0.7/32 of lab"}
	for name, text := range map[string]string{
		"commas":         table,
		"semicolons":     strings.ReplaceAll(table, ",", ";"),
		"tabs":           strings.ReplaceAll(table, ",", "\t"),
		"a BOM":          "\ufeff" + table,
		"quoted fields":  "\ufeff\"kind\",\"cidr\",\"name\",\"description\"\n\"pool\",\"10.0.0.0/24\",\"lab\",\"the lab, \"\"all\"\"\"\n\"claim\",\"10.0.0.7\",\"db\",\"\"\n",
		"CRLF":           strings.ReplaceAll(table, "\n", "\r\n"),
		"empty rows":     "\n" + strings.ReplaceAll(table, "\n", "\n\n,,,\n"),
		"another order":  "kind,cidr,name,description\nclaim,10.0.0.7,db,\npool,10.0.0.0/24,lab,the lab\n",
		"spaces around":  strings.ReplaceAll(table, ",", " , "),
		"no last return": strings.TrimSuffix(table, "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			g, err := readCSV(strings.NewReader(text), Options{Namespace: "team"})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, want, resultLines(t, clusterWith(""), g))
		})
	}
	if _, err := readCSV(strings.NewReader("\xff\xfek\x00"), Options{}); err == nil || err.Error() != "the file is in UTF-16: save it as CSV in UTF-8" {
		t.Errorf("UTF-16: %v", err)
	}
}

func TestUnreadableCSVRowsAreAllListed(t *testing.T) {
	g := csvOf(t, "pool,lab,10.0.0.0/24,,,,,,\nclaim,a\nclaim,\"b\"x,10.0.0.7,,,,,,\nclaim,c,10.0.0.8,,,,,,\nhost,d,10.0.0.9,,,,,,\n")
	want := []string{
		"line 3: has 2 values, and the first line names 9 columns: write one for each, which may be empty",
		`line 4: column 9 of the text: extraneous or missing " in quoted-field: write a value that has quotes as "a ""b"" c"`,
		`line 6: kind: "host" is none of pool, claim and reserved: correct it`,
	}
	got := resultLines(t, clusterWith(""), g)
	equal(t, want, problemsOf(got))
	if len(g.pools) != 1 || len(g.claims) != 1 {
		t.Errorf("the rest is %v, want the pool lab and the claim c", got)
	}
}

// TestSkipProblemsImportsRest imports the rest of a plan with --skip-problems.
func TestSkipProblemsImportsRest(t *testing.T) {
	const lines = "pool,lab,10.0.0.0/24,,,,,,\nclaim,a,10.0.0.7,,,,,,\nclaim,b,10.0.0.7,,,,,,\nclaim,c,10.0.9.8,,,,,,\n"
	var out strings.Builder
	for _, skip := range []bool{false, true} {
		out.Reset()
		err := csvOf(t, lines).run(t.Context(), clusterWith(""), Options{Out: &out, SkipProblems: skip})
		if (err == nil) != skip {
			t.Errorf("with SkipProblems=%t: %v", skip, err)
		}
		if err != nil && err.Error() != "2 problems of import csv: correct the problems in the table, or import the rest with --skip-problems" {
			t.Errorf("got %v", err)
		}
		for _, part := range []string{"line 4", "line 5", "1 held block"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%q is not in the table:\n%s", part, out.String())
			}
		}
	}
	if !strings.HasSuffix(out.String(), "Leaving out 2 problems.\n") {
		t.Errorf("printed is\n%s", out.String())
	}
}
