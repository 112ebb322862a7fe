package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// column returns the name of a field in the input.
func (g *register) column(name string) string {
	path, _, _ := strings.Cut(name, "[")
	return cmp.Or(g.columns[path], name)
}

// texts describes the errors of fields, in terms of the input.
func (g *register) texts(errs field.ErrorList) string {
	var texts []string
	for _, err := range errs {
		text := err.ErrorBody()
		switch err.Type {
		case field.ErrorTypeInvalid:
			text = fmt.Sprintf("%#v: %s", err.BadValue, err.Detail)
		case field.ErrorTypeTooMany:
			text += ": split the pool"
		}
		texts = append(texts, g.column(err.Field)+": "+text)
	}
	return strings.Join(texts, "; ")
}

// text describes why the operator would refuse a block, and the remedy.
func (g *register) text(err error, block netip.Prefix) string {
	policy, isPolicy := errors.AsType[*ipam.PolicyError](err)
	taken, isTaken := errors.AsType[*ipam.TakenError](err)
	switch {
	case isPolicy:
		return fmt.Sprintf("%s: %v: %s", g.column(policy.Field), policy.Value, policy.Remedy)
	case !isTaken:
		return err.Error()
	case taken.IsWithheld():
		return taken.Error() + ": leave it out, as nobody is given it, or have the pool hand it out"
	case taken.Holder.IsPool() && contains(taken.Overlap, block):
		return fmt.Sprintf("%s lies in %s of %s: name that as the %s", block, taken.Overlap, taken.Holder, g.home(taken))
	}
	return fmt.Sprintf("%s overlaps %s of %s: correct one of them", block, taken.Overlap, taken.Holder)
}

// home returns the term for a pool that contains a block: for a root pool it would be the
// parent.
func (g *register) home(taken *ipam.TakenError) string {
	if taken.Pool.Kind == ipam.PoolKindRoutingDomain {
		return "parent, or choose another routing domain"
	}
	return "pool or parent, or choose another block"
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Overlaps(inner) && outer.Bits() < inner.Bits()
}

// differs returns the reason why an existing pool is not the planned one; it is empty if the
// pool is the planned one.
func differs(there, planned *v1alpha1.IPPool) string {
	if there.Spec.CIDR != planned.Spec.CIDR || !sameParent(there, planned) {
		return fmt.Sprintf("IPPool %s exists, with the CIDR %s in place of %s, or with another parent: rename or delete it", planned.Name, there.Spec.CIDR, planned.Spec.CIDR)
	}
	now, errs := convert.Pool(there)
	want, invalid := convert.Pool(planned)
	if len(errs)+len(invalid) > 0 {
		return fmt.Sprintf("IPPool %s exists, and cannot be read as it is: correct it", planned.Name)
	}
	if now.Home != want.Home {
		return fmt.Sprintf("IPPool %s exists, in %s in place of %s: rename or delete it", planned.Name, now.Home, want.Home)
	}
	if lacking := minus(withheld(want), withheld(now)); !isEmpty(lacking) {
		return fmt.Sprintf("IPPool %s exists, and hands out %s, which is reserved here: reserve it there, or leave it out", planned.Name, listed(textsOf(lacking)))
	}
	return ""
}

// withheld returns the addresses that a pool never hands out.
func withheld(pool ipam.Pool) *netipx.IPSet {
	var all netipx.IPSetBuilder
	for span := range pool.Withheld.All() {
		all.AddRange(netipx.IPRangeFrom(span.From, span.To))
	}
	return built(&all)
}

func sameParent(a, b *v1alpha1.IPPool) bool {
	name := func(p *v1alpha1.IPPool) string {
		if p.Spec.ParentRef == nil {
			return ""
		}
		return p.Spec.ParentRef.Name
	}
	return name(a) == name(b)
}

// holds reports whether an existing claim holds the block that a planned one is for.
func holds(there, planned *v1alpha1.IPClaim) bool {
	return there.Status.AllocatedCIDR == planned.Spec.CIDR && there.Spec.PoolRef != nil && there.Spec.PoolRef.Name == planned.Spec.PoolRef.Name
}

func textOfBlock(claim *v1alpha1.IPClaim) string { return cmp.Or(claim.Spec.CIDR, "no block") }
