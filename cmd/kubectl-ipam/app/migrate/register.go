package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// annotationDescription on an object that was made of a file holds its description there.
const annotationDescription = "ipam.cadastre.dev/description"

// register holds the pools of a CSV file or of NetBox, and claims for their addresses in use.
type register struct {
	// name holds the name of the command.
	name   string
	pools  []*v1alpha1.IPPool
	claims []*v1alpha1.IPClaim
	// byName and byCIDR index the pools that were read; of two pools with one name, byName has
	// the first.
	byName map[string]*v1alpha1.IPPool
	byCIDR map[netip.Prefix][]*v1alpha1.IPPool
	// places holds the locations in the input at which the objects were read.
	places map[client.Object]location
	// exists marks the objects that exist already.
	exists map[client.Object]bool
	// columns holds the names of fields in the input; other fields keep their own.
	columns map[string]string
	// rows are listed beside pools and claims, and problems counts the obstacles among them.
	rows     []placedRow
	problems int
}

// location represents a place in the input, and the number of its line if there is one.
type location struct {
	text string
	line int
}

// placedRow represents a row of the table about a line of the input.
type placedRow struct {
	row
	line int
}

func newRegister(name string) *register {
	return &register{
		name: name, byName: map[string]*v1alpha1.IPPool{}, byCIDR: map[netip.Prefix][]*v1alpha1.IPPool{},
		places: map[client.Object]location{}, exists: map[client.Object]bool{},
	}
}

// problem lists an obstacle to the import.
func (g *register) problem(at location, format string, args ...any) {
	g.note(at, cannot, format, args...)
	g.problems++
}

// note lists an object that is not imported, and need not be.
func (g *register) note(at location, becomes, format string, args ...any) {
	g.rows = append(g.rows, placedRow{row{at.text, becomes, fmt.Sprintf(format, args...)}, at.line})
}

// addPool adds a pool of a CIDR, before its reserved addresses are known.
func (g *register) addPool(at location, name, cidr, description string) *v1alpha1.IPPool {
	pool := &v1alpha1.IPPool{}
	pool.Name = name
	g.mark(pool, at, description)
	pool.Spec.CIDR = cidr
	g.pools = append(g.pools, pool)
	if g.byName[name] == nil {
		g.byName[name] = pool
	}
	g.byCIDR[cidrOf(pool)] = append(g.byCIDR[cidrOf(pool)], pool)
	return pool
}

// smallest returns, of the pools that contain a block and pass the test, those with the
// longest prefix that is not longer than the one given. Without a test all pass.
func (g *register) smallest(block netip.Prefix, longest int, test func(*v1alpha1.IPPool) bool) (found []*v1alpha1.IPPool) {
	for bits := longest; bits >= 0 && len(found) == 0; bits-- {
		for _, pool := range g.byCIDR[netip.PrefixFrom(block.Addr(), bits).Masked()] {
			if test == nil || test(pool) {
				found = append(found, pool)
			}
		}
	}
	return found
}

// addClaim adds a claim for exactly a block of a pool.
func (g *register) addClaim(at location, key client.ObjectKey, pool string, block netip.Prefix, description string) {
	claim := &v1alpha1.IPClaim{}
	claim.Namespace, claim.Name = key.Namespace, key.Name
	g.mark(claim, at, description)
	claim.Spec.PoolRef = poolReference(pool)
	claim.Spec.CIDR = block.String()
	g.claims = append(g.claims, claim)
}

func (g *register) mark(obj client.Object, at location, description string) {
	obj.SetLabels(map[string]string{labelImport: g.name})
	if description != "" {
		obj.SetAnnotations(map[string]string{annotationDescription: description})
	}
	g.places[obj] = at
}

func poolReference(name string) *v1alpha1.PoolReference {
	return &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: name}
}

// cidrOf returns the CIDR of a pool; it returns the zero Prefix if that cannot be read.
func cidrOf(pool *v1alpha1.IPPool) netip.Prefix { return prefixAt(pool.Spec.CIDR) }

func prefixAt(text string) netip.Prefix {
	prefix, _ := netip.ParsePrefix(text) // the zero Prefix with an error
	return prefix
}

// sort puts pools and claims into the one order in which they are judged and made, whatever the
// order of the input: larger pools before the pools inside them.
func (g *register) sort() {
	slices.SortStableFunc(g.pools, func(a, b *v1alpha1.IPPool) int {
		return cmp.Or(cmp.Compare(cidrOf(a).Bits(), cidrOf(b).Bits()), cidrOf(a).Addr().Compare(cidrOf(b).Addr()), cmp.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(g.claims, func(a, b *v1alpha1.IPClaim) int {
		byBlock := prefixAt(a.Spec.CIDR).Compare(prefixAt(b.Spec.CIDR))
		return cmp.Or(cmp.Compare(a.Spec.PoolRef.Name, b.Spec.PoolRef.Name), byBlock, compareKeys(keyOf(a), keyOf(b)))
	})
}

// run carries out the action of the options with a register.
func (g *register) run(ctx context.Context, c client.Client, o Options) error {
	o = o.withDefaults()
	g.sort()
	if o.Action != Rollback { // which removes the existing objects, whether or not they could be made again
		if err := g.judge(ctx, c); err != nil {
			return err
		}
	}
	if err := printTable(o.Out, g.table(o.Verbose)); err != nil {
		return err
	}
	if g.problems > 0 && !o.SkipProblems {
		return &ProblemsError{Count: g.problems, Subject: "import " + g.name, Remedy: "correct the problems in the table, or import the rest with --skip-problems"}
	}
	o.Namespace = "" // only the claims are in this namespace, and they have it already
	h := &holder{run: run{client: c, o: o}, register: g}
	if g.problems > 0 {
		h.say("Leaving out %s.", ipam.FormatCount(g.problems, "problem"))
	}
	var err error
	switch o.Action {
	case Apply:
		err = h.apply(ctx)
	case Rollback:
		err = h.rollback(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return err
}

// table returns the plan: pools with their claims counted, and the rows listed beside them.
func (g *register) table(verbose bool) []row {
	perPool := map[string]int{}
	for _, claim := range g.claims {
		perPool[claim.Spec.PoolRef.Name]++
	}
	var rows []row
	for _, pool := range g.pools {
		rows = append(rows, row{pool.Spec.CIDR, "IPPool " + pool.Name, g.describe(pool)})
		rows = append(rows, countedClaims(perPool, pool.Name, verbose)...)
	}
	for _, pool := range slices.Sorted(maps.Keys(perPool)) { // the pools that exist
		rows = append(rows, countedClaims(perPool, pool, verbose)...)
	}
	if verbose {
		for _, claim := range g.claims {
			rows = append(rows, row{claim.Spec.CIDR, "IPClaim " + keyOf(claim).String(), claim.Annotations[annotationDescription]})
		}
	}
	slices.SortStableFunc(g.rows, func(a, b placedRow) int { return cmp.Compare(a.line, b.line) })
	for _, placed := range g.rows {
		rows = append(rows, placed.row)
	}
	return rows
}

// countedClaims counts the claims of a pool, once.
func countedClaims(perPool map[string]int, pool string, verbose bool) []row {
	n := perPool[pool]
	delete(perPool, pool)
	if n == 0 || verbose {
		return nil
	}
	return []row{{ipam.FormatCount(n, "held block"), ipam.FormatCount(n, "IPClaim"), "of " + pool}}
}

// describe sums up a pool that is made.
func (g *register) describe(pool *v1alpha1.IPPool) string {
	text := pool.Spec.CIDR
	if pool.Spec.ParentRef != nil {
		text += ", part of " + pool.Spec.ParentRef.Name
	}
	if pool.Spec.RoutingDomain != "" {
		text += ", routing domain " + pool.Spec.RoutingDomain
	}
	text += networkText(pool.PoolSpec()) + reservedText(pool.PoolSpec())
	if g.exists[pool] {
		text += " (exists)"
	}
	return text
}
