package migrate

import (
	"net/netip"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// The group of IPAddressClaims and IPAddresses, and the version in which they are read and
// written, which is the one that the operator serves.
const (
	addressGroup   = "ipam.cluster.x-k8s.io"
	addressVersion = "v1beta2"
	kindClaim      = "IPAddressClaim"
	kindAddress    = "IPAddress"
)

// provider represents another IPAM provider of Cluster API, whose pools, claims and addresses
// are taken over.
type provider struct {
	// name holds the name of the command.
	name string
	// kinds holds its kinds of pools.
	kinds []sourceKind
	// suffix is appended to the names of our pools.
	suffix string
	// servesByName is set if it serves claims by the name of the pool alone.
	servesByName bool
	// claimFinalizer and addressFinalizer name the finalizers that it puts on claims and
	// IPAddresses, and removes itself.
	claimFinalizer, addressFinalizer string
	// read reads a pool, as it was before it was closed.
	read func(pool *unstructured.Unstructured) source
	// close changes a pool so that the provider hands out nothing of it any more except
	// addresses that a claim of the same name has already. It reports whether it has changed
	// the pool.
	close func(pool *unstructured.Unstructured, inUse []holding) (changed bool, err error)
	// reopen undoes close.
	reopen func(pool *unstructured.Unstructured) error
	// ownClaims holds the kind of the provider's own claims, which no other provider answers,
	// and ownAddresses the kind of their addresses; both are empty if it has none.
	ownClaims, ownAddresses schema.GroupVersionKind
}

// sourceKind holds a kind of pools, and the kind of pools that they become.
type sourceKind struct {
	schema.GroupVersionKind
	becomes v1alpha1.PoolKind
}

// isLocal reports whether pools of the kind have a namespace.
func (k sourceKind) isLocal() bool { return k.becomes == v1alpha1.PoolKindLocalIPPool }

// poolRef names a pool of any provider. The namespace is empty if its kind has none.
type poolRef struct {
	Group     string `json:"apiGroup"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (r poolRef) String() string { return ipam.Holder(r).String() }

// source represents a pool of another provider, as far as it can be read.
type source struct {
	obj     *unstructured.Unstructured
	ref     poolRef
	becomes v1alpha1.PoolKind
	// network holds the subnet that its addresses are configured with.
	network netip.Prefix
	// addresses holds the addresses that it can hand out, except those in excluded.
	addresses, excluded *netipx.IPSet
	gateway             string
	edges               bool
	dnsServers          []string
	// cluster names the Cluster that it belongs to.
	cluster string
	// paused is set if it is paused, and not by an import.
	paused bool
	// notes holds remarks on the pool that is made of it, and problems the reasons why none can
	// be made.
	notes, problems []string
}

// holding represents a claim that has an address.
type holding struct {
	claim string
	addr  netip.Addr
	// isOwn is set for a claim of the provider's own kind.
	isOwn bool
}

// kindOf returns the provider's kind of that name.
func (p provider) kindOf(kind string) (sourceKind, bool) {
	for _, k := range p.kinds {
		if k.Kind == kind {
			return k, true
		}
	}
	return sourceKind{}, false
}

// refOf returns the pool that a claim or an IPAddress names.
func (p provider) refOf(obj *unstructured.Unstructured) poolRef {
	ref := namedPool(obj)
	if kind, ok := p.kindOf(ref.Kind); ok && kind.Group == ref.Group && !kind.isLocal() {
		ref.Namespace = ""
	}
	return ref
}

// namedPool returns the pool that a claim or an IPAddress names, in its own namespace.
func namedPool(obj *unstructured.Unstructured) poolRef {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(obj.Object, "spec", "poolRef", field)
		return value
	}
	ref := poolRef{Group: text("apiGroup"), Kind: text("kind"), Namespace: obj.GetNamespace(), Name: text("name")}
	if ref.Group == v1alpha1.GroupVersion.Group && ref.Kind == string(v1alpha1.PoolKindIPPool) {
		ref.Namespace = ""
	}
	return ref
}
