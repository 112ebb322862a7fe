package movein

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// CSVColumns are the columns of a CSV file, in any order. The first line names those that
// it has.
//
//	kind           pool, claim or reserved
//	name           of the pool, or of the claim (default: from its address)
//	cidr           a CIDR or an address; of what is reserved a range as well
//	pool           of a claim, or of what is reserved (default: the smallest that has it)
//	parent         the pool that a pool is part of (default: none)
//	namespace      of a claim (default: that of the command)
//	routingDomain  of a pool without parent (default: default)
//	network        the length of the subnet of a pool of host addresses (default: none)
//	gateway        of the subnet (default: none)
//	description    is kept as an annotation
func CSVColumns() []string {
	return []string{"kind", "name", "cidr", "pool", "parent", "namespace", "routingDomain", "network", "gateway", "description"}
}

// CSV imports pools, and what is held of them, from a CSV file with CSVColumns.
func CSV(ctx context.Context, c client.Client, o Options, in io.Reader) error {
	g, err := readCSV(in, o)
	if err != nil {
		return err
	}
	return g.run(ctx, c, o)
}

// line is a line of a CSV file.
type line struct {
	number int
	values map[string]string
}

func (l line) object() string { return fmt.Sprintf("line %d", l.number) }

// readCSV reads a CSV file. Errors are those of the file as a whole; what is wrong in a
// line is listed in the register.
func readCSV(in io.Reader, o Options) (*register, error) {
	lines, err := linesOf(in)
	if err != nil {
		return nil, err
	}
	g := newRegister("csv")
	for _, l := range lines {
		if l.values["kind"] == "pool" {
			g.addCSVPool(l)
		}
	}
	for _, l := range lines {
		switch kind := l.values["kind"]; kind {
		case "pool":
		case "claim":
			g.addCSVClaim(l, o)
		case "reserved":
			g.addCSVReserved(l)
		default:
			g.problem(l.object(), "kind: %q is none of pool, claim and reserved: correct it", kind)
		}
	}
	g.sortPools()
	return g, nil
}

func linesOf(in io.Reader) ([]line, error) {
	reader := csv.NewReader(in)
	reader.TrimLeadingSpace = true
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the first line: %w", err)
	}
	for i, name := range header {
		header[i] = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if !slices.Contains(CSVColumns(), header[i]) {
			return nil, fmt.Errorf("the first line names the column %q: write some of %s", header[i], strings.Join(CSVColumns(), ","))
		}
	}
	for _, name := range []string{"kind", "cidr"} {
		if !slices.Contains(header, name) {
			return nil, fmt.Errorf("the first line lacks the column %q: add it", name)
		}
	}
	var lines []line
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a line: %w", err)
		}
		number, _ := reader.FieldPos(0)
		l := line{number: number, values: map[string]string{}}
		for i, name := range header {
			l.values[name] = strings.TrimSpace(record[i])
		}
		lines = append(lines, l)
	}
}

func (g *register) addCSVPool(l line) {
	cidr, err := netip.ParsePrefix(l.values["cidr"])
	switch {
	case err != nil || cidr != cidr.Masked():
		g.problem(l.object(), "cidr: %q is not a CIDR without host bits: write one such as 10.0.0.0/24", l.values["cidr"])
		return
	case len(validation.IsDNS1123Subdomain(l.values["name"])) > 0:
		g.problem(l.object(), "name: %q is not the name of an object: use lower-case letters, digits, - and .", l.values["name"])
		return
	case g.pool(l.values["name"]) != nil:
		g.problem(l.object(), "name: there are two pools %q: rename one", l.values["name"])
		return
	}
	pool := g.newHeldPool(l.values["name"], cidr, l.values["description"])
	pool.Spec.RoutingDomain = l.values["routingDomain"]
	if parent := l.values["parent"]; parent != "" {
		pool.Spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: parent}
	}
	if network := l.values["network"]; network != "" || l.values["gateway"] != "" {
		bits, err := strconv.ParseInt(strings.TrimPrefix(network, "/"), 10, 32)
		if err != nil {
			g.problem(l.object(), "network: %q is not the length of a subnet: write one such as 24", network)
			return
		}
		pool.Spec.Network = &v1alpha1.PoolNetwork{PrefixLength: int32(bits), Gateway: l.values["gateway"]}
	}
	g.pools = append(g.pools, pool)
}

// pool is the pool of a name; nil where there is none.
func (g *register) pool(name string) *v1alpha1.IPPool {
	at := slices.IndexFunc(g.pools, func(p *v1alpha1.IPPool) bool { return p.Name == name })
	if at < 0 {
		return nil
	}
	return g.pools[at]
}

// poolFor is the pool that a line names, or else the smallest that has the span; nil, with
// a problem, where there is none.
func (g *register) poolFor(l line, first, last netip.Addr) *v1alpha1.IPPool {
	if name := l.values["pool"]; name != "" {
		pool := g.pool(name)
		if pool == nil {
			g.problem(l.object(), "pool: there is no pool %q in the file: add it", name)
			return nil
		}
		if cidr := cidrOf(pool); !cidr.Contains(first) || !cidr.Contains(last) {
			g.problem(l.object(), "cidr: %s does not lie in the pool %s, which is %s: correct one of them", l.values["cidr"], name, cidr)
			return nil
		}
		return pool
	}
	var found *v1alpha1.IPPool
	for _, pool := range g.pools {
		cidr := cidrOf(pool)
		if cidr.Contains(first) && cidr.Contains(last) && (found == nil || cidrOf(found).Bits() < cidr.Bits()) {
			found = pool
		}
	}
	if found == nil {
		g.problem(l.object(), "cidr: no pool in the file has %s: add one", l.values["cidr"])
	}
	return found
}

func cidrOf(pool *v1alpha1.IPPool) netip.Prefix {
	cidr, err := netip.ParsePrefix(pool.Spec.CIDR)
	if err != nil {
		return netip.Prefix{}
	}
	return cidr
}

func (g *register) addCSVClaim(l line, o Options) {
	block, ok := blockOf(l.values["cidr"])
	if !ok {
		g.problem(l.object(), "cidr: %q is neither an address nor a CIDR without host bits: correct it", l.values["cidr"])
		return
	}
	set := setOfPrefix(block)
	first, last := bounds(set)
	pool := g.poolFor(l, first, last)
	if pool == nil {
		return
	}
	if o.Reserve {
		reserve(pool, set)
		return
	}
	key := client.ObjectKey{Namespace: l.values["namespace"], Name: l.values["name"]}
	if key.Namespace == "" {
		key.Namespace = o.Namespace
	}
	if key.Name == "" {
		key.Name = nameOfBlock(block)
	}
	g.hold(l.object(), g.newHeldClaim(key, pool.Name, block, l.values["description"]))
}

// hold adds a claim, if it can be one.
func (g *register) hold(object string, claim *v1alpha1.IPClaim) {
	switch {
	case claim.Namespace == "":
		g.problem(object, "it says no namespace: name one, or choose one with -n")
	case len(validation.IsDNS1123Subdomain(claim.Name)) > 0:
		g.problem(object, "name: %q is not the name of an object: use lower-case letters, digits, - and .", claim.Name)
	case g.names[keyOf(claim)]:
		g.problem(object, "name: there are two claims %s: rename one", keyOf(claim))
	default:
		g.names[keyOf(claim)] = true
		g.claims = append(g.claims, claim)
	}
}

func (g *register) addCSVReserved(l line) {
	span, err := parseSpan(l.values["cidr"])
	if err != nil {
		g.problem(l.object(), "cidr: %s", err)
		return
	}
	if pool := g.poolFor(l, span.From(), span.To()); pool != nil {
		reserve(pool, setOfRange(span))
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

// nameOfBlock is a name for the claim of a block: ip-10-0-0-7, or block-10-0-0-0-24.
func nameOfBlock(block netip.Prefix) string {
	dashed := strings.NewReplacer(".", "-", ":", "-").Replace(block.Addr().StringExpanded())
	if block.IsSingleIP() {
		return "ip-" + dashed
	}
	return fmt.Sprintf("block-%s-%d", dashed, block.Bits())
}

// sortPools sorts pools so that parents come before their parts, and names among them.
func (g *register) sortPools() {
	slices.SortStableFunc(g.pools, func(a, b *v1alpha1.IPPool) int {
		if bits := cidrOf(a).Bits() - cidrOf(b).Bits(); bits != 0 {
			return bits
		}
		return cidrOf(a).Addr().Compare(cidrOf(b).Addr())
	})
}
