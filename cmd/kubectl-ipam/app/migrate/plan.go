package migrate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// plan holds the decisions about the pools of another provider, and about their claims and
// addresses.
type plan struct {
	provider provider
	pools    []*poolPlan
	// unpaused holds the Clusters that must be paused.
	unpaused []client.ObjectKey
	// missing holds the names of pools that do not exist.
	missing []string
}

// poolPlan holds the decisions about one pool.
type poolPlan struct {
	becoming
	// entries holds the claims and IPAddresses to be moved.
	entries []entry
	// moved counts the IPAddresses that name our pool already.
	moved int
	// holdings holds the addresses of the source that are in use.
	holdings []holding
	// own holds the addresses that stay with claims of the provider's own kind.
	own []holding
}

// newPlan decides about each pool that is imported. It has no side effects.
func newPlan(p provider, o Options, st state) plan {
	pl := plan{provider: p}
	existing := map[poolRef]v1alpha1.Pool{}
	for _, pool := range st.pools {
		existing[refOfPool(pool)] = pool
	}
	used := indexed(p, st)
	var all []*becoming
	var skippedSources []source
	for _, obj := range st.sources {
		if !o.takes(obj.GetNamespace(), obj.GetName()) {
			skippedSources = append(skippedSources, p.read(obj))
			continue
		}
		pp := newPoolPlan(p, o, obj, existing)
		pp.checkName(p, st)
		pp.use(p, used[pp.ref])
		pl.pools = append(pl.pools, pp)
		all = append(all, &pp.becoming)
	}
	for _, name := range o.Pools {
		if !slices.ContainsFunc(pl.pools, func(pp *poolPlan) bool { return pp.ref.Name == name }) {
			pl.missing = append(pl.missing, name)
		}
	}
	slices.SortFunc(pl.pools, func(a, b *poolPlan) int { return compareRefs(a.ref, b.ref) })
	slices.SortFunc(all, func(a, b *becoming) int { return compareRefs(a.ref, b.ref) })
	place(all, skippedSources, st.pools)
	for _, pp := range pl.pools {
		pp.judge()
	}
	var entries []entry
	for _, pp := range pl.pools {
		entries = append(entries, pp.entries...)
	}
	pl.unpaused = unpaused(entries, st)
	return pl
}

func compareRefs(a, b poolRef) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// newPoolPlan reads a source, and looks for the pool that it has become already.
func newPoolPlan(p provider, o Options, obj *unstructured.Unstructured, existing map[poolRef]v1alpha1.Pool) *poolPlan {
	kind, _ := p.kindOf(obj.GetKind())
	s := p.read(obj)
	s.ref = poolRef{Group: kind.Group, Kind: kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	s.becomes = kind.becomes
	pp := &poolPlan{becoming: becoming{source: s, held: &netipx.IPSet{}, kept: &netipx.IPSet{}}}
	pp.pool = p.target(s, o)
	current, ok := existing[refOfPool(pp.pool)]
	if !ok {
		return pp
	}
	if was, imported := originOf(current); !imported || was.Pool != s.ref {
		pp.source = s.without("%s exists, and was not imported from %s: rename or delete it", refOfPool(current), s.ref)
		return pp
	}
	pp.pool, pp.exists = current, true
	return pp
}

// checkName notes a problem if the provider would serve the claims of the new pool itself,
// because of its name.
func (pp *poolPlan) checkName(p provider, st state) {
	isTheirs := slices.ContainsFunc(st.sources, func(obj *unstructured.Unstructured) bool {
		return obj.GetNamespace() == pp.pool.GetNamespace() && obj.GetName() == pp.pool.GetName()
	})
	if p.servesByName && isTheirs {
		pp.source = pp.without("the %s provider has a pool named %s, and serves all claims that name one of that name, whatever its API group: choose another suffix", p.name, pp.pool.GetName())
	}
}

// uses holds the claims and IPAddresses that name a pool of the other provider.
type uses struct {
	claims    []*unstructured.Unstructured
	addresses []*unstructured.Unstructured
	own       []holding
	moved     int
}

// indexed groups claims and IPAddresses by the pool that they name, or named before they were
// imported.
func indexed(p provider, st state) map[poolRef]uses {
	used := map[poolRef]uses{}
	for _, claim := range st.claims {
		u := used[p.refOf(claim)]
		u.claims = append(u.claims, claim)
		used[p.refOf(claim)] = u
	}
	for _, address := range st.addresses {
		ref := p.refOf(address)
		was, imported := originOf(address)
		if imported && ref.Group == v1alpha1.GroupVersion.Group {
			u := used[was.Pool]
			u.moved++
			used[was.Pool] = u
			continue
		}
		u := used[ref]
		u.addresses = append(u.addresses, address)
		used[ref] = u
	}
	for ref, own := range ownHoldings(p, st) {
		u := used[ref]
		u.own = own
		used[ref] = u
	}
	return used
}

// ownHoldings returns the addresses of claims of the provider's own kind, by pool.
func ownHoldings(p provider, st state) map[poolRef][]holding {
	held := map[poolRef][]holding{}
	for _, address := range st.ownAddresses {
		text := func(fields ...string) string {
			value, _, _ := unstructured.NestedString(address.Object, append([]string{"spec"}, fields...)...)
			return value
		}
		ref := poolRef{Group: p.kinds[0].Group, Kind: p.kinds[0].Kind, Namespace: address.GetNamespace(), Name: text("pool", "name")}
		if addr, err := netip.ParseAddr(text("address")); err == nil {
			held[ref] = append(held[ref], holding{claim: text("claim", "name"), addr: addr, isOwn: true})
		}
	}
	return held
}

// use takes over the objects that name the source: each claim with the IPAddress that fulfills
// it.
func (pp *poolPlan) use(p provider, u uses) {
	byClaim := map[client.ObjectKey]*unstructured.Unstructured{}
	for _, address := range u.addresses {
		key := claimOf(address)
		if other := byClaim[key]; other != nil {
			pp.source = pp.without("IPAddresses %s and %s are both for the IPAddressClaim %s: delete one of the two", keyOf(other), keyOf(address), key)
		}
		byClaim[key] = address
	}
	for _, claim := range u.claims {
		address := byClaim[keyOf(claim)]
		delete(byClaim, keyOf(claim))
		pp.add(p, side{Claim: claim, Address: address})
	}
	for _, address := range u.addresses {
		if byClaim[claimOf(address)] == address {
			pp.add(p, side{Address: address})
		}
	}
	slices.SortFunc(pp.entries, func(a, b entry) int {
		x, y := a.object(), b.object()
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	pp.moved, pp.own = u.moved, u.own
	pp.holdings = append(pp.holdings, u.own...)
	pp.held, pp.kept = setOfHoldings(pp.holdings), setOfHoldings(u.own)
}

func setOfHoldings(holdings []holding) *netipx.IPSet {
	var all netipx.IPSetBuilder
	for _, h := range holdings {
		all.Add(h.addr)
	}
	return built(&all)
}

// claimOf returns the claim that an IPAddress fulfills, by its claimRef.
func claimOf(address *unstructured.Unstructured) client.ObjectKey {
	name, _, _ := unstructured.NestedString(address.Object, "spec", "claimRef", "name")
	return client.ObjectKey{Namespace: address.GetNamespace(), Name: name}
}

// add adds a claim and its IPAddress to be moved.
func (pp *poolPlan) add(p provider, from side) {
	if from.Address != nil {
		addr := addressOf(from.Address)
		if !addr.IsValid() {
			pp.source = pp.without("IPAddress %s has no address that can be read: delete it", keyOf(from.Address))
			return
		}
		h := holding{claim: "ipam.cadastre.dev/" + from.Address.GetName(), addr: addr}
		if from.Claim != nil {
			h.claim = from.Claim.GetName()
		}
		pp.holdings = append(pp.holdings, h)
	}
	pp.entries = append(pp.entries, p.newReplacement(from, pp.pool, pp.ref))
}

// judge notes why addresses in use cannot be moved as they are.
func (pp *poolPlan) judge() {
	if len(pp.problems) > 0 {
		return
	}
	cidr, err := netip.ParsePrefix(pp.pool.PoolSpec().CIDR)
	if err != nil {
		return
	}
	seen := map[netip.Addr]string{}
	for _, h := range pp.holdings {
		if other, twice := seen[h.addr]; twice {
			pp.source = pp.without("%s is held twice, by %s and by %s: delete one of the two", h.addr, other, h.claim)
		}
		seen[h.addr] = h.claim
		if !cidr.Contains(h.addr) {
			pp.source = pp.without("%s, held by %s, lies outside %s: delete it, or correct the pool", h.addr, h.claim, cidr)
		}
	}
}

// unpaused returns the Clusters that are not paused, and that claims to be moved belong to.
func unpaused(entries []entry, st state) []client.ObjectKey {
	found := map[client.ObjectKey]bool{}
	for _, e := range entries {
		if e.From.Claim == nil || clusterOf(e.From.Claim) == "" {
			continue
		}
		key := client.ObjectKey{Namespace: e.From.Claim.GetNamespace(), Name: clusterOf(e.From.Claim)}
		if cluster := st.clusters[key]; cluster != nil && !isPaused(cluster) {
			found[key] = true
		}
	}
	return sortedObjectKeys(found)
}

// problems counts the obstacles to the import.
func (pl plan) problems() int {
	n := len(pl.unpaused) + len(pl.missing)
	for _, pp := range pl.pools {
		n += len(pp.problems)
	}
	return n
}

// left counts the entries that are still to be moved.
func (pl plan) left() int {
	n := 0
	for _, pp := range pl.pools {
		n += len(pp.entries)
	}
	return n
}

// rows returns the lines of the plan.
func (pl plan) rows(verbose bool) []row {
	var rows []row
	for _, name := range pl.missing {
		rows = append(rows, row{name, cannot, fmt.Sprintf("the %s provider has no pool of this name there: correct it", pl.provider.name)})
	}
	for _, key := range pl.unpaused {
		rows = append(rows, unpausedRow(key))
	}
	for _, pp := range pl.pools {
		rows = append(rows, pp.rows(verbose)...)
	}
	return rows
}

func unpausedRow(key client.ObjectKey) row {
	return row{"Cluster " + key.String(), "-", "is not paused: set its spec.paused to true, and to false when this is done"}
}

func (pp *poolPlan) rows(verbose bool) []row {
	target := refOfPool(pp.pool).String()
	if len(pp.problems) > 0 {
		var rows []row
		for _, problem := range pp.problems {
			rows = append(rows, row{pp.ref.String(), cannot, problem})
		}
		return rows
	}
	rows := []row{{pp.ref.String(), target, pp.describe()}}
	for _, note := range pp.notes {
		rows = append(rows, row{"", "", note})
	}
	served, waiting := 0, 0
	for _, e := range pp.entries {
		switch {
		case verbose || e.isSpecial():
			rows = append(rows, row{e.String(), "the same, from " + target, e.note()})
		case e.From.Address != nil:
			served++
		default:
			waiting++
		}
	}
	if served > 0 {
		rows = append(rows, row{ipam.FormatCount(served, "IPAddressClaim"), "the same, from " + target, "with their addresses"})
	}
	if waiting > 0 {
		rows = append(rows, row{ipam.FormatCount(waiting, "IPAddressClaim"), "the same, from " + target, "without an address: each gets one of the new pool"})
	}
	if pp.moved > 0 {
		rows = append(rows, row{ipam.FormatCount(pp.moved, "IPAddress"), "-", "imported already"})
	}
	if len(pp.own) > 0 {
		rows = append(rows, row{fmt.Sprintf("%s of %s", ipam.FormatCount(len(pp.own), "IPClaim"), pp.ref.Group), "reserved in " + target,
			"only Metal3's provider answers them: they keep their addresses, which become free here when the import is run again after they are gone"})
	}
	return rows
}

// describe sums up the pool that is made.
func (pp *poolPlan) describe() string {
	spec := pp.pool.PoolSpec()
	text := spec.CIDR
	if len(spec.Ranges) > 0 {
		text += ", ranges " + ipam.FirstFew(spec.Ranges)
	}
	if len(spec.Reserved) > 0 {
		text += ", reserved " + ipam.FirstFew(spec.Reserved)
	}
	if network := spec.Network; network != nil {
		text += fmt.Sprintf(", network /%d", network.PrefixLength)
		if network.Gateway != "" {
			text += " by " + network.Gateway
		}
	}
	if !isInDefault(pp.pool) {
		text += ", routing domain " + spec.RoutingDomain
	}
	if pp.exists {
		text += " (exists)"
	}
	return text
}

// isSpecial reports whether a claim differs from most.
func (e entry) isSpecial() bool { return e.From.Claim == nil || e.Deleting }

// note returns a remark on a claim to be moved.
func (e entry) note() string {
	text := "without an address: it gets one of the new pool"
	if e.From.Address != nil {
		text = addressOf(e.From.Address).String()
	}
	switch {
	case e.From.Claim == nil:
		return text + ", which has no claim"
	case e.Deleting:
		return text + "; it is being deleted, and will be again"
	}
	return text
}
