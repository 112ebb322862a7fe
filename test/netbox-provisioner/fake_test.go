package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go4.org/netipx"
)

const secret = "0123456789abcdef0123456789abcdef01234567"

// fakeNetBox answers requests for prefixes as NetBox 4.7 does. It is made from NetBox's repository: the paths from
// contrib/openapi.json (4.7.0-beta1), the fields from PrefixSerializer (netbox/ipam/api/serializers_/ip.py), the
// lock and the status codes from AvailableObjectsView (netbox/ipam/api/views.py), the choice of a free prefix from
// get_next_available_prefix (netbox/ipam/utils.py) and get_available_prefixes (netbox/ipam/models/ip.py), the
// filters from PrefixFilterSet (netbox/ipam/filtersets.py) and CustomField.to_filter
// (netbox/extras/models/customfields.py), and pages from OptionalLimitOffsetPagination
// (netbox/netbox/api/pagination.py). It knows the parts that the provisioner uses.
type fakeNetBox struct {
	*httptest.Server
	// maxPageSize is MAX_PAGE_SIZE.
	maxPageSize int
	// uniquePrefixes is ENFORCE_GLOBAL_UNIQUE and the enforce_unique of all VRFs, and uniqueKeys the same of the
	// custom field. Like NetBox, it checks both before the write, and not in one transaction with it.
	uniquePrefixes, uniqueKeys bool
	// withoutField leaves the custom field out: its filter is ignored, and its values are dropped.
	withoutField bool
	// beforeWrite is called between the checks of a new prefix and its write.
	beforeWrite func(netip.Prefix)
	// answers replaces the answer to a request if it returns true.
	answers func(http.ResponseWriter, *http.Request) bool

	// availablePrefixes is the advisory lock of that name. Nothing else takes it.
	availablePrefixes sync.Mutex
	mu                sync.Mutex
	lastID            int64
	stored            []stored
}

// stored holds a prefix.
type stored struct {
	id, vrf     int64
	prefix      netip.Prefix
	status, tag string
	description string
	key         string
}

func newFakeNetBox(t *testing.T) *fakeNetBox {
	f := &fakeNetBox{maxPageSize: 1, uniquePrefixes: true}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/ipam/prefixes/{$}", f.list)
	mux.HandleFunc("POST /api/ipam/prefixes/{$}", f.create)
	mux.HandleFunc("DELETE /api/ipam/prefixes/{id}/{$}", f.destroy)
	mux.HandleFunc("POST /api/ipam/prefixes/{id}/available-prefixes/{$}", f.createAvailable)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case f.answers != nil && f.answers(w, r):
		case r.Header.Get("Authorization") != "Token "+secret:
			answer(w, http.StatusForbidden, map[string]string{"detail": "Invalid v1 token " + r.Header.Get("Authorization")})
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// add stores a prefix that a user of NetBox created, and returns its id.
func (f *fakeNetBox) add(p stored) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastID++
	p.id, p.status = f.lastID, cmp.Or(p.status, "active")
	f.stored = append(f.stored, p)
	return p.id
}

func container(cidr, tag string) stored {
	return stored{prefix: netip.MustParsePrefix(cidr), status: "container", tag: tag}
}

// matching returns the prefixes that match, in NetBox's order: global ones first, then by prefix.
func (f *fakeNetBox) matching(matches func(stored) bool) []stored {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := slices.DeleteFunc(slices.Clone(f.stored), func(p stored) bool { return !matches(p) })
	slices.SortFunc(found, func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.vrf, b.vrf), a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()), cmp.Compare(a.id, b.id))
	})
	return found
}

func (f *fakeNetBox) withKey(key string) []stored {
	return f.matching(func(p stored) bool { return p.key == key })
}

func answer(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content) // the client may be gone
}

// content returns a prefix as PrefixSerializer writes it. Its URLs have the host by which a proxy knows NetBox.
func (p stored) content() map[string]any {
	choice := func(value any) map[string]any { return map[string]any{"value": value, "label": fmt.Sprint(value)} }
	var vrf, key any
	if p.vrf != 0 {
		vrf = map[string]any{"id": p.vrf, "name": fmt.Sprintf("VRF %d", p.vrf)}
	}
	if p.key != "" {
		key = p.key
	}
	tags := []any{}
	if p.tag != "" {
		tags = append(tags, map[string]any{"name": p.tag, "slug": p.tag})
	}
	family := 4
	if p.prefix.Addr().Is6() {
		family = 6
	}
	return map[string]any{
		"id": p.id, "url": fmt.Sprintf("http://netbox.internal/api/ipam/prefixes/%d/", p.id), "display": p.prefix.String(),
		"family": choice(family), "prefix": p.prefix.String(), "vrf": vrf, "status": choice(p.status), "tenant": nil, "role": nil,
		"is_pool": false, "mark_utilized": false, "description": p.description, "tags": tags, "custom_fields": map[string]any{keyField: key},
	}
}

func (f *fakeNetBox) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if tag := query.Get("tag"); tag != "" && len(f.matching(func(p stored) bool { return p.tag == tag })) == 0 {
		answer(w, http.StatusBadRequest, map[string][]string{"tag": {"Select a valid choice. " + tag + " is not one of the available choices."}})
		return
	}
	all := f.matching(func(p stored) bool { return f.passes(query, p) })
	limit, offset := 50, 0 // PAGINATE_COUNT
	_, _ = fmt.Sscan(query.Get("limit"), &limit)
	_, _ = fmt.Sscan(query.Get("offset"), &offset)
	limit = min(limit, f.maxPageSize)
	begin := min(offset, len(all))
	end, next := min(begin+limit, len(all)), any(nil)
	if end < len(all) {
		query.Set("offset", strconv.Itoa(end))
		query.Set("limit", strconv.Itoa(limit))
		next = "http://netbox.internal/api/ipam/prefixes/?" + query.Encode()
	}
	results := []any{}
	for _, p := range all[begin:end] {
		results = append(results, p.content())
	}
	answer(w, http.StatusOK, map[string]any{"count": len(all), "next": next, "previous": nil, "results": results})
}

// passes reports whether a prefix passes the filters. NetBox ignores those that it does not know.
func (f *fakeNetBox) passes(query url.Values, p stored) bool {
	for name, values := range query {
		value, passes := values[0], true
		block, _ := netip.ParsePrefix(value)
		switch name {
		case "tag":
			passes = p.tag == value
		case "status":
			passes = p.status == value
		case "family":
			passes = p.prefix.Addr().Is4() == (value == "4")
		case "within_include":
			passes = block.Bits() <= p.prefix.Bits() && block.Contains(p.prefix.Addr())
		case "contains":
			passes = p.prefix.Bits() <= block.Bits() && p.prefix.Contains(block.Addr())
		case "cf_" + keyField:
			passes = f.withoutField || p.key == value
		}
		if !passes {
			return false
		}
	}
	return true
}

// request holds the fields of a new prefix.
type request struct {
	Prefix       netip.Prefix      `json:"prefix"`
	PrefixLength int               `json:"prefix_length"`
	VRF          int64             `json:"vrf"`
	Status       string            `json:"status"`
	Description  string            `json:"description"`
	CustomFields map[string]string `json:"custom_fields"`
}

func (f *fakeNetBox) create(w http.ResponseWriter, r *http.Request) {
	var wanted request
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"detail": err.Error()})
		return
	}
	if p, ok := f.save(w, wanted); ok {
		answer(w, http.StatusCreated, p.content())
	}
}

// save checks a new prefix and writes it, or answers with its problems.
func (f *fakeNetBox) save(w http.ResponseWriter, wanted request) (stored, bool) {
	p := stored{prefix: wanted.Prefix, vrf: wanted.VRF, status: wanted.Status, description: wanted.Description, key: wanted.CustomFields[keyField]}
	problems := map[string][]string{}
	refuse := func(field, text string, when bool) {
		if when {
			problems[field] = append(problems[field], text)
		}
	}
	refuse("prefix", "This field is required.", !p.prefix.IsValid())
	refuse("status", p.status+" is not a valid choice.", !slices.Contains([]string{"container", "active", "reserved", "deprecated"}, p.status))
	refuse("description", "Ensure this field has no more than 200 characters.", len([]rune(p.description)) > 200)
	refuse("prefix", "Duplicate prefix found in global table: "+p.prefix.String(), f.uniquePrefixes && len(f.matching(func(o stored) bool { return o.prefix == p.prefix && o.vrf == p.vrf })) > 0)
	refuse("__all__", "Custom field '"+keyField+"' must have a unique value.", f.uniqueKeys && p.key != "" && len(f.withKey(p.key)) > 0)
	if len(problems) > 0 {
		answer(w, http.StatusBadRequest, problems)
		return p, false
	}
	if f.withoutField {
		p.key = ""
	}
	if f.beforeWrite != nil {
		f.beforeWrite(p.prefix)
	}
	p.id = f.add(p)
	return p, true
}

func (f *fakeNetBox) createAvailable(w http.ResponseWriter, r *http.Request) {
	var text json.RawMessage
	var wanted []request
	err := json.NewDecoder(r.Body).Decode(&text)
	isList := bytes.HasPrefix(text, []byte("["))
	if err == nil && !isList {
		text = slices.Concat([]byte("["), text, []byte("]"))
	}
	if err = json.Unmarshal(text, &wanted); err != nil || len(wanted) != 1 {
		answer(w, http.StatusBadRequest, map[string]string{"detail": "the fake takes one prefix at a time"})
		return
	}
	parents := f.matching(func(p stored) bool { return strconv.FormatInt(p.id, 10) == r.PathValue("id") })
	if len(parents) == 0 {
		answer(w, http.StatusNotFound, map[string]string{"detail": "No Prefix matches the given query."})
		return
	}
	f.availablePrefixes.Lock()
	defer f.availablePrefixes.Unlock()
	free, ok := f.nextAvailable(parents[0], wanted[0].PrefixLength)
	if !ok {
		answer(w, http.StatusConflict, map[string]string{"detail": "Insufficient resources are available to satisfy the request"})
		return
	}
	wanted[0].Prefix, wanted[0].VRF = free, parents[0].vrf
	p, ok := f.save(w, wanted[0])
	switch {
	case ok && isList:
		answer(w, http.StatusCreated, []any{p.content()})
	case ok:
		answer(w, http.StatusCreated, p.content())
	}
}

// nextAvailable returns the first free prefix of a length: one that no prefix of the VRF below the parent overlaps,
// whatever its status.
func (f *fakeNetBox) nextAvailable(parent stored, length int) (netip.Prefix, bool) {
	var free netipx.IPSetBuilder
	free.AddPrefix(parent.prefix)
	for _, p := range f.matching(func(p stored) bool {
		return p.vrf == parent.vrf && p.prefix.Bits() > parent.prefix.Bits() && parent.prefix.Contains(p.prefix.Addr())
	}) {
		free.RemovePrefix(p.prefix)
	}
	set, err := free.IPSet()
	if err != nil {
		return netip.Prefix{}, false
	}
	for _, block := range set.Prefixes() {
		if block.Bits() <= length {
			return netip.PrefixFrom(block.Addr(), length), true
		}
	}
	return netip.Prefix{}, false
}

func (f *fakeNetBox) destroy(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.stored)
	f.stored = slices.DeleteFunc(f.stored, func(p stored) bool { return strconv.FormatInt(p.id, 10) == r.PathValue("id") })
	if len(f.stored) == before {
		answer(w, http.StatusNotFound, map[string]string{"detail": "No Prefix matches the given query."})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// prefixes returns the prefixes of all records with a key.
func (f *fakeNetBox) prefixes() string {
	var all []string
	for _, p := range f.matching(func(p stored) bool { return p.key != "" }) {
		all = append(all, fmt.Sprintf("%s %s", p.key, p.prefix))
	}
	return strings.Join(all, ", ")
}

// forget deletes the prefixes with a key, as the restore of a backup does.
func (f *fakeNetBox) forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored = slices.DeleteFunc(f.stored, func(p stored) bool { return p.key == key })
}
