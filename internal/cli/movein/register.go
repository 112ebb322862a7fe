package movein

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// annotationDescription on what a CSV file or NetBox was imported from is what was said of
// it there.
const annotationDescription = "ipam.cadastre.dev/description"

// register is what a CSV file or an export of NetBox comes to: pools, and the claims that
// hold what is in use of them.
type register struct {
	// name is that of the command.
	name   string
	pools  []*v1alpha1.IPPool
	claims []*v1alpha1.IPClaim
	// rows are what is listed beside pools and claims, and problems count those of them
	// that stand in the way.
	rows     []row
	problems int
	// names are those of the claims.
	names map[client.ObjectKey]bool
}

func newRegister(name string) *register {
	return &register{name: name, names: map[client.ObjectKey]bool{}}
}

// problem lists something that stands in the way.
func (g *register) problem(object, format string, args ...any) {
	g.rows = append(g.rows, row{object, cannot, fmt.Sprintf(format, args...)})
	g.problems++
}

// note lists something that is not imported, and need not be.
func (g *register) note(object, becomes, format string, args ...any) {
	g.rows = append(g.rows, row{object, becomes, fmt.Sprintf(format, args...)})
}

// reserve adds to what a pool never hands out.
func reserve(pool *v1alpha1.IPPool, set *netipx.IPSet) {
	now, err := setOf(pool.Spec.Reserved)
	if err == nil {
		pool.Spec.Reserved = textsOf(union(now, set))
	}
}

// newHeldPool is a pool of a CIDR, before it is known what is reserved of it.
func (g *register) newHeldPool(name string, cidr netip.Prefix, description string) *v1alpha1.IPPool {
	pool := &v1alpha1.IPPool{}
	pool.Name = name
	pool.Labels = map[string]string{labelImport: g.name}
	if description != "" {
		pool.Annotations = map[string]string{annotationDescription: description}
	}
	pool.Spec.CIDR = cidr.String()
	return pool
}

// newHeldClaim is a claim for exactly a block of a pool.
func (g *register) newHeldClaim(key client.ObjectKey, pool string, block netip.Prefix, description string) *v1alpha1.IPClaim {
	claim := &v1alpha1.IPClaim{}
	claim.Namespace, claim.Name = key.Namespace, key.Name
	claim.Labels = map[string]string{labelImport: g.name}
	if description != "" {
		claim.Annotations = map[string]string{annotationDescription: description}
	}
	claim.Spec.PoolRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: pool}
	claim.Spec.CIDR = block.String()
	return claim
}

// check lists pools that could not be made, and claims that overlap.
func (g *register) check() {
	for _, pool := range g.pools {
		if n := len(pool.Spec.Reserved); n > spansMost {
			g.problem("IPPool "+pool.Name, "spec.reserved would have %d entries, and may have %d: split the pool", n, spansMost)
		}
		if _, errs := adapt.Pool(pool); len(errs) > 0 {
			g.problem("IPPool "+pool.Name, "%s", errs.ToAggregate())
		}
	}
	type held struct {
		block netip.Prefix
		name  string
	}
	byPool := map[string][]held{}
	for _, claim := range g.claims {
		block, err := netip.ParsePrefix(claim.Spec.CIDR)
		if err == nil {
			byPool[claim.Spec.PoolRef.Name] = append(byPool[claim.Spec.PoolRef.Name], held{block, "IPClaim " + keyOf(claim).String()})
		}
	}
	for _, all := range byPool {
		slices.SortFunc(all, func(a, b held) int {
			return cmp.Or(a.block.Addr().Compare(b.block.Addr()), cmp.Compare(a.block.Bits(), b.block.Bits()))
		})
		for i := 1; i < len(all); i++ { // of those that overlap, two are neighbours
			if all[i-1].block.Overlaps(all[i].block) {
				g.problem(all[i].name, "%s overlaps %s of %s: correct one of them", all[i].block, all[i-1].block, all[i-1].name)
			}
		}
	}
}

// table is the plan: pools with their claims counted, and what is listed beside.
func (g *register) table(verbose bool) []row {
	perPool := map[string]int{}
	for _, claim := range g.claims {
		perPool[claim.Spec.PoolRef.Name]++
	}
	var rows []row
	for _, pool := range g.pools {
		text := pool.Spec.CIDR
		if pool.Spec.ParentRef != nil {
			text += ", part of " + pool.Spec.ParentRef.Name
		}
		if pool.Spec.RoutingDomain != "" {
			text += ", routing domain " + pool.Spec.RoutingDomain
		}
		if len(pool.Spec.Reserved) > 0 {
			text += ", reserved " + listed(pool.Spec.Reserved)
		}
		rows = append(rows, row{pool.Spec.CIDR, "IPPool " + pool.Name, text})
		if n := perPool[pool.Name]; n > 0 && !verbose {
			rows = append(rows, row{ipam.Counted(n, "held block"), ipam.Counted(n, "IPClaim"), "of " + pool.Name})
		}
	}
	if verbose {
		for _, claim := range g.claims {
			rows = append(rows, row{claim.Spec.CIDR, "IPClaim " + keyOf(claim).String(), claim.Annotations[annotationDescription]})
		}
	}
	return append(rows, g.rows...)
}
