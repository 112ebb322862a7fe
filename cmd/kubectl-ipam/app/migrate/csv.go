package migrate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// csvColumns returns the columns that a CSV file can have, in any order, named by its first line.
// docs/import.md describes them.
func csvColumns() []string {
	return []string{"kind", "name", "cidr", "pool", "parent", "namespace", "routingDomain", "network", "gateway", "description"}
}

// CSV imports pools, and the held blocks of them, from a CSV file.
func CSV(ctx context.Context, c client.Client, o Options, reader io.Reader) error {
	g, err := readCSV(reader, o)
	if err != nil {
		return err
	}
	return g.run(ctx, c, o)
}

// line represents a line of a CSV file.
type line struct {
	location
	values map[string]string
}

func lineAt(number int) location { return location{fmt.Sprintf("line %d", number), number} }

// readCSV reads a CSV file. Its errors concern the file as a whole; the register lists the
// problems of a line.
func readCSV(reader io.Reader, o Options) (*register, error) {
	g := newRegister("csv")
	g.columns = map[string]string{
		"metadata.name": "name", "metadata.annotations": "description", "spec.cidr": "cidr", "spec.poolRef.name": "pool", "spec.poolRef": "pool",
		"spec.parentRef.name": "parent", "spec.routingDomain": "routingDomain", "spec.network.prefixLength": "network", "spec.network.gateway": "gateway",
		"spec.prefixLength": "cidr", "spec.reserved": "reserved rows",
	}
	lines, err := g.linesOf(reader)
	if err != nil {
		return nil, err
	}
	// The order in the file does not decide which of two equal lines is the problem.
	slices.SortStableFunc(lines, func(a, b line) int {
		for _, name := range csvColumns() {
			if order := cmp.Compare(a.values[name], b.values[name]); order != 0 {
				return order
			}
		}
		return 0
	})
	for _, l := range lines {
		if l.values["kind"] == "pool" {
			g.addCSVPool(l)
		}
	}
	g.nest()
	for _, l := range lines {
		switch kind := l.values["kind"]; kind {
		case "pool":
		case "claim":
			g.addCSVClaim(l, o)
		case "reserved":
			g.addCSVReserved(l)
		default:
			g.problem(l.location, "kind: %q is none of pool, claim and reserved: correct it", kind)
		}
	}
	return g, nil
}

// linesOf reads the lines that have a value. It lists the lines that cannot be read.
func (g *register) linesOf(input io.Reader) ([]line, error) {
	text, err := io.ReadAll(input)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, errors.New("the file is in UTF-16: save it as CSV in UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	reader := csv.NewReader(bytes.NewReader(text))
	reader.TrimLeadingSpace, reader.FieldsPerRecord, reader.Comma = true, -1, separatorOf(text)
	header, err := readHeader(reader)
	if err != nil {
		return nil, err
	}
	var lines []line
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			g.problem(lineAt(bad.StartLine), "column %d of the text: %v: write a value that has quotes as \"a \"\"b\"\" c\"", bad.Column, bad.Err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading a line: %w", err)
		}
		number, _ := reader.FieldPos(0)
		l := line{lineAt(number), map[string]string{}}
		hasValue := false
		for i, value := range record {
			value = strings.TrimSpace(value)
			hasValue = hasValue || value != ""
			if i < len(header) {
				l.values[header[i]] = value
			}
		}
		switch {
		case !hasValue:
		case len(record) != len(header):
			g.problem(l.location, "has %d values, and the first line names %d columns: write one for each, which may be empty", len(record), len(header))
		default:
			lines = append(lines, l)
		}
	}
}

// separatorOf returns the separator of the first line: spreadsheets also write semicolons, or tabs.
func separatorOf(text []byte) rune {
	first, _, _ := bytes.Cut(bytes.TrimLeft(text, "\r\n"), []byte("\n"))
	separator, most := ',', 0
	for _, c := range []rune{',', ';', '\t'} {
		if n := bytes.Count(first, []byte(string(c))); n > most {
			separator, most = c, n
		}
	}
	return separator
}

// readHeader reads the names of the columns.
func readHeader(reader *csv.Reader) ([]string, error) {
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the first line: %w", err)
	}
	if what := netBoxExport(header); what != "" && !slices.Contains(header, "kind") {
		return nil, netBoxExportError(what)
	}
	for i, name := range header {
		header[i] = strings.TrimSpace(name)
		switch {
		case !slices.Contains(csvColumns(), header[i]):
			return nil, fmt.Errorf("the first line names the column %q: write some of %s", header[i], strings.Join(csvColumns(), ","))
		case slices.Contains(header[:i], header[i]):
			return nil, fmt.Errorf("the first line names the column %q twice: remove one", header[i])
		}
	}
	for _, name := range []string{"kind", "cidr"} {
		if !slices.Contains(header, name) {
			return nil, fmt.Errorf("the first line lacks the column %q: add it", name)
		}
	}
	return header, nil
}

func (g *register) addCSVPool(l line) {
	text := l.values["cidr"]
	if cidr, err := netip.ParsePrefix(text); err == nil {
		text = cidr.String()
	}
	var network *v1alpha1.PoolNetwork
	if length, gateway := l.values["network"], canonical(l.values["gateway"]); length != "" || gateway != "" {
		bits, err := strconv.ParseInt(strings.TrimPrefix(length, "/"), 10, 32)
		if err != nil {
			g.problem(l.location, "network: %q is not the length of a subnet: write one such as 24", length)
			return
		}
		network = &v1alpha1.PoolNetwork{PrefixLength: int32(bits), Gateway: gateway}
	}
	pool := g.addPool(l.location, l.values["name"], text, l.values["description"])
	pool.Spec.RoutingDomain, pool.Spec.Network = l.values["routingDomain"], network
	if parent := l.values["parent"]; parent != "" {
		pool.Spec.ParentRef = poolReference(parent)
	}
}

// nest makes a pool without parent a child of the smallest pool of its domain that contains it.
func (g *register) nest() {
	domains := map[*v1alpha1.IPPool]string{}
	for _, pool := range g.pools {
		domains[pool] = g.domainOf(pool)
	}
	for _, pool := range g.pools {
		if pool.Spec.ParentRef != nil {
			continue
		}
		cidr := cidrOf(pool)
		parents := g.smallest(cidr, cidr.Bits()-1, func(p *v1alpha1.IPPool) bool { return domains[p] == domains[pool] })
		if len(parents) > 0 { // of several with one CIDR, all but the first are problems
			pool.Spec.ParentRef, pool.Spec.RoutingDomain = poolReference(parents[0].Name), ""
		}
	}
}

// domainOf returns the routing domain of a pool: that of the pool above it that names no
// parent. Pools below a pool that is not in the file have a domain that no other pool has.
func (g *register) domainOf(pool *v1alpha1.IPPool) string {
	for range g.pools {
		if pool.Spec.ParentRef == nil {
			return cmp.Or(pool.Spec.RoutingDomain, v1alpha1.DefaultRoutingDomain)
		}
		parent := g.byName[pool.Spec.ParentRef.Name]
		if parent == nil {
			break
		}
		pool = parent
	}
	return "below " + pool.Spec.ParentRef.Name
}

// poolFor returns the smallest pool that has the addresses, or nil with a problem.
func (g *register) poolFor(l line, set *netipx.IPSet) *v1alpha1.IPPool {
	block := cover(set)
	found := g.smallest(block, block.Bits(), nil)
	switch {
	case len(found) == 0:
		g.problem(l.location, "cidr: no pool in the file has %s: add one, or name one that exists in the column pool", l.values["cidr"])
	case len(found) > 1:
		g.problem(l.location, "cidr: the pools %s and %s both have %s: name one of them in the column pool", found[0].Name, found[1].Name, l.values["cidr"])
	default:
		return found[0]
	}
	return nil
}

func (g *register) addCSVClaim(l line, o Options) {
	block, ok := blockOf(l.values["cidr"])
	if !ok {
		g.problem(l.location, "cidr: %q is neither an address nor a CIDR without host bits: correct it", l.values["cidr"])
		return
	}
	if o.Reserve {
		g.addCSVReserved(l)
		return
	}
	name := l.values["pool"]
	if name == "" {
		pool := g.poolFor(l, setOfPrefix(block))
		if pool == nil {
			return
		}
		name = pool.Name
	}
	key := client.ObjectKey{Namespace: cmp.Or(l.values["namespace"], o.Namespace), Name: cmp.Or(l.values["name"], nameOfBlock(block))}
	g.addClaim(l.location, key, name, block, l.values["description"])
}

func (g *register) addCSVReserved(l line) {
	span, err := parseSpan(l.values["cidr"])
	if err != nil {
		g.problem(l.location, "cidr: %s", err)
		return
	}
	name := l.values["pool"]
	pool := g.byName[name]
	switch {
	case name == "":
		pool = g.poolFor(l, setOfRange(span))
	case pool == nil:
		g.problem(l.location, "pool: there is no pool %q in the file: add it, or reserve %s there by hand", name, l.values["cidr"])
	case !setOfPrefix(cidrOf(pool)).ContainsRange(span):
		g.problem(l.location, "cidr: %s does not lie in the pool %s, which is %s: correct one of them", l.values["cidr"], name, pool.Spec.CIDR)
		return
	}
	if pool == nil {
		return
	}
	if now, err := setOf(pool.Spec.Reserved); err == nil {
		pool.Spec.Reserved = textsOf(union(now, setOfRange(span)))
	}
}

// blockOf reads a block: an address, or a CIDR without host bits.
func blockOf(text string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), true
	}
	block, err := netip.ParsePrefix(text)
	return block, err == nil && block == block.Masked()
}

// nameOfBlock returns a name for the claim of a block: ip-10-0-0-7, or block-10-0-0-0-24.
func nameOfBlock(block netip.Prefix) string {
	if block.IsSingleIP() {
		return "ip-" + dashed(block.Addr())
	}
	return fmt.Sprintf("block-%s-%d", dashed(block.Addr()), block.Bits())
}

// dashed writes an address as a name can have it.
func dashed(addr netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(addr.StringExpanded())
}
