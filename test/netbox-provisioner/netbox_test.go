package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/provisioner"
	"github.com/cadastre-dev/cadastre/provisioner/conformance"
)

// newNetBox returns a process whose provisioner uses the fake.
func newNetBox(t *testing.T, f *fakeNetBox) *netBox {
	t.Helper()
	return newNetBoxWith(t, f, func() (string, error) { return secret, nil })
}

func newNetBoxWith(t *testing.T, f *fakeNetBox, token func() (string, error)) *netBox {
	t.Helper()
	c, err := newClient(f.URL, http.DefaultTransport, token)
	if err != nil {
		t.Fatal(err)
	}
	return &netBox{c}
}

// requestFor returns a request for a /24 of the containers with the tag pods.
func requestFor(key string) provisioner.Request {
	return provisioner.Request{
		Key: key, Cluster: "uid", Class: "leased", Family: v1alpha1.IPv4, PrefixLength: 24,
		Parameters: map[string]string{parameterTag: "pods"},
	}
}

// reclaimOf returns a request for the range that a pool has.
func reclaimOf(key, block string) provisioner.Request {
	r := requestFor(key)
	r.Range = netip.MustParsePrefix(block)
	return r
}

// provisioned calls Provision, and expects a range.
func provisioned(t *testing.T, n *netBox, r provisioner.Request, want string) {
	t.Helper()
	if block, err := n.Provision(t.Context(), r); err != nil || block.String() != want {
		t.Errorf("Provision(%s) returns %s, %v, want %s", r.Key, block, err, want)
	}
}

// refused calls Provision, and expects an error.
func refused(t *testing.T, n *netBox, r provisioner.Request, want string) {
	t.Helper()
	if block, err := n.Provision(t.Context(), r); err == nil || err.Error() != want {
		t.Errorf("Provision(%s) returns %s, %v, want the error %q", r.Key, block, err, want)
	}
}

// TestNetBoxConforms has all ranges in the last one of several containers, and one prefix on each page.
func TestNetBoxConforms(t *testing.T) {
	for _, unique := range []bool{false, true} {
		t.Run(fmt.Sprintf("unique %t", unique), func(t *testing.T) {
			f := newFakeNetBox(t)
			f.uniqueKeys, f.uniquePrefixes = unique, unique
			for _, p := range []stored{
				container("10.0.0.0/23", "pods"), {prefix: netip.MustParsePrefix("10.0.0.0/24")}, {prefix: netip.MustParsePrefix("10.0.1.128/25"), status: "deprecated"},
				container("10.1.0.0/24", "pods"), container("10.2.0.0/16", "others"), container("fd00::/16", "pods"), container("10.3.0.0/22", "pods"),
				{prefix: netip.MustParsePrefix("9.0.0.0/22"), tag: "pods"},
			} {
				f.add(p)
			}
			request := requestFor("")
			request.Cluster = "11111111-2222-3333-4444-555555555555"
			conformance.Test(t, conformance.Target{
				New: func(cut func() error) (provisioner.Provisioner, error) {
					c, err := newClient(f.URL, conformance.Transport(http.DefaultTransport, cut), func() (string, error) { return secret, nil })
					return &netBox{c}, err
				},
				Request: request, Ranges: 4,
				Forget: func(_ context.Context, key string) error {
					f.forget(key)
					return nil
				},
			})
			if left := f.prefixes(); left != "" {
				t.Errorf("NetBox still has %s", left)
			}
		})
	}
}

func TestRangeIsRecordedWithKey(t *testing.T) {
	f := newFakeNetBox(t)
	c := container("10.0.0.0/8", "pods")
	c.vrf = 7
	f.add(c)
	f.add(stored{prefix: netip.MustParsePrefix("10.0.0.0/24")}) // in the global table
	request := requestFor("uid.leased-a")
	request.Class = strings.Repeat("x", 253)
	for range 2 { // the second time as after a restore of NetBox
		provisioned(t, newNetBox(t, f), request, "10.0.0.0/24")
		got := f.withKey("uid.leased-a")
		if len(got) != 1 || got[0].vrf != 7 || got[0].status != "active" || !strings.HasPrefix(got[0].description, "Cadastre: pool of the IPClass xxx") {
			t.Fatalf("NetBox has %+v", got)
		}
		f.forget(request.Key)
		request.Range = got[0].prefix
	}
}

func TestRangeIsOfFamily(t *testing.T) {
	f, request := newFakeNetBox(t), requestFor("a")
	f.add(container("10.0.0.0/8", "pods"))
	f.add(container("fd00::/48", "pods"))
	request.Family, request.PrefixLength = v1alpha1.IPv6, 64
	provisioned(t, newNetBox(t, f), request, "fd00::/64")
	request.Range = netip.MustParsePrefix("fd00:0:0:1::/64")
	request.Key = "b"
	provisioned(t, newNetBox(t, f), request, "fd00:0:0:1::/64")
}

// TestBusyNetBoxIsAskedAgain fails every second request.
func TestBusyNetBoxIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		header string
		pause  time.Duration
	}{
		"too many requests":   {http.StatusTooManyRequests, "7", 7 * time.Second},
		"service unavailable": {http.StatusServiceUnavailable, "", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f, n, paused := newFakeNetBox(t), 0, time.Duration(0)
			f.add(container("10.0.0.0/22", "pods"))
			f.answers = func(w http.ResponseWriter, _ *http.Request) bool {
				n++
				if n%2 == 1 {
					w.Header().Set("Retry-After", test.header)
					w.WriteHeader(test.code)
				}
				return n%2 == 1
			}
			p := newNetBox(t, f)
			p.after = func(d time.Duration) <-chan time.Time {
				paused = d
				now := make(chan time.Time, 1)
				now <- time.Time{}
				return now
			}
			provisioned(t, p, requestFor("a"), "10.0.0.0/24")
			if err := p.Release(t.Context(), "a"); err != nil || f.prefixes() != "" {
				t.Errorf("Release returns %v, NetBox has %s", err, f.prefixes())
			}
			if paused != test.pause {
				t.Errorf("it paused %s, want %s", paused, test.pause)
			}
		})
	}
}

func TestCallEndsWithContext(t *testing.T) {
	f := newFakeNetBox(t)
	f.answers = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	p := newNetBox(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	p.after = func(time.Duration) <-chan time.Time { cancel(); return nil }
	if _, err := p.Provision(ctx, requestFor("a")); err == nil || err.Error() != "NetBox answers 502 Bad Gateway to GET /api/ipam/prefixes/" {
		t.Errorf("it returns %v", err)
	}
}

// TestExactPrefixesOfOneKeyRace has two processes create the prefix that a pool has: both pass all checks before one
// is written.
func TestExactPrefixesOfOneKeyRace(t *testing.T) {
	f := newFakeNetBox(t)
	f.uniqueKeys = true
	f.add(container("10.0.0.0/22", "pods"))
	var both, done sync.WaitGroup
	both.Add(2)
	f.beforeWrite = func(netip.Prefix) { both.Done(); both.Wait() }
	for range 2 {
		done.Go(func() { provisioned(t, newNetBox(t, f), reclaimOf("a", "10.0.2.0/24"), "10.0.2.0/24") })
	}
	done.Wait()
	if got := f.prefixes(); got != "a 10.0.2.0/24" {
		t.Errorf("NetBox has %s, want one prefix", got)
	}
}

// TestExactPrefixIsTakenMeanwhile has another key take the prefix that a pool has, after the checks and before the
// write.
func TestExactPrefixIsTakenMeanwhile(t *testing.T) {
	f := newFakeNetBox(t)
	f.add(container("10.0.0.0/22", "pods"))
	f.beforeWrite = func(netip.Prefix) {
		f.beforeWrite = nil
		provisioned(t, newNetBox(t, f), requestFor("b"), "10.0.0.0/24")
	}
	refused(t, newNetBox(t, f), reclaimOf("a", "10.0.0.0/24"), "10.0.0.0/24 overlaps the prefix 10.0.0.0/24 (id 2) of NetBox: delete one of them")
	if got := f.prefixes(); got != "b 10.0.0.0/24" {
		t.Errorf("NetBox has %s, want that of b", got)
	}
}

// TestFreePrefixIsTakenMeanwhile has a user of NetBox create a prefix that overlaps the free one, before that is
// written: NetBox locks available-prefixes only against itself.
func TestFreePrefixIsTakenMeanwhile(t *testing.T) {
	f := newFakeNetBox(t)
	f.add(container("10.0.0.0/22", "pods"))
	f.beforeWrite = func(netip.Prefix) {
		f.beforeWrite = nil
		f.add(stored{prefix: netip.MustParsePrefix("10.0.0.64/26")})
	}
	p := newNetBox(t, f)
	refused(t, p, requestFor("a"), "10.0.0.0/24 overlaps the prefix 10.0.0.64/26 (id 2) of NetBox: delete one of them")
	provisioned(t, p, requestFor("a"), "10.0.1.0/24")
}

// TestExactPrefixMustBeFree covers the prefixes that a range that NetBox has forgotten can overlap.
func TestExactPrefixMustBeFree(t *testing.T) {
	for name, test := range map[string]struct {
		other stored
		want  string
	}{
		"none":                         {stored{prefix: netip.MustParsePrefix("10.0.1.0/24")}, ""},
		"a smaller one":                {stored{prefix: netip.MustParsePrefix("10.0.2.128/25")}, "10.0.2.0/24 overlaps the prefix 10.0.2.128/25 (id 2) of NetBox: delete one of them"},
		"a larger one":                 {stored{prefix: netip.MustParsePrefix("10.0.0.0/16")}, "10.0.2.0/24 overlaps the prefix 10.0.0.0/16 (id 2) of NetBox: delete one of them"},
		"a container around it":        {container("10.0.2.0/23", ""), ""},
		"a container that is equal":    {container("10.0.2.0/24", ""), "10.0.2.0/24 overlaps the prefix 10.0.2.0/24 (id 2) of NetBox: delete one of them"},
		"the same one in another VRF":  {stored{prefix: netip.MustParsePrefix("10.0.2.0/24"), vrf: 7}, ""},
		"that of a key that is longer": {stored{prefix: netip.MustParsePrefix("10.0.2.0/24"), key: "ab"}, "10.0.2.0/24 overlaps the prefix 10.0.2.0/24 (id 2) of NetBox: delete one of them"},
		"another one of the key":       {stored{prefix: netip.MustParsePrefix("10.0.3.0/24"), key: "a"}, "NetBox has the prefix 10.0.3.0/24 (id 2) for the key of 10.0.2.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNetBox(t)
			f.add(container("10.0.0.0/8", "pods"))
			f.add(test.other)
			p, before := newNetBox(t, f), f.prefixes()
			if test.want == "" {
				provisioned(t, p, reclaimOf("a", "10.0.2.0/24"), "10.0.2.0/24")
				provisioned(t, p, requestFor("a"), "10.0.2.0/24")
				return
			}
			refused(t, p, reclaimOf("a", "10.0.2.0/24"), test.want)
			if got := f.prefixes(); got != before {
				t.Errorf("NetBox has %q, and had %q", got, before)
			}
		})
	}
}

func TestErrorStatesRemedy(t *testing.T) {
	vrf := container("10.8.0.0/16", "pods")
	vrf.vrf = 7
	for name, test := range map[string]struct {
		prepare func(*fakeNetBox, *provisioner.Request)
		want    string
	}{
		"no tag": {func(_ *fakeNetBox, r *provisioner.Request) { r.Parameters = nil },
			"parameters.containerTag is not set: set it to the slug of the tag of prefixes in NetBox"},
		"a tag that NetBox does not have": {func(_ *fakeNetBox, r *provisioner.Request) { r.Parameters = map[string]string{parameterTag: "x"} },
			`reading the prefixes with the tag x: NetBox answers 400 Bad Request to GET /api/ipam/prefixes/: {"tag":["Select a valid choice. x is not one of the available choices."]}`},
		"no container": {func(_ *fakeNetBox, r *provisioner.Request) { r.Family, r.PrefixLength = v1alpha1.IPv6, 64 },
			"NetBox has no IPv6 prefix with the status Container and the tag pods that is larger than a /64: create one"},
		"containers in several VRFs": {func(f *fakeNetBox, _ *provisioner.Request) { f.add(vrf) },
			"the prefixes of NetBox with the tag pods are in several VRFs, whose ranges may overlap: use a tag for each VRF"},
		"no room": {func(f *fakeNetBox, _ *provisioner.Request) {
			f.add(stored{prefix: netip.MustParsePrefix("10.0.0.0/25")})
			f.add(stored{prefix: netip.MustParsePrefix("10.0.1.0/25"), status: "reserved"})
		},
			"no prefix of NetBox with the tag pods has room for a /24: add one, or free ranges"},
		"a range of another container": {func(_ *fakeNetBox, r *provisioner.Request) { r.Range = netip.MustParsePrefix("10.9.0.0/24") },
			"no prefix of NetBox with the status Container and the tag pods contains 10.9.0.0/24"},
		"no custom field": {func(f *fakeNetBox, _ *provisioner.Request) { f.withoutField = true },
			"NetBox does not filter prefixes by the custom field ipam_key: create it with the type Text and the filter logic Exact, for prefixes"},
		"a key that another process writes": {func(f *fakeNetBox, _ *provisioner.Request) {
			f.uniqueKeys = true
			f.answers = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					f.add(stored{prefix: netip.MustParsePrefix("10.0.0.0/24"), key: "a"})
				}
				return false
			}
		}, `taking a /24 from the prefix 10.0.0.0/23 (id 1): NetBox answers 400 Bad Request to POST /api/ipam/prefixes/1/available-prefixes/: {"__all__":["Custom field 'ipam_key' must have a unique value."]}`},
		"a prefix that is deleted at once": {func(f *fakeNetBox, _ *provisioner.Request) {
			f.answers = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Has("cf_" + keyField) {
					f.forget("a")
				}
				return false
			}
		}, "the prefix was deleted from NetBox while it was created"},
		"no NetBox": {func(f *fakeNetBox, _ *provisioner.Request) { f.Close() }, "NetBox does not answer: connection refused"},
		"a response that ends": {func(f *fakeNetBox, _ *provisioner.Request) {
			f.answers = func(w http.ResponseWriter, _ *http.Request) bool { w.Header().Set("Content-Length", "9"); return true }
		}, "the answer of NetBox cannot be read: unexpected EOF"},
		"a redirect": {func(f *fakeNetBox, _ *provisioner.Request) {
			f.answers = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusFound)
				return true
			}
		}, "NetBox answers 302 Found to GET /api/ipam/prefixes/"},
	} {
		t.Run(name, func(t *testing.T) {
			f, request := newFakeNetBox(t), requestFor("a")
			f.add(container("10.0.0.0/23", "pods"))
			p := newNetBox(t, f)
			test.prepare(f, &request)
			refused(t, p, request, test.want)
		})
	}
}

// TestRenewedTokenIsUsed begins with a token that NetBox refuses, and which no error may show, not even if NetBox
// repeats it.
func TestRenewedTokenIsUsed(t *testing.T) {
	f, file := newFakeNetBox(t), filepath.Join(t.TempDir(), "token")
	f.add(container("10.0.0.0/22", "pods"))
	p := newNetBoxWith(t, f, func() (string, error) { return readToken(file) })
	if _, err := p.Provision(t.Context(), requestFor("a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file, it returns %v", err)
	}
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	refused(t, p, requestFor("a"), "--token-file: "+file+" is empty: write the token of NetBox into it")
	write("wrong-secret")
	refused(t, p, requestFor("a"), "NetBox answers 403 Forbidden to GET /api/ipam/prefixes/: give it a token whose user can view, add and delete prefixes")
	f.answers = func(w http.ResponseWriter, r *http.Request) bool {
		http.Error(w, "you sent "+r.Header.Get("Authorization"), http.StatusBadRequest)
		return true
	}
	refused(t, p, requestFor("a"), "NetBox answers 400 Bad Request to GET /api/ipam/prefixes/: you sent Token ***")
	write("nbt_wrong.secret")
	refused(t, p, requestFor("a"), "NetBox answers 400 Bad Request to GET /api/ipam/prefixes/: you sent Bearer ***")
	f.answers = nil
	write(secret)
	provisioned(t, p, requestFor("a"), "10.0.0.0/24")
}

func TestFlagsAreChecked(t *testing.T) {
	for want, args := range map[string][]string{
		"--netbox-url: the URL of NetBox is not valid: write one such as https://netbox.example.com, without a user name": {"--netbox-url=https://user:secret@netbox"},
		"--token-file is not set: set it": {"--netbox-url=https://netbox"},
	} {
		if err := run(t.Context(), args); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
