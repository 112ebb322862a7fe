package migrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// choice represents a value of NetBox that is chosen from a list, as a word or as an object.
type choice string

// UnmarshalJSON implements json.Unmarshaler.
func (c *choice) UnmarshalJSON(text []byte) error {
	var object struct {
		Value string `json:"value"`
	}
	if err := json.Unmarshal(text, &object); err == nil {
		*c = choice(object.Value)
		return nil
	}
	var word string
	err := json.Unmarshal(text, &word)
	*c = choice(word)
	return err
}

// netBoxObject holds the relevant fields of a prefix, an IP address, or an IP range.
type netBoxObject struct {
	ID           int64           `json:"id"`
	Prefix       string          `json:"prefix"`
	Address      string          `json:"address"`
	StartAddress string          `json:"start_address"`
	EndAddress   string          `json:"end_address"`
	Status       choice          `json:"status"`
	IsPool       bool            `json:"is_pool"`
	DNSName      string          `json:"dns_name"`
	Description  string          `json:"description"`
	VRF          *netBoxNamed    `json:"vrf"`
	Assigned     *netBoxAssigned `json:"assigned_object"`
}

type netBoxNamed struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// netBoxAssigned represents the interface that has an address, and its device or virtual machine.
type netBoxAssigned struct {
	Name           string       `json:"name"`
	Device         *netBoxNamed `json:"device"`
	VirtualMachine *netBoxNamed `json:"virtual_machine"`
}

// compareObjects orders prefixes first, larger ones before those inside them, and of equal ones
// first the one that hands out addresses of a subnet; then addresses, and then ranges.
func compareObjects(a, b netBoxObject) int {
	x, y := a.cidr(), b.cidr()
	return cmp.Or(
		cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.vrf(), b.vrf()),
		cmp.Compare(x.Bits(), y.Bits()), x.Addr().Compare(y.Addr()), cmp.Compare(a.use(), b.use()),
		cmp.Compare(a.StartAddress, b.StartAddress), cmp.Compare(a.EndAddress, b.EndAddress), cmp.Compare(a.ID, b.ID),
	)
}

func (o netBoxObject) rank() int {
	return slices.Index([]bool{o.Prefix != "", o.Address != "", o.StartAddress != "", true}, true)
}

// use ranks how a prefix is handed out: as a subnet of hosts, as a whole, in parts, or not.
func (o netBoxObject) use() int {
	return slices.Index([]bool{!o.isUnused() && o.Status != "container" && !o.IsPool, !o.isUnused() && o.Status != "container", !o.isUnused(), true}, true)
}

// isUnused reports whether nothing is handed out of a prefix.
func (o netBoxObject) isUnused() bool { return o.Status == "reserved" || o.Status == "deprecated" }

// isUnclaimed reports whether an address has no holder, or something else hands it out.
func (o netBoxObject) isUnclaimed() bool {
	return o.Status == "reserved" || o.Status == "dhcp" || o.Status == "slaac"
}

// cidr returns the CIDR of a prefix, or of an address alone; the zero Prefix if it is invalid.
func (o netBoxObject) cidr() netip.Prefix {
	if o.Prefix != "" {
		cidr, _ := netip.ParsePrefix(o.Prefix)
		return cidr.Masked()
	}
	text, _, _ := strings.Cut(o.Address, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, addr.BitLen())
}

func (o netBoxObject) title() string {
	switch {
	case o.Prefix != "":
		return "prefix " + o.Prefix
	case o.Address != "":
		return "IP address " + o.Address
	case o.StartAddress != "":
		return fmt.Sprintf("IP range %s-%s", o.StartAddress, o.EndAddress)
	}
	return fmt.Sprintf("object %d", o.ID)
}

// describe returns a description of the holder of an address.
func (o netBoxObject) describe() string {
	if o.Assigned == nil {
		return cmp.Or(o.Description, fmt.Sprintf("NetBox IP address %d", o.ID))
	}
	text := o.Assigned.Name
	if owner := cmp.Or(o.Assigned.Device, o.Assigned.VirtualMachine); owner != nil {
		text = owner.Name + " " + text
	}
	if text = strings.TrimSpace(text); o.Description != "" {
		text += ": " + o.Description
	}
	return text
}

// vrf returns the id of the VRF: 0 for the global one, and -1 for one that has no id.
func (o netBoxObject) vrf() int64 {
	if o.VRF == nil {
		return 0
	}
	return cmp.Or(o.VRF.ID, -1)
}

func (o netBoxObject) vrfTitle() string {
	if o.VRF == nil {
		return "the global VRF"
	}
	return fmt.Sprintf("the VRF %s (id %d)", o.VRF.Name, o.VRF.ID)
}

// page represents a part of the objects of an endpoint.
type page struct {
	Count    int            `json:"count"`
	Next     string         `json:"next"`
	Previous string         `json:"previous"`
	Results  []netBoxObject `json:"results"`
	// offset is the number of objects of the endpoint before these.
	offset int
}

// readPages reads pages with their results, or lists of objects, one after the other.
func readPages(reader io.Reader) ([]page, error) {
	text, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(string(text), "\ufeff"), "\n")
	if what := netBoxExport(strings.FieldsFunc(first, func(c rune) bool { return c == separatorOf([]byte(first)) })); what != "" {
		return nil, netBoxExportError(what)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	var pages []page
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return pages, nil
		}
		var p page
		if err == nil && raw[0] == '[' {
			err = json.Unmarshal(raw, &p.Results)
			p.Count = len(p.Results)
		} else if err == nil {
			err = json.Unmarshal(raw, &p)
		}
		if err != nil {
			return nil, fmt.Errorf("the input is not JSON as NetBox's REST API gives it: %w", err)
		}
		pages = append(pages, p)
	}
}

// position returns the endpoint of a page, without the parameters that select the page, and the
// number of objects before those of the page. The endpoint is empty if the page has all objects.
func (p page) position() (endpoint string, offset int, err error) {
	at, err := url.Parse(cmp.Or(p.Next, p.Previous))
	if err != nil {
		return "", 0, fmt.Errorf("the URL of another page is invalid: %w", err)
	}
	query := at.Query()
	offset = p.Count
	if p.Next != "" {
		offset, _ = strconv.Atoi(query.Get("offset")) // 0 if there is none
	}
	query.Del("limit")
	query.Del("offset")
	return (&url.URL{Path: at.Path, RawQuery: query.Encode()}).String(), offset - len(p.Results), nil
}

// objectsOf puts pages together. It returns an error if pages of an endpoint are missing.
func objectsOf(pages []page) ([]netBoxObject, error) {
	endpoints := map[string][]page{}
	for i, p := range pages {
		name, offset, err := p.position()
		if err != nil {
			return nil, err
		}
		name, p.offset = cmp.Or(name, fmt.Sprintf("page %d", i+1)), offset
		endpoints[name] = append(endpoints[name], p)
	}
	var objects []netBoxObject
	isRead := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		if err := isComplete(name, endpoints[name]); err != nil {
			return nil, err
		}
		for _, p := range endpoints[name] {
			for _, object := range p.Results {
				id := fmt.Sprintf("%d %d", object.rank(), object.ID)
				if object.ID == 0 || !isRead[id] {
					objects = append(objects, object)
				}
				isRead[id] = true
			}
		}
	}
	if len(objects) == 0 {
		return nil, errors.New("there are no objects in the input: export /api/ipam/prefixes/ and /api/ipam/ip-addresses/, or read them with --url")
	}
	return objects, nil
}

// isComplete returns an error if the pages of an endpoint have fewer objects than NetBox states.
func isComplete(name string, pages []page) error {
	slices.SortFunc(pages, func(a, b page) int { return cmp.Compare(a.offset, b.offset) })
	count, read, missing := 0, 0, -1
	ids := map[int64]bool{}
	for _, p := range pages {
		count = max(count, p.Count)
		if p.offset > read && missing < 0 {
			missing = read
		}
		read = max(read, p.offset+len(p.Results))
		for _, object := range p.Results {
			ids[cmp.Or(object.ID, int64(-len(ids)-1))] = true
		}
	}
	if missing < 0 {
		missing = read
	}
	what := path.Base(strings.TrimSuffix(strings.Split(name, "?")[0], "/"))
	switch {
	case len(ids) >= count:
		return nil
	case missing >= count:
		return fmt.Errorf("%s: NetBox has %d objects, and %d of them were read, as they changed while the pages were exported: export them again", what, count, len(ids))
	}
	return fmt.Errorf("%s: NetBox has %d objects, and %d of them were read: export the page with offset=%d as well, or read them with --url", what, count, len(ids), missing)
}

// netBoxExport returns the kind of the objects in a CSV export of NetBox; empty for other files.
func netBoxExport(header []string) string {
	isNamed := func(names ...string) bool {
		return slices.ContainsFunc(header, func(name string) bool {
			return slices.Contains(names, strings.ToLower(strings.Trim(name, " \"\r\ufeff")))
		})
	}
	switch {
	case !isNamed("status", "vrf", "tenant", "id"):
		return ""
	case isNamed("start address", "start_address"):
		return "IP ranges"
	case isNamed("prefix"):
		return "prefixes"
	case isNamed("ip address", "address"):
		return "IP addresses"
	}
	return ""
}

func netBoxExportError(what string) error {
	return fmt.Errorf("this is NetBox's CSV export of %s, which does not name VRFs by their ids: read them with kubectl ipam import netbox --url, "+
		"or export JSON from its REST API; or make columns of import csv of it: Prefix, IP Address and Start Address-End Address are cidr, with pool, claim and reserved as kind, VRF is routingDomain, DNS Name is name, Description is description", what)
}
