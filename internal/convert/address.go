package convert

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// kindClass is the kind of a reference that names a class.
const kindClass = "IPClass"

// AddressClaim holds the relevant fields of one of Cluster API's IPAddressClaims.
type AddressClaim struct {
	Namespace, Name string
	// PoolGroup, PoolKind and PoolName are the fields of spec.poolRef.
	PoolGroup, PoolKind, PoolName string
	Annotations                   map[string]string
}

// Targets holds which references of IPAddressClaims and IPAddresses are served.
type Targets struct {
	// InCluster has references to the in-cluster provider's pools served, too.
	InCluster bool
}

// Has reports whether a reference names an object from which addresses are handed out.
func (t Targets) Has(group, kind string) bool {
	return IsOwnTarget(group, kind) || t.InCluster && IsInCluster(group, kind)
}

// IsTarget reports whether a reference names an object from which Cadastre can hand out addresses,
// whether or not it does.
func IsTarget(group, kind string) bool { return Targets{InCluster: true}.Has(group, kind) }

// IsOwnTarget reports whether a reference names a pool or a class of Cadastre's API group.
func IsOwnTarget(group, kind string) bool {
	return IsOurGroup(group) && (kind == string(ipam.PoolKindIPPool) || kind == string(ipam.PoolKindLocalIPPool) || kind == kindClass)
}

// IsInCluster reports whether a reference names a pool of the in-cluster provider's kinds.
func IsInCluster(group, kind string) bool {
	return group == incluster.GroupVersion.Group && ipam.PoolKind(kind).IsInCluster()
}

// IsOurGroup reports whether a reference of an IPAddressClaim or an IPAddress is into Cadastre's
// API group, whether or not the group has the kind.
func IsOurGroup(group string) bool { return group == v1alpha1.GroupVersion.Group }

// UnknownKind returns the error for a reference into Cadastre's API group with a kind that the
// group does not have.
func UnknownKind(kind string) *field.Error {
	return field.NotSupported(field.NewPath("spec", "poolRef", "kind"), kind, []string{string(ipam.PoolKindIPPool), string(ipam.PoolKindLocalIPPool), kindClass})
}

// ReleaseFinalizer returns the finalizer on IPAddressClaims with a reference into the group, which stays
// until the address is released.
func ReleaseFinalizer(group string) string {
	if IsOurGroup(group) {
		return v1alpha1.FinalizerRelease
	}
	return incluster.FinalizerRelease
}

// ProtectFinalizer returns the finalizer on IPAddresses with a reference into the group, which stays until
// the claim is gone.
func ProtectFinalizer(group string) string {
	if IsOurGroup(group) {
		return v1alpha1.FinalizerProtect
	}
	return incluster.FinalizerProtect
}

// PoolOfAddress returns the pool that a reference names, for an object of the namespace; the zero
// key if the reference names a class.
func PoolOfAddress(kind, namespace, name string) ipam.PoolKey {
	if !ipam.PoolKind(kind).IsPool() {
		return ipam.PoolKey{}
	}
	return ipam.PoolOfKind(ipam.PoolKind(kind), namespace, name)
}

// AddressRequest reads the request of an IPAddressClaim, which is for one address.
func AddressRequest(c AddressClaim) (ipam.Request, field.ErrorList) {
	req := ipam.Request{
		Claim:  ipam.Name{Namespace: c.Namespace, Name: c.Name},
		Pool:   PoolOfAddress(c.PoolKind, c.Namespace, c.PoolName),
		Length: ipam.NoLength, Single: true,
		Sticky: c.Annotations[v1alpha1.AnnotationSticky],
		Grant:  grant(c.Annotations, c.PoolName),
	}
	if c.PoolKind == kindClass {
		req.Class = c.PoolName
	}
	path := field.NewPath("metadata", "annotations")
	var errs field.ErrorList
	if len(req.Sticky) > maxSticky {
		errs = append(errs, field.TooLong(path.Key(v1alpha1.AnnotationSticky), "", maxSticky))
	}
	if text, ok := c.Annotations[v1alpha1.AnnotationAddress]; ok {
		addr, err := Addr(path.Key(v1alpha1.AnnotationAddress), text)
		if err != nil {
			return req, append(errs, err)
		}
		req.Block, req.BlockField = netip.PrefixFrom(addr, addr.BitLen()), path.Key(v1alpha1.AnnotationAddress).String()
		req.Family = ipam.FamilyOf(req.Block)
	}
	return req, errs
}

// maxSticky is the greatest length of the key of a sticky address.
const maxSticky = 253

// AddressInUse reads an address that is in use already. It accepts any notation.
func AddressInUse(path *field.Path, text string) (netip.Addr, *field.Error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, field.Invalid(path, text, "is not an IP address: delete the IPAddress, so that a new one is made")
	}
	return addr.Unmap(), nil
}

// GrantText returns a grant as the value of the annotation [v1alpha1.AnnotationUseGranted].
func GrantText(pool ipam.PoolKey, grant ipam.Grant) string {
	if grant.PoolUID == "" {
		return pool.Name
	}
	return pool.Name + "/" + grant.PoolUID
}

// grant reads the right to use the pool of a name from the annotations of an object.
func grant(annotations map[string]string, pool string) *ipam.Grant {
	name, uid, _ := strings.Cut(annotations[v1alpha1.AnnotationUseGranted], "/")
	if name == "" || name != pool {
		return nil
	}
	return &ipam.Grant{PoolUID: uid}
}
