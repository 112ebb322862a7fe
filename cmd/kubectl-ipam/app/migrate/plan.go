package migrate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// plan holds the decisions about Metal3's pools, and about their claims and addresses.
type plan struct {
	pools []*poolPlan
	// unpaused holds the Clusters that must be paused.
	unpaused []client.ObjectKey
	// missing holds the names of pools that do not exist.
	missing []string
}

// poolPlan holds the decisions about one of Metal3's pools.
type poolPlan struct {
	source
	obj *unstructured.Unstructured
	ref ipam.Holder
	// pool holds the pool to be made, or the pool that an earlier import has made: it exists.
	pool   *v1alpha1.LocalIPPool
	exists bool
	// entries holds the claims and IPAddresses to be moved.
	entries []entry
	// moved counts the IPAddresses that name our pool already.
	moved int
	// holdings holds the addresses of the source that are in use, and own those of them that
	// stay with claims of Metal3's own kind.
	holdings, own []holding
	// problems holds the reasons why the pool cannot be imported or rolled back.
	problems []string
	// remaining holds, for a rollback, the holders of its blocks that were not imported.
	remaining
}

// holding represents a claim that has an address.
type holding struct {
	claim string
	addr  netip.Addr
	// isOwn is set for a claim of Metal3's own kind.
	isOwn bool
}

// newPlan decides about each pool that is imported. It has no side effects.
func newPlan(o Options, st state) plan {
	var pl plan
	claims, addresses := grouped(st.claims), grouped(st.addresses)
	var all []*poolPlan
	for _, obj := range st.sources {
		pp := newPoolPlan(obj)
		all = append(all, pp)
		if o.takes(obj.GetNamespace(), obj.GetName()) {
			pp.choosePool(o, st)
			pp.use(claims[pp.ref], addresses[pp.ref])
			pp.keep(st.ownAddresses)
			pp.moved = countImported(addresses[refOfPool(pp.pool)])
			pl.pools = append(pl.pools, pp)
		}
	}
	for _, name := range o.Pools {
		if !slices.ContainsFunc(pl.pools, func(pp *poolPlan) bool { return pp.ref.Name == name }) {
			pl.missing = append(pl.missing, name)
		}
	}
	slices.SortFunc(pl.pools, func(a, b *poolPlan) int {
		return compareKeys(keyOf(a.obj), keyOf(b.obj))
	})
	occupied := newSpaces(all, st.pools)
	for _, pp := range pl.pools {
		if !pp.exists && len(pp.problems) == 0 {
			pp.fill(occupied.place(pp))
		}
		pp.judge()
	}
	pl.unpaused = pl.unpausedOf(st)
	return pl
}

// newPoolPlan reads a source.
func newPoolPlan(obj *unstructured.Unstructured) *poolPlan {
	pp := &poolPlan{obj: obj, ref: refOfSource(obj.GetNamespace(), obj.GetName())}
	var err error
	if pp.source, err = readMetal3(obj); err != nil {
		pp.refuse("%s", err)
	}
	return pp
}

// refuse lists a reason why the pool cannot be imported.
func (pp *poolPlan) refuse(format string, args ...any) {
	pp.problems = append(pp.problems, fmt.Sprintf(format, args...))
}

// choosePool sets the pool that the source becomes, or has become already. Metal3 must not serve
// the claims of that pool itself, because of its name.
func (pp *poolPlan) choosePool(o Options, st state) {
	pp.pool = pp.target(o)
	for _, current := range st.pools {
		if keyOf(current) != keyOf(pp.pool) {
			continue
		}
		if was, imported := originOf(current); !imported || was.Pool != pp.ref.Name {
			pp.refuse("%s exists, and was not imported from %s: rename or delete it", refOfPool(current), pp.ref)
		} else {
			pp.pool, pp.exists = current, true
		}
	}
	isTheirs := slices.ContainsFunc(st.sources, func(obj *unstructured.Unstructured) bool { return keyOf(obj) == keyOf(pp.pool) })
	if isTheirs {
		pp.refuse("Metal3 has a pool named %s, and serves all claims that name one of that name, whatever its API group: choose another suffix", pp.pool.GetName())
	}
}

// keep finds the addresses that stay with claims of Metal3's own kind.
func (pp *poolPlan) keep(ownAddresses []*unstructured.Unstructured) {
	for _, address := range ownAddresses {
		addr, err := netip.ParseAddr(textAt(address, "address"))
		if err == nil && address.GetNamespace() == pp.ref.Namespace && textAt(address, "pool", "name") == pp.ref.Name {
			pp.own = append(pp.own, holding{claim: textAt(address, "claim", "name"), addr: addr, isOwn: true})
		}
	}
	pp.holdings = append(pp.holdings, pp.own...)
}

// countImported counts the IPAddresses that were imported.
func countImported(addresses []*unstructured.Unstructured) (n int) {
	for _, address := range addresses {
		if _, imported := originOf(address); imported {
			n++
		}
	}
	return n
}

// grouped groups claims or IPAddresses by the pool that they name.
func grouped(objects []*unstructured.Unstructured) map[ipam.Holder][]*unstructured.Unstructured {
	groups := map[ipam.Holder][]*unstructured.Unstructured{}
	for _, obj := range objects {
		groups[namedPool(obj)] = append(groups[namedPool(obj)], obj)
	}
	return groups
}

// use takes over the objects that name the source.
func (pp *poolPlan) use(claims, addresses []*unstructured.Unstructured) {
	byClaim := map[client.ObjectKey]*unstructured.Unstructured{}
	for _, address := range addresses {
		key := claimOf(address)
		if other := byClaim[key]; other != nil {
			pp.refuse("IPAddresses %s and %s are both for the IPAddressClaim %s: delete one of the two", keyOf(other), keyOf(address), key)
		}
		byClaim[key] = address
	}
	for _, from := range sidesOf(claims, addresses) {
		pp.add(from)
	}
}

// sidesOf pairs claims with the IPAddresses that fulfill them, in the order of their names.
func sidesOf(claims, addresses []*unstructured.Unstructured) []side {
	var all []side
	at := map[client.ObjectKey]int{}
	for _, claim := range claims {
		at[keyOf(claim)] = len(all)
		all = append(all, side{Claim: claim})
	}
	for _, address := range addresses {
		if i, ok := at[claimOf(address)]; ok && all[i].Address == nil {
			all[i].Address = address
		} else {
			all = append(all, side{Address: address})
		}
	}
	slices.SortFunc(all, func(a, b side) int { return compareKeys(keyOf(a.object()), keyOf(b.object())) })
	return all
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// add adds a claim and its IPAddress to be moved.
func (pp *poolPlan) add(from side) {
	if from.Address != nil {
		addr := addressOf(from.Address)
		if !addr.IsValid() {
			pp.refuse("IPAddress %s has no address that can be read: delete it", keyOf(from.Address))
			return
		}
		h := holding{claim: "ipam.cadastre.dev/" + from.Address.GetName(), addr: addr}
		if from.Claim != nil {
			h.claim = from.Claim.GetName()
		}
		pp.holdings = append(pp.holdings, h)
	}
	pp.entries = append(pp.entries, newReplacement(from, pp.pool, pp.ref.Name))
}

// judge notes why addresses in use cannot be moved as they are.
func (pp *poolPlan) judge() {
	cidr, err := netip.ParsePrefix(pp.pool.Spec.CIDR)
	if len(pp.problems) > 0 || err != nil {
		return
	}
	seen := map[netip.Addr]string{}
	for _, h := range pp.holdings {
		if other, twice := seen[h.addr]; twice {
			pp.refuse("%s is held twice, by %s and by %s: delete one of the two", h.addr, other, h.claim)
		}
		seen[h.addr] = h.claim
		if !cidr.Contains(h.addr) {
			pp.refuse("%s, held by %s, lies outside %s: delete it, or correct the pool", h.addr, h.claim, cidr)
		}
	}
}

// unpausedOf returns the Clusters that are not paused, and that claims to be moved belong to.
func (pl plan) unpausedOf(st state) []client.ObjectKey {
	var found []client.ObjectKey
	for _, pp := range pl.pools {
		for _, e := range pp.entries {
			if e.From.Claim == nil {
				continue
			}
			key := client.ObjectKey{Namespace: e.From.Claim.GetNamespace(), Name: clusterOf(e.From.Claim)}
			if cluster := st.clusters[key]; cluster != nil && !isPaused(cluster) {
				found = append(found, key)
			}
		}
	}
	slices.SortFunc(found, compareKeys)
	return slices.Compact(found)
}

// problems counts the obstacles to the import.
func (pl plan) problems() int {
	n := len(pl.unpaused) + len(pl.missing)
	for _, pp := range pl.pools {
		n += len(pp.problems) + len(pp.news)
	}
	return n
}

// rows returns the lines of the plan.
func (pl plan) rows(verbose bool) []row {
	var rows []row
	for _, name := range pl.missing {
		rows = append(rows, row{name, cannot, "Metal3 has no pool of this name there: correct it"})
	}
	rows = append(rows, unpausedRows(pl.unpaused)...)
	for _, pp := range pl.pools {
		rows = append(rows, pp.rows(verbose)...)
	}
	return rows
}

func unpausedRows(clusters []client.ObjectKey) (rows []row) {
	for _, key := range clusters {
		rows = append(rows, row{"Cluster " + key.String(), "-", "is not paused: set its spec.paused to true, and to false when this is done"})
	}
	return rows
}

func (pp *poolPlan) problemRows() (rows []row) {
	for _, problem := range pp.problems {
		rows = append(rows, row{pp.ref.String(), cannot, problem})
	}
	return rows
}

func (pp *poolPlan) rows(verbose bool) []row {
	if len(pp.problems) > 0 {
		return pp.problemRows()
	}
	target := refOfPool(pp.pool).String()
	rows := []row{{pp.ref.String(), target, pp.describe()}}
	for _, note := range pp.notes {
		rows = append(rows, row{"", "", note})
	}
	served, waiting := 0, 0
	for _, e := range pp.entries {
		switch {
		case verbose || e.From.Claim == nil || e.Deleting:
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
	spec := &pp.pool.Spec.PoolSpec
	text := spec.CIDR
	switch ranges := ipam.FirstFew(spec.Ranges); {
	case spec.Occupies == v1alpha1.OccupiesRanges:
		text += ", occupies only " + ranges
	case ranges != "":
		text += ", ranges " + ranges
	}
	text += reservedText(spec) + networkText(spec)
	if !isInDefault(pp.pool) {
		text += ", routing domain " + spec.RoutingDomain
	}
	if pp.exists {
		text += " (exists)"
	}
	return text
}

func reservedText(spec *v1alpha1.PoolSpec) string {
	if len(spec.Reserved) == 0 {
		return ""
	}
	return ", reserved " + ipam.FirstFew(spec.Reserved)
}

func networkText(spec *v1alpha1.PoolSpec) string {
	switch network := spec.Network; {
	case network == nil:
		return ""
	case network.Gateway == "":
		return fmt.Sprintf(", network /%d", network.PrefixLength)
	default:
		return fmt.Sprintf(", network /%d by %s", network.PrefixLength, network.Gateway)
	}
}

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
